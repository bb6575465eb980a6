"""The public API has precise types."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ERROR = re.compile(r"^.*?:(?P<line>\d+): error: .*\[(?P<code>[\w-]+)\]$", re.MULTILINE)


def errors_of(name: str) -> dict[int, set[str]]:
    """The error codes that mypy reports for a file, by line."""
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", str(HERE / name)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    found: dict[int, set[str]] = {}
    for match in ERROR.finditer(ran.stdout):
        found.setdefault(int(match["line"]), set()).add(match["code"])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["streams.py", "tables.py", "drivers.py", "settings.py"])
def test_types_follow_from_serdes_and_functions(name: str) -> None:
    assert errors_of(name) == {}


@pytest.mark.slow
def test_wrong_types_are_rejected() -> None:
    lines = (HERE / "wrong.py").read_text(encoding="utf-8").splitlines()
    expected = {
        number: set(line.split("  # ")[1].split())
        for number, line in enumerate(lines, 1)
        if "  # " in line
    }
    assert len(expected) > 10
    assert errors_of("wrong.py") == expected
