"""Builds the native code, and adds the examples. Everything else is in pyproject.toml.

Without a C compiler the installation succeeds and penstock runs in pure Python. Two environment
variables change the build:

    PENSTOCK_STRICT_BUILD=1      warnings are errors, and a failed build fails the installation
    PENSTOCK_SANITIZE=address    compiles with a sanitizer of gcc or clang (see `make asan`)
"""

from __future__ import annotations

import os
import runpy
import shutil
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

NATIVE = Path("src/penstock/native")
STRICT = os.environ.get("PENSTOCK_STRICT_BUILD", "") not in ("", "0")
SANITIZE = os.environ.get("PENSTOCK_SANITIZE", "")

# Functions that Python calls have the parameters that it passes, used or not.
STRICT_FLAGS = ["-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror"]
SANITIZE_FLAGS = [
    f"-fsanitize={SANITIZE}", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-O1",
]

NO_CORE = """\
The native core of penstock was not built.
penstock works without it, in pure Python, but more slowly.
To build it, install a C compiler and the Python headers, then install penstock again.
"""


class BuildModules(build_py):
    """Adds the examples, which `penstock demo` runs."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode and Path("examples").is_dir():
            shutil.copytree(
                "examples", Path(self.build_lib, "penstock", "_examples"), dirs_exist_ok=True,
                ignore=shutil.ignore_patterns("__pycache__"),
            )


class BuildCore(build_ext):
    """Builds the extension and explains a missing one."""

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except Exception:
            if not STRICT:
                self.warn(NO_CORE)
            raise


def extension(name: str, folder: Path, **options: object) -> Extension:
    """An extension of the C files in a folder, with their checksum compiled in."""
    sources_checksum = runpy.run_path(str(NATIVE / "_sources.py"))["sources_checksum"]
    return Extension(
        f"penstock.native.{name}",
        sources=sorted(map(str, folder.glob("*.c"))),
        depends=sorted(map(str, folder.glob("*.h"))),
        define_macros=[("PENSTOCK_SOURCES", f'"{sources_checksum(str(folder))}"')],
        extra_compile_args=(STRICT_FLAGS if STRICT else []) + (SANITIZE_FLAGS if SANITIZE else []),
        extra_link_args=SANITIZE_FLAGS if SANITIZE else [],
        optional=not STRICT,
        **options,
    )


# librdkafka is opened when it is needed, not linked, so its headers are not needed either.
EXTENSIONS = [
    extension("_core", NATIVE),
    extension("_rdkafka", NATIVE / "rdkafka", libraries=["dl", "pthread"]),
]


setup(ext_modules=EXTENSIONS, cmdclass={"build_ext": BuildCore, "build_py": BuildModules})
