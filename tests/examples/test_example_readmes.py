"""Every example runs with one command, and its README shows what appears."""

from __future__ import annotations

import re
import shlex
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from engine.instances import until

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
    assert _stable(ran.stdout) == _stable(expected)


def _stable(text: str) -> tuple[list[str], str]:
    """The output without times. Tasks print in any order, before the first result."""
    printed, _, results = _TIME.sub("", text).partition("\n\n== ")
    return sorted(printed.splitlines()), results


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
    """All lines behind the name of the master."""
    return text.partition(" ...\n")[2].splitlines()


ORDERS = (EXAMPLES / "orders" / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_totals_of_the_orders_demo_are_as_in_its_readme() -> None:
    # As many orders as in ten seconds with the default rate.
    ran = run("demo", "orders", "--master", "inline", "--seconds", "1", "--rate", "5000")
    assert (ran.returncode, ran.stderr) == (0, "")
    totals = [line for line in ORDERS.splitlines() if line.startswith("  store_")]
    assert len(totals) == 3
    assert "\n".join(totals) in ran.stdout
    shape = re.sub(r"[\d.,]+", "N", ORDERS.partition("== summary\n")[2].partition("```")[0])
    assert re.sub(r"[\d.,]+", "N", ran.stdout.partition("== summary\n")[2]) == shape


def steps() -> Iterator[tuple[list[str], str]]:
    """The commands of the orders README, each with its output."""
    for shown in re.findall(r"```console\n(.*?)```", ORDERS, re.DOTALL):
        for step in shown.removeprefix("$ ").split("\n$ "):
            command, _, output = step.partition("\n")
            yield shlex.split(command), output.rstrip("\n")


def free_port() -> str:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return str(opened.getsockname()[1])


@pytest.mark.slow
def test_steps_of_the_orders_readme_show_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(EXAMPLES)
    ports = {"8080": free_port(), "8081": free_port()}

    def with_ports(text: str) -> str:
        return re.sub("8080|8081", lambda found: ports[found[0]], text)

    programs = {"python": [], "penstock": ["-m", "penstock"]}
    seen = []
    with ExitStack() as stack:
        for (program, *arguments), expected in steps():
            seen.append(program)
            if program == "curl":
                until(lambda url=arguments[0], body=expected: get(with_ports(url)) == body)
                continue
            process = subprocess.Popen(
                [sys.executable, *programs[program], *map(with_ports, arguments)], cwd=tmp_path,
                text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )
            stack.callback(process.communicate)
            stack.callback(process.kill)
            assert process.stdout is not None
            if "rest.py" in arguments[0]:
                assert process.stdout.readline() == with_ports(expected) + "\n"
                continue
            output = process.stdout.read()
            assert process.wait() == 0, output
            shown = [line for line in output.splitlines() if not line.startswith("WARNING ")]
            assert shown == expected.splitlines()
    assert seen == ["penstock", "python", "penstock", "penstock", "python", "python", "curl"]


def get(url: str) -> str | None:
    try:
        with urllib.request.urlopen(f"http://{url}", timeout=30) as answer:
            return str(answer.read().decode())
    except (urllib.error.URLError, ConnectionError):
        return None


@pytest.mark.parametrize("name", [*NAMES, "orders"])
def test_every_example_has_its_tests_beside_it(name: str) -> None:
    readme = (EXAMPLES / name / "README.md").read_text(encoding="utf-8")
    assert f"| `test_{name}.py` |" in readme
    assert "def test_" in (EXAMPLES / name / f"test_{name}.py").read_text(encoding="utf-8")


def test_tests_of_an_example_need_no_repository(tmp_path: Path) -> None:
    """`penstock demo` shows the folder of the examples, which is part of the package."""
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "words"], cwd=tmp_path / "examples",
        capture_output=True, text=True, check=False, timeout=120,
    )
    assert ran.returncode == 0, ran.stdout
    assert "passed" in ran.stdout


def test_demo_lists_the_examples() -> None:
    listed = run("demo").stdout
    for name in (*NAMES, "orders"):
        assert name.replace("_", "-") in listed


def test_demo_suggests_a_similar_name() -> None:
    ran = run("demo", "wrods")
    assert ran.returncode == 2
    assert "Example 'wrods' does not exist. Did you mean 'words'?" in ran.stderr
