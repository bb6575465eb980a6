"""A store that gets another topic and another name at once is refused; the advice is exact."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.log import Log, RecordColumns

APPLICATION = """
from penstock import Serdes, StreamsBuilder

TEXT = Serdes.string()

def topology():
    builder = StreamsBuilder()
    words = builder.stream("{topic}", key=TEXT, value=TEXT)
    counts = words.group_by_key().count({options})
    counts.to_stream().to("out", key=TEXT, value=Serdes.long())
    return builder.build()
"""
UPGRADE = ("upgrade", "replaced_app.py", "--application-id", "app")
Run = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path, log: Log, penstock: Any, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a version of the application on one more record of its topic."""
    monkeypatch.chdir(tmp_path)
    for topic in ("in", "in2", "out"):
        log.create_topic(topic, 1)

    def start(topic: str, options: str) -> Any:
        (tmp_path / "replaced_app.py").write_text(APPLICATION.format(topic=topic, options=options))
        log.append(topic, 0, RecordColumns([b"k"], [b"v"]))
        return penstock(
            "run", "replaced_app.py", "--application-id", "app", "--once", "--quiet",
            "--master", "inline", "--set", "statestore.cache.max.bytes=0",
            "--set", "auto.offset.reset=earliest",
        )

    return start


@pytest.fixture
def refused(run: Run) -> str:
    """The error of a version whose topic and store have other names."""
    assert run("in", "store='a'").code == 0
    ran = run("in2", "store='b'")
    assert ran.code == 1
    error: str = ran.err
    assert "Store 'a' was removed, and 'b' may continue it." in error
    return error


def counts(log: Log) -> list[int]:
    return [
        int.from_bytes(value or b"")
        for batch in log.read("out", 0, 0) for value in batch.columns().values
    ]


def test_refused_start_changes_nothing(run: Run, refused: str, log: Log) -> None:
    assert run("in", "store='a'").code == 0
    assert counts(log) == [1, 2]


def test_old_store_name_keeps_the_rows(run: Run, refused: str, log: Log) -> None:
    (code,) = re.findall(r"its old store name: (store='a');", refused)
    assert run("in2", code).code == 0
    # The record of the refused version, and one more.
    assert counts(log) == [1, 2, 3]


@pytest.mark.parametrize(("option", "expected"), [("--keep", [1, 2, 3]), ("--drop", [1, 1, 2])])
def test_decision_of_the_user_is_carried_out(
    run: Run, refused: str, log: Log, penstock: Any, option: str, expected: list[int]
) -> None:
    (advice,) = re.findall(rf"({option} \S+?)[.;]", refused)
    plan = penstock(*UPGRADE, "--plan")
    assert plan.code == 1
    assert [line.split() for line in plan.out.splitlines()[:2]] == [
        ["STORE", "BECOMES", "ROWS", "RECORDS"], ["a", "b", "unclear", "1"],
    ]
    assert penstock(*UPGRADE, "--yes").code == 1
    assert penstock(*UPGRADE, "--yes", *shlex.split(advice)).code == 0
    assert run("in2", "store='b'").code == 0
    assert counts(log) == expected
