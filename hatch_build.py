"""Builds the native core when penstock is installed, if there is a C compiler.

Without one, or if it fails, the installation goes on: penstock then runs in Python alone, more
slowly and with the same answers. `python hatch_build.py` builds it in place by hand.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NATIVE = Path(__file__).parent / "src" / "penstock" / "native"


class NativeCore(BuildHookInterface):  # type: ignore[type-arg]
    """The hook that hatchling calls before it makes a wheel, editable or not."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        try:
            library = build()
        except (OSError, subprocess.CalledProcessError) as error:
            self.app.display_warning(unbuilt(error))
            return
        if version != "editable":
            build_data["artifacts"].append(str(library.relative_to(Path(__file__).parent)))
            build_data["pure_python"] = False
            build_data["infer_tag"] = True


def build() -> Path:
    """Compile the sources into the package; raises if there is no compiler or it complains."""
    variable = sysconfig.get_config_var
    target = NATIVE / f"_core{variable('EXT_SUFFIX')}"
    compiler = shlex.split(variable("CC") or "cc")
    linker = shlex.split(variable("LDSHARED") or f"{compiler[0]} -shared")
    flags = [
        *shlex.split(variable("CFLAGS") or "-O2"), *shlex.split(variable("CCSHARED") or "-fPIC"),
        "-Wno-missing-field-initializers", f"-I{sysconfig.get_path('include')}",
    ]
    with tempfile.TemporaryDirectory() as folder:
        objects = []
        for source in sorted(NATIVE.glob("*.c")):
            compiled = Path(folder) / f"{source.stem}.o"
            _run([*compiler, *flags, "-c", str(source), "-o", str(compiled)])
            objects.append(str(compiled))
        linked = Path(folder) / target.name
        _run([*linker, *objects, "-o", str(linked)])
        # Never written over, and never half there: others may be using it, or about to.
        part = target.with_suffix(".part")
        part.write_bytes(linked.read_bytes())
        part.replace(target)
    return target


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


def unbuilt(error: Exception) -> str:
    """What to say when there is no native core."""
    detail = getattr(error, "stderr", None) or error
    return (
        f"penstock's native core could not be built: {detail}\n"
        "penstock works without it, in Python alone. For the fast one install a C compiler and "
        "the headers of Python, then install penstock again."
    )


if __name__ == "__main__":
    try:
        print(build())
    except (OSError, subprocess.CalledProcessError) as problem:
        sys.exit(unbuilt(problem))
