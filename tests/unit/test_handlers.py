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
    deserialization_handler,
    processing_handler,
    production_handler,
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


def test_a_dead_letter_says_what_happened_and_where() -> None:
    record = dead_letter_queue_record("dead", b"k", b"v", CONTEXT, SerializationException("bad"))
    assert record[:5] == ("dead", None, 5, b"k", b"v")
    assert [name for name, _ in record.headers] == [
        "h", "n", "__streams.errors.exception", "__streams.errors.message",
        "__streams.errors.stacktrace", "__streams.errors.topic", "__streams.errors.partition",
        "__streams.errors.offset",
    ]
    told = dict(record.headers)
    assert told["__streams.errors.exception"] == b"penstock.errors.SerializationException"
    assert told["__streams.errors.message"] == b"bad"
    assert told["__streams.errors.topic"] == b"in"
    assert told["__streams.errors.partition"] == b"0"
    assert told["__streams.errors.offset"] == b"7"


def test_an_exception_may_have_no_message_and_a_record_no_topic() -> None:
    context = ErrorHandlerContext(
        topic=None, partition=-1, offset=-1, headers=Headers(), processor_node_id="n",
        task_id=TaskId(0, 0), timestamp=5,
    )
    told = dict(dead_letter_queue_record("dead", None, None, context, ValueError()).headers)
    assert told["__streams.errors.exception"] == b"ValueError"
    assert told["__streams.errors.message"] is None
    assert told["__streams.errors.topic"] is None


def test_the_context_keeps_user_data_out_of_logs() -> None:
    assert "b'v'" not in repr(CONTEXT)
    assert "'h'" not in repr(CONTEXT)


@pytest.mark.parametrize(("word", "result"), [("fail", Result.FAIL), ("continue", Result.RESUME)])
def test_words_choose_built_in_handlers(word: str, result: Result) -> None:
    configs = {DEAD_LETTER_QUEUE_TOPIC: "dead"}
    error = ValueError("x")
    answers = (
        deserialization_handler(word, configs).handle_error(CONTEXT, RAW, error),
        processing_handler(word, configs).handle_error(CONTEXT, Record("k", "v", 5), error),
        production_handler(word, configs).handle_error(CONTEXT, SENT, error),
        production_handler(word, configs).handle_serialization_error(
            CONTEXT, SENT, error, SerializationExceptionOrigin.VALUE),
    )
    for answer in answers:
        assert answer.result is result
        assert [r[:5] for r in answer.dead_letter_queue_records] == [("dead", None, 5, b"k", b"v")]


def test_without_a_dead_letter_queue_there_are_no_records() -> None:
    answer = processing_handler("continue", {}).handle_error(CONTEXT, None, ValueError())
    assert answer == Response.resume()


def test_sending_is_tried_again_when_that_may_help() -> None:
    class TimeoutError(Exception):
        retriable = True

    handler = DefaultProductionExceptionHandler()
    assert handler.handle_error(CONTEXT, SENT, TimeoutError()) == Response.retry()


def test_a_function_is_a_handler() -> None:
    def never_mind(context: ErrorHandlerContext, record: Any, exception: Exception) -> Response:
        return Response.resume()

    for make in (deserialization_handler, processing_handler, production_handler):
        assert make(never_mind, {}).handle_error(CONTEXT, RAW, ValueError()).result is Result.RESUME  # type: ignore[operator]


def test_a_class_is_made_and_configured() -> None:
    class Mine:
        def configure(self, configs: Mapping[str, Any]) -> None:
            self.topic = configs["mine"]

        def handle_error(self, context: Any, record: Any, exception: Exception) -> Response:
            return Response.resume([SENT._replace(topic=self.topic)])

    handler = production_handler(Mine, {"mine": "x"})
    assert handler.handle_error(CONTEXT, SENT, ValueError()).dead_letter_queue_records[0][0] == "x"
    answer = handler.handle_serialization_error(
        CONTEXT, SENT, ValueError(), SerializationExceptionOrigin.KEY)
    assert answer == Response.fail()


def test_a_built_in_handler_keeps_its_own_dead_letter_queue() -> None:
    configs = {DEAD_LETTER_QUEUE_TOPIC: "dead"}
    own = LogAndContinueExceptionHandler("own")
    assert deserialization_handler(own, configs) == own
    assert processing_handler(LogAndContinueProcessingExceptionHandler, configs) == (
        LogAndContinueProcessingExceptionHandler("dead"))
    assert processing_handler("a.b.LogAndFailProcessingExceptionHandler", configs) == (
        LogAndFailProcessingExceptionHandler("dead"))
