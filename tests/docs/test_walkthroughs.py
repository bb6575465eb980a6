"""Runs pages as a reader would: writes their files, runs their commands, compares the output."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
#: Pages whose Python blocks start with the name of the file that they belong to.
PAGES = ("tutorial.md", "error-handling.md", "evolving.md")
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARKER = "=== the next step ==="


class Step(NamedTuple):
    """A command of a shell and its output."""

    command: str
    output: str


def steps(text: str) -> Iterator[Step]:
    """Yield the commands of a page. A Python block is appended to the file that it names."""
    for language, block in BLOCK.findall(text):
        if language == "python":
            file = block.partition("\n")[0].removeprefix("# ")
            yield Step(f"cat >> {file} <<'END OF BLOCK'\n{block}END OF BLOCK\n", "")
            continue
        for command, output in re.findall(
            r"^\$ (.*\n(?:>.*\n)*)((?:(?!\$ ).*\n)*)", block, re.MULTILINE
        ):
            yield Step(re.sub(r"\n> ?", "\n", command), output)


def without_times(text: str) -> str:
    return re.sub(r"in \d+\.\d+s", "in 0.10s", text)


def check(text: str, folder: Path) -> None:
    expected = list(steps(text))
    assert len(expected) > 10
    # One shell runs all commands. The marker preserves the exit code.
    script = "".join(f"{each.command}set -- $?; echo '{MARKER}'; (exit $1)\n" for each in expected)
    programs = os.path.dirname(sys.executable)
    ran = subprocess.run(
        ["sh", "-c", script], cwd=folder, text=True, check=False, timeout=600,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        env={**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
             "PYTEST_ADDOPTS": "-p no:cacheprovider"},
    )
    outputs = without_times(ran.stdout).split(f"{MARKER}\n")
    done = [Step(each.command, output) for each, output in zip(expected, outputs, strict=False)]
    for each, wanted in zip(done, expected, strict=True):
        assert each == wanted
    assert outputs[len(expected):] == [""]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_page_works_as_written_without_spark(page: str, tmp_path: Path) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    check(re.sub(r"(penstock run .*--quiet)(?!.*inline)", r"\1 --master inline", text), tmp_path)


@pytest.mark.slow
@pytest.mark.spark
def test_tutorial_works_as_written_on_spark(tmp_path: Path) -> None:
    check((DOCS / "tutorial.md").read_text(encoding="utf-8"), tmp_path)
