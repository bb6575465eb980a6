"""The documentation is true: code runs, commands print the shown output, links exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
TESTING = ROOT / "docs" / "testing.md"
TOUR = ROOT / "docs" / "tour.md"
TIME = ROOT / "docs" / "time.md"
FROM_KAFKA_STREAMS = ROOT / "docs" / "from-kafka-streams.md"
DASHBOARD = ROOT / "docs" / "dashboard.md"
RUNNING = ROOT / "docs" / "running.md"
QUERIES = ROOT / "docs" / "queries.md"
SERDES = ROOT / "docs" / "serdes.md"
SPARK_DATA = ROOT / "docs" / "spark-data.md"
QUIET_PAGES = (
    "streams-and-tables.md", "windows.md", "joins.md", "joining.md", "from-faust.md",
    "from-structured-streaming.md",
)
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#]+)[^)]*\)")
COMMAND = re.compile(r"(?:^|`)make ([\w-]+)", re.MULTILINE)
PAGES = sorted([
    README, ROOT / "ARCHITECTURE.md",
    *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md"),
])


def code(page: Path) -> str:
    """The Python blocks of a page as one file, with the same line numbers."""
    file = ""
    text = page.read_text(encoding="utf-8")
    for block in BLOCK.finditer(text):
        file += "\n" * (text.count("\n", 0, block.start(1)) - file.count("\n")) + block[1]
    return file


def written(page: Path, folder: Path) -> Path:
    file = folder / "tour.py"
    file.write_text(code(page), encoding="utf-8")
    return file


def run(*arguments: str | Path, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True, text=True, check=False, timeout=timeout_s,
    )


def test_readme_code_runs_without_output(tmp_path: Path) -> None:
    ran = run("-W", "error", written(README, tmp_path))
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_code_of_the_tour_runs_without_output(tmp_path: Path) -> None:
    ran = run("-W", "error", written(TOUR, tmp_path))
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_code_of_the_page_about_time_runs(tmp_path: Path) -> None:
    ran = run("-W", "error", written(TIME, tmp_path))
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr


def test_code_for_users_of_kafka_streams_runs(tmp_path: Path) -> None:
    ran = run("-W", "error", written(FROM_KAFKA_STREAMS, tmp_path))
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_code_of_the_dashboard_page_runs(tmp_path: Path) -> None:
    ran = run("-W", "error", written(DASHBOARD, tmp_path))
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_code_of_the_testing_page_runs(tmp_path: Path) -> None:
    # The page shows errors, which are logged.
    ran = run("-W", "error", written(TESTING, tmp_path))
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr


def test_code_of_the_running_page_runs(tmp_path: Path) -> None:
    ran = run("-W", "error", written(RUNNING, tmp_path))
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_code_of_the_queries_page_runs(tmp_path: Path) -> None:
    ran = run("-W", "error", written(QUERIES, tmp_path))
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_code_of_the_serdes_page_runs(tmp_path: Path) -> None:
    pytest.importorskip("fastavro", reason="needs penstock[registry]")
    ran = run("-W", "error", written(SERDES, tmp_path))
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@pytest.mark.spark
@pytest.mark.slow
def test_code_of_the_spark_data_page_runs(tmp_path: Path) -> None:
    # Spark logs to standard error.
    ran = run(written(SPARK_DATA, tmp_path), timeout_s=600)
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr


@pytest.mark.parametrize("name", QUIET_PAGES)
def test_code_of_a_page_runs_without_output(name: str, tmp_path: Path) -> None:
    ran = run("-W", "error", written(ROOT / "docs" / name, tmp_path))
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_code_of_every_page_is_run_by_a_test() -> None:
    tests = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")
    )
    has_code = re.compile(r"^```(?:python|console)$", re.MULTILINE)
    pages = [page.name for page in (ROOT / "docs").glob("*.md")
             if has_code.search(page.read_text(encoding="utf-8"))]
    assert len(pages) > 15
    assert [name for name in pages if f'"{name}"' not in tests] == []


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
    (block,) = CONSOLE.findall(README.read_text(encoding="utf-8"))
    script = "".join(line[2:] for line in block.splitlines(keepends=True) if line[:2] == "$ ")
    folder = str(Path(sys.executable).parent)
    ran = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, text=True, check=False, timeout=180,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"},
    )
    assert ran.stdout == "".join(
        line for line in block.splitlines(keepends=True) if line[:2] != "$ "
    )


def test_tour_covers_every_feature_and_asserts() -> None:
    text = code(TOUR)
    for part in ("word_count()", ".suppress(", "prices.join(", "context.schedule(", "def test_"):
        assert part in text
    blocks = BLOCK.findall(TOUR.read_text(encoding="utf-8"))
    assert [block for block in blocks[1:] if "assert " not in block] == []


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = {name for page in PAGES for name in COMMAND.findall(page.read_text(encoding="utf-8"))}
    assert {"demo", "test", "check", "bench"} <= targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = [link for link in LINK.findall(text) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []
