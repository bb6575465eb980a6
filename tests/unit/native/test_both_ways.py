"""The native core and the Python code give the same results.

`make test-pure` runs the unit tests and the conformance cases without the native core.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import native

HERE = Path(__file__).parent

needs_core = pytest.mark.skipif(native.core is None, reason=f"penstock runs {native.in_use()}")


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python, by default without the native core."""
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=600,
        env={**os.environ, "PENSTOCK_PURE_PYTHON": "1", **environment},
    )


def test_environment_variable_disables_the_native_core() -> None:
    ran = python("-c", "from penstock import native; print(native.core, native.in_use())")
    assert ran.stdout == "None pure Python (PENSTOCK_PURE_PYTHON is set)\n"


@needs_core
def test_every_scenario_has_the_same_results_in_c_and_python() -> None:
    pure = python(str(HERE / "scenarios.py"))
    # The debugging allocator overwrites freed memory and detects writes out of bounds.
    fast = python(str(HERE / "scenarios.py"), PENSTOCK_PURE_PYTHON="", PYTHONMALLOC="debug")
    assert (pure.returncode, pure.stderr) == (fast.returncode, fast.stderr) == (0, "")
    lines = pure.stdout.splitlines()
    assert len(lines) > 100_000
    differing = [pair for pair in zip(lines, fast.stdout.splitlines(), strict=True)
                 if pair[0] != pair[1]]
    assert differing[:3] == []
