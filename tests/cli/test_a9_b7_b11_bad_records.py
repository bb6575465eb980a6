"""The output of `penstock run` about dead letter queues and bad records."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.log import Log, RecordColumns

APP = '''
from penstock import Serdes, StreamsBuilder, StreamsConfig

text = Serdes.string()
config = StreamsConfig(application_id="app", default_key_serde=text, default_value_serde=text)
builder = StreamsBuilder()

def shout(value):
    if value == "bad":
        raise ValueError("too\\nbad")
    return "x" * 2_000_000 if value == "big" else value.upper()

builder.stream("in").map_values(shout, name="shouted").to("out", name="sink")
'''
QUEUE = ("--set", "errors.dead.letter.queue.topic.name=dead")
SKIP = ("--set", "processing.exception.handler=continue")


@pytest.fixture(autouse=True)
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "bad_app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "")
    yield
    sys.modules.pop("bad_app", None)


def once(penstock: Any, *arguments: object) -> Any:
    return penstock("run", "bad_app.py", "--once", "--master", "inline", *arguments)


def send(log: Log, *values: bytes) -> None:
    log.create_topic("in")
    log.append("in", 0, RecordColumns([None] * len(values), values))


def test_missing_dead_letter_topic_is_reported_at_start(penstock, log: Log, path: Path) -> None:
    send(log)
    log.create_topic("out")
    ran = once(penstock, *QUEUE)
    assert (ran.code, ran.err) == (1, (
        "penstock: error: Topic 'dead' does not exist. Create it with:\n"
        f"  penstock topics create dead --log {path}\n"
    ))


def test_create_topics_creates_the_dead_letter_topic(penstock, log: Log) -> None:
    send(log, b"bad")
    ran = once(penstock, *QUEUE, *SKIP, "--create-topics", 2)
    assert ran.code == 0, ran.err
    assert "Created topic 'dead'." in ran.err
    assert log.topic("dead").partitions == 2
    assert sum(len(batch) for n in range(2) for batch in log.read("dead", n, 0)) == 1


def test_first_skipped_record_has_a_line_and_the_others_a_summary(penstock, log: Log) -> None:
    send(log, b"a", b"bad", b"b", *[b"bad"] * 1_200)
    ran = once(penstock, *SKIP, "--create-topics", 1)
    assert ran.code == 0, ran.err
    place = "topic 'in', partition 0, offset 1; processor 'shouted', task 0_0"
    lines = [line for line in ran.err.splitlines() if not line.startswith(("app:", "Created"))]
    assert [line.partition("(the last")[0] for line in lines] == [
        "WARNING penstock.handlers: Skipping a record that cannot be processed: ValueError: "
        f"too bad ({place}).",
        "WARNING penstock.handlers: Skipping a record that cannot be processed: 1,200 more of "
        "topic 'in' with ValueError ",
    ]


def test_oversized_output_is_reported_once_and_blames_the_sink(penstock, log: Log) -> None:
    send(log, b"a", b"big")
    ran = once(penstock, "--create-topics", 1)
    assert ran.code == 1
    assert ran.err[ran.err.index("penstock: error:"):] == (
        "penstock: error: Application 'app' failed: NotSentException: A record for topic out has "
        "2000000 bytes; the topic accepts at most 1048588 (max.message.bytes).\n"
        "  processor: sink\n  task:      0_0\n  topic:     in\n  partition: 0\n  offset:    1\n\n"
        "The batch was not committed. To skip records like this one, set "
        "production.exception.handler=continue.\n"
    )


def test_processing_handler_is_not_asked_about_an_output_that_cannot_be_sent(
    penstock, log: Log
) -> None:
    send(log, b"big")
    ran = once(penstock, *SKIP, "--create-topics", 1)
    assert ran.code == 1
    assert "processor: sink" in ran.err
    ran = once(penstock, "--set", "production.exception.handler=continue")
    assert ran.code == 0
    assert ran.err.count("Skipping a record for topic 'out': NotSentException") == 1
