"""Dropped records are logged once at WARN with their position, then counted."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from engine.harness import Application, config_of, topology_of
from engine.instances import CreateStreams
from penstock import Serdes, StreamsBuilder, TimeWindows
from penstock.log import Log, RecordColumns
from penstock.record import RecordMetadata, TaskId
from penstock.task.drops import DropLog, DropNote, DropNotes
from penstock.testing import TopologyTestDriver

TEXT = Serdes.string()


def windowed(builder: StreamsBuilder) -> None:
    builder.stream("in").group_by_key().windowed_by(TimeWindows.of(10)).count(
        store="counts", name="counted"
    )


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [
        (record.levelno, record.getMessage()) for record in caplog.records
        if record.name == "penstock.task.drops"
    ]


@pytest.mark.parametrize("cache", [0, 1_000_000], ids=["no cache", "cache"])
def test_late_records_are_noted_once_per_batch(tmp_path: Path, cache: int) -> None:
    config = config_of(statestore_cache_max_bytes=cache)
    with Application(topology_of(windowed), tmp_path, {"in": 1}, config=config) as app:
        app.send("in", ("k", "a", 100), ("k", "b", 1), (None, "n", 100), ("k", "c", 2))
        app.run()
        (outcome,) = app.outcomes
    assert outcome.drops == (
        DropNote("counted", "dropped a record: expired window", logging.WARNING, 2,
                 RecordMetadata("in", 0, 1)),
        DropNote("counted", "dropped a record: null key", logging.WARNING, 1,
                 RecordMetadata("in", 0, 2)),
    )
    assert outcome.counters["dropped-records-total"] == 3


def test_application_logs_the_first_record_and_the_number_of_the_others(
    log: Log, create_streams: CreateStreams, caplog: pytest.LogCaptureFixture
) -> None:
    builder = StreamsBuilder()
    windowed(builder)
    log.append("in", 1, RecordColumns([b"k"] * 4, [b"v"] * 4, [100, 1, 2, 3]))
    streams = create_streams(builder.build())
    with caplog.at_level(logging.DEBUG, "penstock.task.drops"):
        streams.run_until_caught_up(60)
        streams.close(60)
    place = "topic 'in', partition 1, offset 1; task 0_1"
    assert lines(caplog) == [
        (logging.WARNING, f"counted dropped a record: expired window ({place})."),
        (logging.WARNING, "counted dropped a record: expired window: 2 more (the last batch from: "
         f"{place})."),
    ]


def drops_in_the_driver(define: Any, caplog: pytest.LogCaptureFixture, *rows: Any) -> Any:
    with (
        caplog.at_level(logging.DEBUG, "penstock.task.drops"),
        TopologyTestDriver(topology_of(define), config_of()) as driver,
    ):
        topic = driver.create_input_topic("in", TEXT, TEXT)
        for key, value, time in rows:
            topic.pipe_input(key, value, timestamp=time)
    return lines(caplog)


def test_out_of_order_update_of_a_table_is_logged_and_not_dropped(
    caplog: pytest.LogCaptureFixture
) -> None:
    def table(builder: StreamsBuilder) -> None:
        builder.table("in", store="rows", name="table")

    ((level, line),) = drops_in_the_driver(table, caplog, ("k", "a", 5), ("k", "b", 3))
    assert level == logging.WARNING
    assert "received an out-of-order update, which replaces a newer row (topic 'in'" in line


def test_negative_timestamp_is_logged_with_its_own_position(
    caplog: pytest.LogCaptureFixture
) -> None:
    def extracted(builder: StreamsBuilder) -> None:
        builder.stream("in", name="source", timestamp=lambda record, time: int(record.value))

    ((_, line),) = drops_in_the_driver(extracted, caplog, ("k", "1", 5), ("k", "-1", 5))
    assert line == (
        "source dropped a record: negative extracted timestamp (topic 'in', partition 0, "
        "offset 1; task 0_0)."
    )


def test_interval_limits_the_lines() -> None:
    now, caught = 0.0, []
    logger = logging.getLogger("penstock.task.drops")
    handler = logging.Handler()
    handler.emit = lambda record: caught.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        drops = DropLog(60.0, lambda: now)
        note = DropNote("node", "dropped a record: late", logging.WARNING, 1000,
                        RecordMetadata("in", 0, 7))
        for _ in range(10):
            drops.add(TaskId(0, 0), [note])
            drops.log_counts()
        assert len(caught) == 1
        now = 61.0
        drops.log_counts()
        assert caught[1:] == ["node dropped a record: late: 9,999 more (the last batch from: topic "
                              "'in', partition 0, offset 7; task 0_0)."]
        drops.log_counts()
        assert len(caught) == 2
        now = 122.0
        drops.log_counts()
        drops.add(TaskId(0, 0), [note._replace(records=1)])
        assert len(caught) == 3
    finally:
        logger.removeHandler(handler)


def test_skipped_records_are_counted_by_topic_and_class_of_error(
    caplog: pytest.LogCaptureFixture
) -> None:
    notes, drop_log = DropNotes(), DropLog()
    for topic, error in (
        ("a", ValueError("bad 1")), ("a", ValueError("bad 2")), ("a", KeyError("k")),
        ("b", ValueError("bad \udcff.")), ("a", ValueError("bad 3")),
    ):
        notes.add_error("node", "Skipping a record", error, RecordMetadata(topic, 0, 7))
    drop_log.add(TaskId(0, 0), notes.take())
    drop_log.log_counts(all_now=True)

    def place(topic: str) -> str:
        return f"topic '{topic}', partition 0, offset 7; processor 'node', task 0_0"

    assert caplog.messages == [
        f"Skipping a record: ValueError: bad 1 ({place('a')}).",
        f"Skipping a record: KeyError: 'k' ({place('a')}).",
        f"Skipping a record: ValueError: bad \\udcff ({place('b')}).",
        f"Skipping a record: 2 more of topic 'a' with ValueError (the last batch from: "
        f"{place('a')}).",
    ]
    assert {record.name for record in caplog.records} == {"penstock.handlers"}
