"""`make demo`: orders arrive while the application runs, and it stops after the last one."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from orders.follow import all_tables
from orders.screen import Screen, picture, table

from penstock.log import open_log

DEMO = Path(__file__).resolve().parents[2] / "examples" / "orders" / "demo.py"
MASTERS = ["inline", pytest.param("local[2]", marks=pytest.mark.spark)]


def command(*arguments: str) -> list[str]:
    return [sys.executable, str(DEMO), "--seconds", "1", "--rate", "120", *arguments]


@pytest.mark.slow
@pytest.mark.parametrize("master", MASTERS)
def test_demo_ends_and_its_sums_are_right(master: str) -> None:
    ran = subprocess.run(
        command("--master", master), capture_output=True, text=True, check=False, timeout=180
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    for part in (
        "120 orders of 3 stores will arrive, 120 per second.",
        "== running totals, revenue joined with the store's address\n",
        "1234 Street 1, City1 12345",
        "== general orders in windows of 15 s (grace 5 s), the newest three\n",
        "== general orders in windows of 60 s (grace 15 s), the newest four\n",
        "  120 orders, ",
        "  The tables agree with a plain sum over the orders.\n",
    ):
        assert part in ran.stdout
    assert "\x1b" not in ran.stdout


@pytest.mark.slow
def test_demo_redraws_the_screen_of_a_terminal() -> None:
    reader, writer = pty.openpty()
    process = subprocess.Popen(
        command("--master", "inline"), stdout=writer, stderr=subprocess.PIPE,
        env={**os.environ, "COLUMNS": "100", "LINES": "40"},
    )
    os.close(writer)
    seen = b""
    while True:
        try:
            data = os.read(reader, 65536)
        except OSError:
            break
        if not data:
            break
        seen += data
    os.close(reader)
    _, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, b"")
    assert seen.count(b"\x1b[H\x1b[2J") >= 2
    assert b"agree" in seen


@pytest.mark.slow
def test_log_that_has_the_topics_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with open_log(path) as log:
        log.create_topic("stores")
    ran = subprocess.run(
        command("--log", str(path)), capture_output=True, text=True, check=False, timeout=180
    )
    assert ran.returncode == 1
    assert ran.stderr.startswith("These topics exist in the log: stores.")
    with open_log(path) as log:
        assert [topic.name for topic in log.topics()] == ["stores"]


def test_empty_tables_are_shown(tmp_path: Path) -> None:
    with open_log(tmp_path / "log.db") as log:
        out = StringIO()
        screen = Screen(out)
        screen.show(picture(screen, "nothing yet", all_tables(log, "app")))
    assert out.getvalue().startswith("== nothing yet\n\n== running totals")


def test_numbers_are_aligned_and_have_commas() -> None:
    assert table(("name", "number"), [("a", 1234), ("bc", 5)]) == [
        "  name   number", "  ----   ------", "  a       1,234", "  bc          5",
    ]
