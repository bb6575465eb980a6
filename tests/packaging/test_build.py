"""The build with and without a compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NATIVE = Path("src/penstock/native")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The files that a build of the extension reads."""
    pytest.importorskip("setuptools", minversion="77")
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(
        ROOT / NATIVE, tmp_path / NATIVE, ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    return tmp_path


def build(tree: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items()
             if name not in ("PENSTOCK_STRICT_BUILD", "PENSTOCK_SANITIZE")}
    return subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--inplace"], cwd=tree, check=False, text=True,
        capture_output=True, timeout=300, env={**clean, **environment},
    )


def test_build_without_a_compiler_succeeds_and_explains_the_consequence(tree: Path) -> None:
    built = build(tree, CC="no-such-compiler")
    assert built.returncode == 0
    assert "penstock works without it, in pure Python" in built.stdout + built.stderr
    assert list((tree / NATIVE).glob("_core*.so")) == []


def test_strict_build_without_a_compiler_fails(tree: Path) -> None:
    built = build(tree, CC="no-such-compiler", PENSTOCK_STRICT_BUILD="1")
    assert built.returncode != 0
    assert "no-such-compiler" in built.stdout + built.stderr


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.parametrize(("strict", "succeeds"), [("", True), ("1", False)])
def test_compiler_warning_fails_only_a_strict_build(
    tree: Path, strict: str, succeeds: bool
) -> None:
    for source in (tree / NATIVE).glob("*.c"):
        source.unlink()
    (tree / NATIVE / "module.c").write_text(
        "#include <Python.h>\nstatic int unused;\n"
        "PyMODINIT_FUNC PyInit__core(void) { return NULL; }\n"
    )
    built = build(tree, PENSTOCK_STRICT_BUILD=strict)
    assert (built.returncode == 0) is succeeds
    assert len(list((tree / NATIVE).glob("_core*.so"))) == succeeds
