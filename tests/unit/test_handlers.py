from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from penstock.errors import SerializationException
from penstock.handlers import (
    DEAD_LETTER_QUEUE_TOPIC,
    DefaultProductionExceptionHandler,
    ErrorHandlerContext,
    LogAndContinueExceptionHandler,
    LogAndContinueProcessingExceptionHandler,
    LogAndFailProcessingExceptionHandler,
    ProducedRecord,
    Response,
    Result,
    SerializationExceptionOrigin,
    dead_letter_queue_record,
    make_deserialization_handler,
    make_processing_handler,
    make_production_handler,
)
from penstock.record import Headers, Record, TaskId
from penstock.timestamps import ConsumedRecord

CONTEXT = ErrorHandlerContext(
    topic="in", partition=0, offset=7, headers=Headers([("h", b"1"), ("n", None)]),
    processor_node_id="node", task_id=TaskId(0, 0), timestamp=5,
    source_raw_key=b"k", source_raw_value=b"v",
)
RAW = ConsumedRecord("in", 0, 7, 5, b"k", b"v", Headers())
SENT = ProducedRecord("out", None, 5, "k", "v")


def test_dead_letter_headers_describe_the_error_and_its_position() -> None:
    record = dead_letter_queue_record("dead", b"k", b"v", CONTEXT, SerializationException("bad"))
    assert record[:5] == ("dead", None, 5, b"k", b"v")
    assert [name for name, _ in record.headers] == [
        "h", "n", "__streams.errors.exception", "__streams.errors.message",
        "__streams.errors.stacktrace", "__streams.errors.topic", "__streams.errors.partition",
        "__streams.errors.offset",
    ]
    details = dict(record.headers)
    assert details["__streams.errors.exception"] == b"penstock.errors.SerializationException"
    assert details["__streams.errors.message"] == b"bad"
    assert details["__streams.errors.topic"] == b"in"
    assert details["__streams.errors.partition"] == b"0"
    assert details["__streams.errors.offset"] == b"7"


def test_dead_letter_without_a_message_and_a_source_record() -> None:
    context = ErrorHandlerContext(
        topic=None, partition=-1, offset=-1, headers=Headers(), processor_node_id="n",
        task_id=TaskId(0, 0), timestamp=5,
    )
    details = dict(dead_letter_queue_record("dead", None, None, context, ValueError()).headers)
    assert details["__streams.errors.exception"] == b"ValueError"
    assert details["__streams.errors.message"] is None
    assert details["__streams.errors.topic"] is None


def test_repr_of_the_context_contains_no_user_data() -> None:
    assert "b'v'" not in repr(CONTEXT)
    assert "'h'" not in repr(CONTEXT)


@pytest.mark.parametrize(("name", "result"), [("fail", Result.FAIL), ("continue", Result.RESUME)])
def test_names_select_built_in_handlers(name: str, result: Result) -> None:
    configs = {DEAD_LETTER_QUEUE_TOPIC: "dead"}
    error = ValueError("x")
    responses = (
        make_deserialization_handler(name, configs).handle_error(CONTEXT, RAW, error),
        make_processing_handler(name, configs).handle_error(CONTEXT, Record("k", "v", 5), error),
        make_production_handler(name, configs).handle_error(CONTEXT, SENT, error),
        make_production_handler(name, configs).handle_serialization_error(
            CONTEXT, SENT, error, SerializationExceptionOrigin.VALUE),
    )
    for response in responses:
        assert response.result is result
        (dead_letter,) = response.dead_letter_queue_records
        assert dead_letter[:5] == ("dead", None, 5, b"k", b"v")


def test_no_dead_letters_without_a_queue() -> None:
    response = make_processing_handler("continue", {}).handle_error(CONTEXT, None, ValueError())
    assert response == Response.resume()


def test_retriable_error_is_retried() -> None:
    class TimeoutError(Exception):
        retriable = True

    handler = DefaultProductionExceptionHandler()
    assert handler.handle_error(CONTEXT, SENT, TimeoutError()) == Response.retry()


def test_function_can_be_a_handler() -> None:
    def skip(context: ErrorHandlerContext, record: Any, exception: Exception) -> Response:
        return Response.resume()

    for make in (make_deserialization_handler, make_processing_handler, make_production_handler):
        assert make(skip, {}).handle_error(CONTEXT, RAW, ValueError()).result is Result.RESUME  # type: ignore[operator]


def test_handler_class_is_created_and_configured() -> None:
    class CustomHandler:
        def configure(self, configs: Mapping[str, Any]) -> None:
            self.topic = configs["topic"]

        def handle_error(self, context: Any, record: Any, exception: Exception) -> Response:
            return Response.resume([SENT._replace(topic=self.topic)])

    handler = make_production_handler(CustomHandler, {"topic": "x"})
    assert handler.handle_error(CONTEXT, SENT, ValueError()).dead_letter_queue_records[0][0] == "x"
    response = handler.handle_serialization_error(
        CONTEXT, SENT, ValueError(), SerializationExceptionOrigin.KEY)
    assert response == Response.fail()


def test_built_in_handler_keeps_its_own_dead_letter_queue() -> None:
    configs = {DEAD_LETTER_QUEUE_TOPIC: "dead"}
    own = LogAndContinueExceptionHandler("own")
    assert make_deserialization_handler(own, configs) == own
    assert make_processing_handler(LogAndContinueProcessingExceptionHandler, configs) == (
        LogAndContinueProcessingExceptionHandler("dead"))
    assert make_processing_handler("a.b.LogAndFailProcessingExceptionHandler", configs) == (
        LogAndFailProcessingExceptionHandler("dead"))
