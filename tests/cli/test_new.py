"""`penstock new`: the project works as its README says, and nothing is overwritten."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from cli.conftest import Penstock
from house import language
from penstock.cli.project import create_project, package_name, project_files
from penstock.properties import read_properties

CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    create_project("store-revenue", tmp_path / "revenue")
    return tmp_path / "revenue"


def shell(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    scripts = os.path.dirname(sys.executable)
    return subprocess.run(
        ["sh", "-e", "-c", script], cwd=folder, text=True, check=False, timeout=300,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"},
    )


def readme_steps(project: Path) -> tuple[str, list[str]]:
    """The commands of the README as a script, and the lines that they print."""
    (block,) = CONSOLE.findall((project / "README.md").read_text(encoding="utf-8"))
    lines = block.splitlines()
    script = "\n".join(line.removeprefix("$ ") for line in lines if line.startswith("$ "))
    return script, [line for line in lines if not line.startswith("$ ")]


def check_results(ran: subprocess.CompletedProcess[str], expected: list[str]) -> None:
    assert ran.returncode == 0, ran.stdout
    printed, shown = (
        [re.sub(r"in [\d.]+s", "in 0 s", line) for line in lines]
        for lines in (ran.stdout.splitlines(), expected)
    )
    assert printed == shown
    assert "3 passed in 0 s" in shown


@pytest.mark.slow
def test_commands_of_the_readme_work_without_spark(project: Path) -> None:
    script, expected = readme_steps(project)
    assert script.count("--once") == 1
    inline = script.replace("--once", "--once --master inline")
    check_results(shell(inline, project), expected)


@pytest.mark.spark
@pytest.mark.slow
def test_commands_of_the_readme_work(project: Path) -> None:
    script, expected = readme_steps(project)
    check_results(shell(script, project), expected)


def test_command_creates_the_project(
    penstock: Penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    created = penstock("new", "orders")
    files = {
        path.relative_to(tmp_path / "orders").as_posix()
        for path in (tmp_path / "orders").rglob("*") if path.is_file()
    }
    assert files == {
        ".dockerignore", ".gitignore", "Dockerfile", "README.md", "pyproject.toml",
        "streams.properties", "orders/__init__.py", "orders/model.py", "orders/sample_data.py",
        "orders/topology.py", "tests/test_topology.py",
    }
    assert created == (
        0,
        f"Created project 'orders' in 'orders': {len(files)} files.\n  cd orders\n"
        "  python -m pytest\n  penstock describe orders.topology\n",
        "README.md in the project has the commands to run it.\n",
    )
    assert penstock("new", "orders", "--directory", "other/place").code == 0
    assert (tmp_path / "other" / "place" / "orders" / "topology.py").is_file()


def test_existing_files_are_never_overwritten(penstock: Penstock, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    refused = penstock("new", "orders", "--directory", folder)
    assert (refused.code, refused.out) == (1, "")
    assert "exists and is not an empty directory" in refused.err
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    file = folder / "notes.txt"
    assert penstock("new", "orders", "--directory", file).code == 1
    assert file.read_text() == "mine"
    (folder / "empty").mkdir()
    assert penstock("new", "orders", "--directory", folder / "empty").code == 0


@pytest.mark.parametrize("name", [
    "", "Orders", "1orders", "-orders", "orders-", "my orders", "a/b", "../orders", "orders.py",
    "ünder", "a--b", "x" * 101,
])
def test_invalid_name_is_refused(penstock: Penstock, tmp_path: Path, name: str) -> None:
    # "--" ends the options: a name may start with a dash.
    refused = penstock("new", "--directory", tmp_path / "new", "--", name)
    assert refused.code == 2
    assert f"'{name}' is not a valid project name" in refused.err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["class", "json", "penstock", "pytest", "tests"])
def test_name_of_another_module_is_refused(penstock: Penstock, tmp_path: Path, name: str) -> None:
    refused = penstock("new", name, "--directory", tmp_path / "new")
    assert refused.code == 2
    assert f"A project cannot have the name '{name}'" in refused.err
    assert not (tmp_path / "new").exists()


def test_package_has_underscores_for_dashes() -> None:
    assert package_name("store-revenue-2") == "store_revenue_2"


def test_no_placeholder_remains() -> None:
    files = project_files("store-revenue")
    assert [path for path, text in files.items() if "{{" in text] == []
    assert "store_revenue" in files["store_revenue/topology.py"]


def test_configuration_files_of_a_project_are_valid(project: Path) -> None:
    described = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
    assert described["project"]["name"] == "store-revenue"
    assert described["tool"]["setuptools"]["packages"] == ["store_revenue"]
    assert read_properties(project / "streams.properties") == {
        "application.id": "store-revenue", "deserialization.exception.handler": "continue",
    }


def test_project_passes_the_linter(project: Path) -> None:
    pytest.importorskip("ruff")
    ran = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--line-length", "100",
         "--select", "B,E,F,I,PT,RUF,SIM,UP,W", "."],
        cwd=project, capture_output=True, text=True, check=False,
    )
    assert ran.returncode == 0, ran.stdout


def test_text_of_a_project_is_plain_english() -> None:
    hits = [
        f"{path}:{text.line}: {found[0]}"
        for path, content in project_files("store-revenue").items()
        if path.endswith((".md", ".py"))
        for text in language.paragraphs(content, Path("src", path))
        for ban in language.BANS
        for found in ban.pattern.finditer(text.text)
    ]
    assert hits == []
