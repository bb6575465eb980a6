"""The dead letter of a record that stops the application is written once, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.instances import PATIENCE_S, CreateStreams, received, send
from kafka.cluster import clear
from penstock import (
    ProcessingFailedException,
    Serdes,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    Topology,
)
from penstock.broker.cluster import ClusterStatus
from penstock.engine.exception_handler import StreamThreadExceptionResponse
from penstock.engine.worker.worker import Worker
from penstock.log import Log, open_log

TEXT = Serdes.string()


def shouting(*, repaired: bool = False) -> Topology:
    def shout(value: str) -> str:
        if value == "KABOOM" and not repaired:
            raise ValueError("kaboom")
        return value.upper()

    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).map_values(shout, name="shouted").to(
        "out", key=TEXT, value=TEXT
    )
    return builder.build()


def letters(log: Log) -> list[tuple[Any, dict[str, Any]]]:
    return [
        (value, dict(headers)) for batch in log.read("dead", 0, 0)
        for columns in [batch.columns()]
        for value, headers in zip(columns.values, columns.headers or (), strict=True)
    ]


def run(create_streams: CreateStreams, *, repaired: bool = False, **settings: Any) -> None:
    with create_streams(
        shouting(repaired=repaired), errors_dead_letter_queue_topic_name="dead", **settings
    ) as streams:
        streams.run_until_caught_up(60)


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_dead_letter_is_written_without_the_batch(
    log: Log, create_streams: CreateStreams, guarantee: str
) -> None:
    log.create_topic("dead")
    send(log, "value-1", "KABOOM", "value-2")
    with pytest.raises(ProcessingFailedException, match="kaboom"):
        run(create_streams, processing_guarantee=guarantee)
    ((value, headers),) = letters(log)
    assert value == b"KABOOM"
    assert headers["__streams.errors.topic"] == b"in"
    assert headers["__streams.errors.offset"] == b"1"
    assert received(log) == []


def test_restart_does_not_write_the_dead_letter_again(
    log: Log, create_streams: CreateStreams, caplog: pytest.LogCaptureFixture
) -> None:
    log.create_topic("dead")
    send(log, "value-1", "KABOOM", "value-2")
    for _ in range(3):
        with pytest.raises(ProcessingFailedException):
            run(create_streams)
    assert len(letters(log)) == 1
    assert "has the record at topic 'in', partition 0, offset 1 already" in caplog.text
    run(create_streams, repaired=True)
    assert received(log) == [b"VALUE-1", b"KABOOM", b"VALUE-2"]
    send(log, "KABOOM")
    with pytest.raises(ProcessingFailedException):
        run(create_streams)
    assert [headers["__streams.errors.offset"] for _, headers in letters(log)] == [b"1", b"3"]


def test_replaced_thread_does_not_write_the_dead_letter_again(
    log: Log, create_streams: CreateStreams
) -> None:
    log.create_topic("dead")
    send(log, "KABOOM")
    failures: list[BaseException] = []

    def handle(error: BaseException) -> StreamThreadExceptionResponse:
        failures.append(error)
        return (
            StreamThreadExceptionResponse.SHUTDOWN_CLIENT if len(failures) == 3
            else StreamThreadExceptionResponse.REPLACE_THREAD
        )

    streams = create_streams(shouting(), errors_dead_letter_queue_topic_name="dead")
    streams.set_uncaught_exception_handler(handle)
    with pytest.raises(ProcessingFailedException):
        streams.run_until_caught_up(60)
    assert len(failures) == 3
    assert len(letters(log)) == 1


def test_dead_letters_of_skipped_records_are_part_of_the_batch(
    log: Log, create_streams: CreateStreams
) -> None:
    log.create_topic("dead")
    send(log, "value-1", "KABOOM")
    run(create_streams, processing_exception_handler="continue")
    assert [value for value, _ in letters(log)] == [b"KABOOM"]
    assert received(log) == [b"VALUE-1"]


def test_worker_that_publishes_writes_the_outputs_before_the_failure(
    log: Log, create_streams: CreateStreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Kafka with at-least-once processing."""
    log.create_topic("dead")
    send(log, "value-1", "KABOOM", "value-2")
    run_lane = Worker.run_lane

    def publishing(worker: Worker, *arguments: Any) -> Any:
        worker.publishes = True
        return run_lane(worker, *arguments)

    monkeypatch.setattr(Worker, "run_lane", publishing)
    with pytest.raises(ProcessingFailedException, match="kaboom"):
        run(create_streams, execution="batch")
    assert received(log) == [b"VALUE-1"]
    assert [value for value, _ in letters(log)] == [b"KABOOM"]


@pytest.mark.kafka
@pytest.mark.slow
def test_at_least_once_on_kafka_writes_the_outputs_before_the_failure(
    penstock_broker: ClusterStatus, tmp_path: Path
) -> None:
    with open_log(clear(penstock_broker.address)) as log:
        for topic in ("in", "out", "dead"):
            log.create_topic(topic)
        send(log, "value-1", "KABOOM", "value-2")
        config = StreamsConfig(
            application_id="app", log=log.address, state_dir=tmp_path / "state",
            errors_dead_letter_queue_topic_name="dead", processing_guarantee="at_least_once",
        )
        with (
            pytest.raises(ProcessingFailedException, match="kaboom"),
            Streams(shouting(), config, master="inline") as streams,
        ):
            streams.run_until_caught_up(PATIENCE_S)
        assert received(log) == [b"VALUE-1"]
        assert [value for value, _ in letters(log)] == [b"KABOOM"]
