"""RETRY of the production handler: the records are processed again while the error may pass."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from engine.instances import CreateStreams, received, send, until
from penstock import Response, Serdes, StreamsBuilder, Topology
from penstock.errors import NotSentException, RetryRequestedException
from penstock.log import Log

TEXT = Serdes.string()
MESSAGE = "Topic late does not exist. Create it with 'penstock topics create late'."


def to_a_later_topic() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).to(
        lambda key, value, context: "late", key=TEXT, value=TEXT, name="sink"
    )
    return builder.build()


def retry(context: Any, record: Any, exception: Exception) -> Response:
    return Response.retry()


@pytest.mark.parametrize("handler", ["fail", retry], ids=["default", "function"])
def test_output_is_written_once_the_topic_exists(
    log: Log, create_streams: CreateStreams, caplog: pytest.LogCaptureFixture, handler: Any
) -> None:
    send(log, "a")
    streams = create_streams(to_a_later_topic(), production_exception_handler=handler)
    with caplog.at_level(logging.WARNING):
        streams.start()
        until(lambda: "is retried: sink: Topic late" in caplog.text)
    assert MESSAGE in caplog.text
    log.create_topic("late")
    streams.run_until_caught_up(60)
    assert [value for batch in log.read("late", 0, 0) for value in batch.columns().values] == [b"a"]


@pytest.mark.parametrize("execution", ["batch", "continuous"])
@pytest.mark.parametrize("task_timeout_ms", [0, 500])
def test_retries_end_after_the_task_timeout(
    log: Log, create_streams: CreateStreams, execution: Any, task_timeout_ms: int
) -> None:
    send(log, "a")
    streams = create_streams(
        to_a_later_topic(), task_timeout_ms=task_timeout_ms, execution=execution
    )
    with pytest.raises(RetryRequestedException) as caught:
        streams.run_until_caught_up(60)
    assert MESSAGE in str(caught.value)
    assert (caught.value.processor, caught.value.topic, caught.value.offset) == ("sink", "in", 0)
    assert isinstance(caught.value.__cause__, NotSentException)


def test_retry_of_an_error_that_does_not_pass_means_fail(
    log: Log, create_streams: CreateStreams, caplog: pytest.LogCaptureFixture
) -> None:
    log.alter_topic("out", {"max.message.bytes": "10"})
    send(log, "a" * 100)
    streams = create_streams(production_exception_handler=retry)
    with pytest.raises(Exception, match=r"max\.message\.bytes") as caught:
        streams.run_until_caught_up(60)
    assert not isinstance(caught.value, RetryRequestedException)
    assert "returned RETRY for an error that does not pass. It means FAIL." in caplog.text
    assert received(log) == []
