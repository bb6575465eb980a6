"""Every example runs with one command, and its README shows what appears."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
#: The orders demo takes a while and shows rates; it has tests of its own.
NAMES = sorted({path.parent.name for path in EXAMPLES.glob("*/demo.py")} - {"orders"})
#: These need Spark with every master.
ON_SPARK = {"parquet_join"}
_BLOCK = re.compile(r"```console\n\$ penstock (demo .+?)\n(.*?)```", re.DOTALL)
_TIME = re.compile(r"EventTime=\d+")


def run(*arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command. It may write files to the folder."""
    return subprocess.run(
        [sys.executable, "-m", "penstock", *arguments], capture_output=True, text=True,
        check=False, timeout=300, cwd=folder,
    )


def block(name: str) -> tuple[list[str], str]:
    """The command in a README, and its output."""
    found = _BLOCK.search((EXAMPLES / name / "README.md").read_text(encoding="utf-8"))
    assert found is not None
    return found[1].split(), found[2]


@pytest.mark.slow
@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.spark) if name in ON_SPARK else name for name in NAMES
])
def test_output_is_as_in_the_readme(name: str, tmp_path: Path) -> None:
    command, expected = block(name)
    assert command[1] == name.replace("_", "-")
    ran = run(*command, folder=tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert _TIME.sub("", ran.stdout) == _TIME.sub("", expected)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("name", [name for name in NAMES if name != "log_shipping"])
def test_results_on_spark_are_the_same(name: str, tmp_path: Path) -> None:
    command, expected = block(name)
    ran = run(*command[:2], folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert _results(expected)
    assert sorted(_results(ran.stdout)) == sorted(_results(expected))


def _results(text: str) -> list[str]:
    """The lines of the output topics, and of other results."""
    return [line for line in text.partition("\n== ")[2].splitlines() if line.startswith("  ")]


def test_demo_lists_the_examples() -> None:
    listed = run("demo").stdout
    for name in (*NAMES, "orders"):
        assert name.replace("_", "-") in listed


def test_demo_suggests_a_similar_name() -> None:
    ran = run("demo", "wrods")
    assert ran.returncode == 2
    assert "Example 'wrods' does not exist. Did you mean 'words'?" in ran.stderr
