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

from docs.pages import DOCS, WALKTHROUGHS, blocks

MARKER = "=== the next step ==="


class Step(NamedTuple):
    """A command of a shell and its output."""

    command: str
    output: str


def steps(page: Path) -> Iterator[Step]:
    """Yield the commands of a page. A Python block is appended to the file that it names."""
    for language, block, _ in blocks(page, "python", "console"):
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


def check(expected: list[Step], folder: Path) -> None:
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
@pytest.mark.parametrize("page", WALKTHROUGHS)
def test_page_works_as_written_without_spark(page: str, tmp_path: Path) -> None:
    on_spark = re.compile(r"(penstock run .*--quiet)(?!.*inline)")
    check([
        Step(on_spark.sub(r"\1 --master inline", command), output)
        for command, output in steps(DOCS / page)
    ], tmp_path)


@pytest.mark.slow
@pytest.mark.spark
def test_tutorial_works_as_written_on_spark(tmp_path: Path) -> None:
    check(list(steps(DOCS / "tutorial.md")), tmp_path)
