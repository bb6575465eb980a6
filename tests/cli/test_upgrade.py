"""`penstock upgrade`: the plan, the upgrade, and their exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.terminal import Terminal
from penstock.log import Log, RecordColumns

APPLICATION = """
import os
from penstock import Serdes, StreamsBuilder

TEXT = Serdes.string()

def topology():
    builder = StreamsBuilder()
    words = builder.stream("in", key=TEXT, value=TEXT)
    {branch}
    counts = words.group_by_key().count({options})
    counts.to_stream().to("out", key=TEXT, value=Serdes.long())
    return builder.build()
"""
OLD = "KSTREAM-AGGREGATE-STATE-STORE-0000000001"
NEW = "KSTREAM-AGGREGATE-STATE-STORE-0000000002"
COMMAND = ("upgrade", "app.py", "--application-id", "app")


def write(tmp_path: Path, *, branch: str = "", options: str = "") -> None:
    (tmp_path / "app.py").write_text(APPLICATION.format(branch=branch, options=options))


def run(penstock: Any, log: Log) -> Any:
    log.append("in", 0, RecordColumns([b"a"], [b"v"]))
    return penstock(
        "run", "app.py", "--application-id", "app", "--once", "--quiet", "--master", "inline",
        "--set", "statestore.cache.max.bytes=0",
    )


@pytest.fixture(autouse=True)
def application(
    tmp_path: Path, log: Log, penstock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An application that has counted one word, and then gets another branch."""
    monkeypatch.chdir(tmp_path)
    for topic in ("in", "out"):
        log.create_topic(topic, 1)
    write(tmp_path)
    assert run(penstock, log).code == 0
    write(tmp_path, branch="words.filter(lambda value: True)")


def test_plan_shows_the_stores_and_the_code_that_keeps_their_names(penstock: Any) -> None:
    ran = penstock(*COMMAND, "--plan")
    assert ran.code == 1
    assert [line.split() for line in ran.out.splitlines()[:2]] == [
        ["STORE", "BECOMES", "ROWS", "RECORDS"], [OLD, NEW, "moved", "1"],
    ]
    assert ran.out.splitlines()[2:] == [
        "To keep the old names instead, write in the topology:",
        f"  step 'KSTREAM-AGGREGATE-0000000003': store='{OLD}'",
    ]
    assert "cannot start with this topology yet" in ran.err


def test_plan_as_json(penstock: Any) -> None:
    ran = penstock(*COMMAND, "--plan", "--json")
    assert ran.code == 1
    (row,) = map(json.loads, ran.out.splitlines())
    assert row == {
        "kind": "store", "store": OLD, "becomes": [NEW], "outcome": "moved", "records": 1,
        "step": "KSTREAM-AGGREGATE-0000000003", "code": f"store='{OLD}'",
    }


def test_code_of_the_plan_keeps_the_rows(
    tmp_path: Path, penstock: Any, log: Log
) -> None:
    code = re.findall(r"^  step '[^']+': (.+)$", penstock(*COMMAND, "--plan").out, re.MULTILINE)
    write(tmp_path, branch="words.filter(lambda value: True)", options=code[0])
    ran = penstock(*COMMAND, "--plan")
    assert (ran.code, ran.err) == (0, "The application can start as it is. Nothing was changed.\n")
    assert run(penstock, log).code == 0
    assert _counts(log) == [1, 2]


def test_upgrade_moves_the_rows(penstock: Any, log: Log) -> None:
    assert run(penstock, log).code == 1
    ran = penstock(*COMMAND, "--yes")
    assert (ran.code, ran.err) == (0, "Done.\n")
    assert run(penstock, log).code == 0
    assert _counts(log) == [1, 2, 3]
    ran = penstock(*COMMAND, "--yes")
    assert (ran.code, ran.err) == (0, "The application can start as it is. Nothing was changed.\n")


def test_upgrade_asks_first(penstock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(Terminal, "confirm", lambda terminal, question: asked.append(question))
    ran = penstock(*COMMAND)
    assert asked == ["Upgrade application 'app'?"]
    assert ran.code == 1
    assert "Nothing was changed." in ran.err
    assert penstock(*COMMAND, "--plan").code == 1


def test_unclear_store_needs_a_decision(tmp_path: Path, penstock: Any, log: Log) -> None:
    write(tmp_path, options=f"store='{OLD}'")
    assert run(penstock, log).code == 0
    write(tmp_path, options="store='counts'")
    ran = penstock(*COMMAND, "--yes")
    assert ran.code == 1
    assert f"--keep {OLD}=counts" in ran.err
    assert penstock(*COMMAND, "--plan", "--keep", f"{OLD}=counts").code == 1
    assert penstock(*COMMAND, "--yes", "--keep", f"{OLD}=counts").code == 0
    assert run(penstock, log).code == 0
    assert _counts(log) == [1, 2, 3]


def test_dropped_rows_are_deleted(penstock: Any, log: Log) -> None:
    assert penstock(*COMMAND, "--yes", "--drop", OLD).code == 0
    assert all(topic.name != f"app-{OLD}-changelog" for topic in log.topics())
    assert run(penstock, log).code == 0
    assert _counts(log) == [1, 1]


def test_missing_log_is_not_created(tmp_path: Path, penstock: Any) -> None:
    ran = penstock(*COMMAND, "--plan", "--log", "other.db")
    assert ran.code == 1
    assert "The log 'other.db' does not exist." in ran.err
    assert not (tmp_path / "other.db").exists()


def _counts(log: Log) -> list[int]:
    return [
        int.from_bytes(value or b"")
        for batch in log.read("out", 0, 0) for value in batch.columns().values
    ]
