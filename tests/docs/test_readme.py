"""The documentation is true: code runs, commands print the shown output, links exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.pages import DOCS, LOGGING_SCRIPTS, README, ROOT, SCRIPTS, blocks, script

TOUR = DOCS / "tour.md"
LINK = re.compile(r"\]\(([^)#]+)[^)]*\)")
COMMAND = re.compile(r"(?:^|`)make ([\w-]+)", re.MULTILINE)
PAGES = sorted([
    README, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md",
    *DOCS.rglob("*.md"), *(ROOT / "examples").rglob("*.md"),
])


def written(page: Path, folder: Path) -> Path:
    file = folder / "tour.py"
    file.write_text(script(page), encoding="utf-8")
    return file


def page_named(name: str) -> Path:
    return README if name == "README.md" else DOCS / name


def run(*arguments: str | Path, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True, text=True, check=False, timeout=timeout_s,
    )


@pytest.mark.parametrize("name", SCRIPTS)
def test_code_of_a_page_runs_without_output(name: str, tmp_path: Path) -> None:
    ran = run("-W", "error", written(page_named(name), tmp_path))
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@pytest.mark.parametrize("name", LOGGING_SCRIPTS)
def test_code_of_a_page_that_shows_errors_runs(name: str, tmp_path: Path) -> None:
    ran = run("-W", "error", written(page_named(name), tmp_path))
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr


def test_code_of_the_serdes_page_runs(tmp_path: Path) -> None:
    pytest.importorskip("fastavro", reason="needs penstock[registry]")
    ran = run("-W", "error", written(DOCS / "serdes.md", tmp_path))
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@pytest.mark.spark
@pytest.mark.slow
def test_code_of_the_spark_data_page_runs(tmp_path: Path) -> None:
    # Spark logs to standard error.
    ran = run(written(DOCS / "spark-data.md", tmp_path), timeout_s=600)
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr


def test_tests_of_the_tour_pass(tmp_path: Path) -> None:
    tour = written(TOUR, tmp_path)
    ran = run("-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", tour)
    assert ran.returncode == 0, ran.stdout
    assert "3 passed" in ran.stdout


@pytest.mark.spark
@pytest.mark.smoke
@pytest.mark.slow
def test_readme_commands_print_the_shown_output(tmp_path: Path) -> None:
    written(README, tmp_path)
    ((_, block, _),) = blocks(README, "console")
    commands = "".join(line[2:] for line in block.splitlines(keepends=True) if line[:2] == "$ ")
    folder = str(Path(sys.executable).parent)
    ran = subprocess.run(
        ["sh", "-c", commands], cwd=tmp_path, text=True, check=False, timeout=180,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"},
    )
    assert ran.stdout == "".join(
        line for line in block.splitlines(keepends=True) if line[:2] != "$ "
    )


def test_tour_covers_every_feature_and_asserts() -> None:
    text = script(TOUR)
    for part in ("word_count()", ".suppress(", "prices.join(", "context.schedule(", "def test_"):
        assert part in text
    parts = blocks(TOUR, "python")
    assert [part for part in parts[1:] if "assert " not in part.text] == []


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = {name for page in PAGES for name in COMMAND.findall(page.read_text(encoding="utf-8"))}
    assert {"demo", "test", "check", "bench"} <= targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_every_example_is_listed() -> None:
    examples = {
        path.relative_to(ROOT).as_posix() for path in (ROOT / "examples").glob("*/README.md")
    }
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    assert {path for path in examples if f"](../{path})" not in index} == set()
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert set(re.findall(r": (examples/\S+)$", navigation, re.MULTILINE)) == examples


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = [link for link in LINK.findall(text) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []
