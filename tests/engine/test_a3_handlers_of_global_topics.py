"""The deserialization handler decides about the records of global topics."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.harness import Application, config_of
from engine.instances import PATIENCE_S, CreateStreams, send
from penstock import (
    ErrorHandlerContext,
    ProcessingFailedException,
    Serdes,
    State,
    StreamsBuilder,
    Topology,
)
from penstock.handlers import Response
from penstock.log import Log, RecordColumns
from penstock.record import TaskId
from penstock.testing import TopologyTestDriver

LONG = Serdes.long()
ONE = (1).to_bytes(8, "big")
TOPICS = {"in": 1, "rates": 2, "out": 1, "dead": 1}


def topology(extractor: Callable[[Any, int], int] | None = None) -> Topology:
    builder = StreamsBuilder()
    rates = builder.global_table(
        "rates", key=Serdes.string(), value=LONG, store="rates", timestamp=extractor
    )
    builder.stream("in").left_join(
        rates, lambda key, value: value, lambda value, rate: f"{value}={rate}"
    ).to("out")
    return builder.build()


def feed(app: Application, partition: int, *values: bytes) -> None:
    keys = [f"r{partition}{number}".encode() for number in range(len(values))]
    app.log.append("rates", partition, RecordColumns(keys, list(values), [5] * len(values)))


def results(app: Application) -> list[str]:
    return [value for _, value, _ in app.texts("out")]


def test_fail_stops_the_batch_with_the_position_of_the_record(tmp_path: Path) -> None:
    with Application(topology(), tmp_path, TOPICS) as app:
        feed(app, 1, ONE, b"garbage")
        app.send("in", ("k", "r10", 10))
        with pytest.raises(ProcessingFailedException) as raised:
            app.run()
        error = raised.value
        assert (error.topic, error.partition, error.offset) == ("rates", 1, 1)
        assert "topic rates, partition 1, offset 1 cannot be deserialized" in str(error)
        assert "deserialization.exception.handler=continue" in str(error)
        assert results(app) == []


def test_fail_is_repeated_after_a_restart_until_the_handler_continues(tmp_path: Path) -> None:
    with Application(topology(), tmp_path, TOPICS) as app:
        feed(app, 0, ONE)
        app.send("in", ("k", "r00", 10))
        app.run()
        # The unreadable record is the last one of its partition, and not read by a restore.
        feed(app, 0, b"garbage")
        app.send("in", ("k", "r00", 20))
        for _ in range(2):
            with pytest.raises(ProcessingFailedException, match="partition 0, offset 1"):
                app.run()
            app.crash()
        app.config = app.config.with_(deserialization_exception_handler="continue")
        app.crash()
        app.run()
        assert results(app) == ["r00=1", "r00=1"]


def test_continue_skips_logs_and_counts_the_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_of(deserialization_exception_handler="continue")
    with Application(topology(), tmp_path, TOPICS, config=config) as app:
        feed(app, 0, b"garbage", ONE)
        feed(app, 1, b"garbage")
        app.send("in", ("k", "r00", 10), ("k", "r01", 11))
        with caplog.at_level(logging.WARNING):
            app.run()
        assert results(app) == ["r00=None", "r01=1"]
        assert sum(outcome.global_dropped for outcome in app.outcomes) == 2
        # The first one. The number of the others is logged later.
        assert caplog.text.count("topic 'rates', partition ") == 1
        assert "Skipping a record that cannot be deserialized: " in caplog.text
        app.send("in", ("k", "r00", 20))
        app.run()
        assert sum(outcome.global_dropped for outcome in app.outcomes) == 0


def test_handler_of_the_user_gets_the_position_and_the_bytes(tmp_path: Path) -> None:
    seen = tmp_path / "seen"

    def skip(context: ErrorHandlerContext, record: Any, exception: Exception) -> Response:
        assert context.task_id == TaskId(-1, -1)
        assert (context.source_raw_key, context.source_raw_value) == (b"r00", b"garbage")
        seen.write_text(f"{context.topic} {context.partition} {context.offset} {record.timestamp}")
        return Response.resume()

    config = config_of(deserialization_exception_handler=skip)
    with Application(topology(), tmp_path, TOPICS, config=config) as app:
        feed(app, 0, b"garbage")
        app.send("in", ("k", "r00", 10))
        app.run()
        assert results(app) == ["r00=None"]
    assert seen.read_text() == "rates 0 0 5"


def test_dead_letter_of_a_global_topic_is_reported_but_not_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_of(
        deserialization_exception_handler="continue", errors_dead_letter_queue_topic_name="dead"
    )
    with Application(topology(), tmp_path, TOPICS, config=config) as app:
        feed(app, 0, b"garbage")
        app.send("in", ("k", "r00", 10))
        app.run()
        assert results(app) == ["r00=None"]
        assert app.rows("dead") == []
    assert "not written to the dead letter queue 'dead'" in caplog.text


def test_timestamp_extractor_is_not_called_for_a_global_topic(tmp_path: Path) -> None:
    def fail(record: Any, partition_time: int) -> int:
        raise ValueError("called")

    with Application(topology(fail), tmp_path, TOPICS) as app:
        feed(app, 0, ONE)
        app.send("in", ("k", "r00", 10))
        app.run()
        assert results(app) == ["r00=1"]


def test_application_stops_in_state_error_and_counts_skipped_records(
    create_streams: CreateStreams, log: Log
) -> None:
    log.create_topic("rates", 1)
    log.append("rates", 0, RecordColumns([b"r"], [b"garbage"]))
    send(log, "r")
    failing = create_streams(topology())
    with pytest.raises(ProcessingFailedException, match="topic rates, partition 0, offset 0"):
        failing.run_until_caught_up(PATIENCE_S)
    assert failing.state is State.ERROR
    with create_streams(topology(), deserialization_exception_handler="continue") as streams:
        streams.run_until_caught_up(PATIENCE_S)
        dropped = {
            name.tag("task-id"): value for name, value in streams.metrics().items()
            if name.name == "dropped-records-total"
        }
        assert dropped["-1_-1"] == 1


def test_test_driver_skips_unreadable_records_as_kafkas_does() -> None:
    with TopologyTestDriver(topology(), config_of()) as driver:
        rates = driver.create_input_topic("rates", Serdes.string(), Serdes.string())
        rates.pipe_input("r", "garbage")
        driver.create_input_topic("in", Serdes.string(), Serdes.string()).pipe_input("k", "r")
        out = driver.create_output_topic("out", Serdes.string(), Serdes.string())
        assert out.read_value() == "r=None"
        assert driver.metrics()["dropped-records-total"] == 1
