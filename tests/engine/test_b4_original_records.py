"""Errors after a repartition name the record of the log that caused them."""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest

from engine.harness import Application, config_of, topology_of
from penstock import PunctuationType, Record, Response, Serde, Serdes, Suppressed
from penstock.errors import ProcessingFailedException
from penstock.processors.api import Processor

TEXT = Serdes.string()


def fail_on_bad(value: Any) -> Any:
    if "bad" in str(value):
        raise ValueError("bad")
    return value


def run(define: Any, directory: Path, **settings: Any) -> ProcessingFailedException:
    """Send good and bad records to the second partition; return the failure."""
    config = config_of(**settings)
    with Application(
        topology_of(define), directory, {"in": 2, "out": 1}, config=config
    ) as app:
        app.append("in", 1, [("k", "good", 1), ("k", "fine", 2)])
        app.run()
        app.append("in", 1, [("k", "good", 3), ("k", "bad", 4), ("k", "good", 5)])
        with pytest.raises(ProcessingFailedException) as caught:
            app.run()
        return caught.value


def position(error: ProcessingFailedException) -> tuple[str | None, int, int]:
    return error.topic, error.partition, error.offset


def test_error_after_a_repartition_names_the_source_record(tmp_path: Path) -> None:
    error = run(lambda builder: (
        builder.stream("in").select_key(lambda k, v: v).repartition(name="moved")
        .map_values(fail_on_bad).to("out")
    ), tmp_path)
    assert position(error) == ("in", 1, 3)
    assert "topic=in, partition=1, offset=3" in str(error)
    assert "repartition" not in str(error)


@pytest.mark.parametrize("cache", [0, 1_000_000], ids=["no cache", "cache"])
def test_error_after_two_repartitions_names_the_source_record(tmp_path: Path, cache: int) -> None:
    error = run(lambda builder: (
        builder.stream("in").group_by(lambda k, v: v)
        .aggregate(lambda: "", lambda k, v, total: v).to_stream()
        .select_key(lambda k, v: v + "!").repartition(name="again")
        .map_values(fail_on_bad).to("out")
    ), tmp_path, statestore_cache_max_bytes=cache)
    assert position(error) == ("in", 1, 3)


def test_output_that_cannot_be_serialized_names_the_source_record(tmp_path: Path) -> None:
    failing = Serde.of(lambda value: fail_on_bad(value).encode(), bytes.decode)
    error = run(lambda builder: (
        builder.stream("in").select_key(lambda k, v: v).repartition(name="moved")
        .to("out", value=failing)
    ), tmp_path)
    assert position(error) == ("in", 1, 3)
    assert "Source record: topic in, partition 1, offset 3" in str(error)


def test_repartitioned_record_that_cannot_be_read_names_the_source_record(tmp_path: Path) -> None:
    failing = Serde.of(str.encode, lambda data: fail_on_bad(data.decode()))
    error = run(lambda builder: (
        builder.stream("in").select_key(lambda k, v: v)
        .repartition(name="moved", key=TEXT, value=failing).to("out")
    ), tmp_path)
    assert position(error) == ("in", 1, 3)
    assert (
        "The value of a record of topic app-moved-repartition, sent because of a record of topic "
        "in, partition 1, offset 3, cannot be deserialized: bad. The application has written this "
        "topic itself, with another value serde or an earlier schema"
    ) in str(error)
    assert error.handler_setting is None


def test_handler_and_log_line_name_the_source_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topology = topology_of(lambda builder: (
        builder.stream("in").select_key(lambda k, v: v).repartition(name="moved")
        .map_values(fail_on_bad, name="checked").to("out")
    ))
    config = config_of(processing_exception_handler="continue")
    with (
        caplog.at_level(logging.WARNING),
        Application(topology, tmp_path, {"in": 2, "out": 1}, config=config) as app,
    ):
        app.append("in", 1, [("k", "good", 3), ("k", "bad", 4)])
        app.run()
    assert (
        "ValueError: bad (topic 'in', partition 1, offset 1; processor 'checked', task 1_"
    ) in caplog.text


class Ticker(Processor[str, str]):
    def init(self, context: Any) -> None:
        self.ctx = context
        context.schedule(1, PunctuationType.STREAM_TIME, self.tick)

    def tick(self, now: int) -> None:
        self.ctx.forward(Record("k", "bad" if now == 4 else "good", now))

    def process(self, record: Any) -> None: ...


def test_output_of_a_punctuation_has_no_source_record(tmp_path: Path) -> None:
    error = run(lambda builder: (
        builder.stream("in").process(Ticker).repartition(name="moved")
        .map_values(fail_on_bad).to("out")
    ), tmp_path)
    assert position(error) == (None, -1, -1)


def test_record_from_a_buffer_behind_a_repartition_names_no_offset(tmp_path: Path) -> None:
    error = run(lambda builder: (
        builder.stream("in").select_key(lambda k, v: "k").repartition(name="moved")
        .to_table(store="rows").suppress(Suppressed.until_time_limit(timedelta(0)))
        .map_values(fail_on_bad).to_stream().to("out")
    ), tmp_path)
    assert position(error) in ((None, -1, -1), ("in", 1, 3))


def test_context_of_a_handler_has_the_source_record(tmp_path: Path) -> None:
    Seen.contexts.clear()
    run(lambda builder: (
        builder.stream("in").select_key(lambda k, v: v).repartition(name="moved")
        .map_values(fail_on_bad).to("out")
    ), tmp_path, processing_exception_handler=Seen)
    assert [(each.topic, each.partition, each.offset) for each in Seen.contexts] == [("in", 1, 3)]


class Seen:
    contexts: ClassVar[list[Any]] = []

    def handle_error(self, context: Any, record: Any, exception: Exception) -> Response:
        self.contexts.append(context)
        return Response.fail()
