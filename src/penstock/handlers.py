"""What becomes of a record that cannot be read, processed or written.

There are three handlers: for bytes that do not deserialize, for processors that raise, and for
results that cannot be serialized or sent. Each is asked once for each such record and answers with
a `Response`: go on without the record, fail, or (sending only) try again, and which records are to
be written to a dead letter queue.

Wherever a handler is expected, so is the word "fail" or "continue", Kafka's class name, a class,
or a function with the arguments of `handle_error`.
"""

from __future__ import annotations

import inspect
import logging
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Protocol, runtime_checkable

from penstock.errors import ConfigException
from penstock.record import NO_HEADERS, Headers, Record, TaskId
from penstock.timestamps import ConsumedRecord

log = logging.getLogger(__name__)

DEAD_LETTER_QUEUE_TOPIC = "errors.dead.letter.queue.topic.name"


class ProducedRecord(NamedTuple):
    """A record on its way to a topic. Without a partition, the partitioner chooses."""

    topic: str
    partition: int | None
    timestamp: int
    key: Any
    value: Any
    headers: Headers = NO_HEADERS


@dataclass(frozen=True, slots=True)
class ErrorHandlerContext:
    """Where a record was when it failed, and the source record behind it.

    `timestamp` and `headers` are those of the record that was being processed; topic, partition,
    offset and the raw bytes those of the source record. In a punctuation there is none: topic is
    None, partition and offset are -1.
    """

    topic: str | None
    partition: int
    offset: int
    # Headers and raw bytes are the user's data and stay out of logs.
    headers: Headers = field(repr=False)
    processor_node_id: str
    task_id: TaskId
    timestamp: int
    source_raw_key: bytes | None = field(default=None, repr=False)
    source_raw_value: bytes | None = field(default=None, repr=False)


class Result(Enum):
    """What is to be done about a record that failed."""

    RESUME = "resume"
    FAIL = "fail"
    RETRY = "retry"


@dataclass(frozen=True, slots=True)
class Response:
    """A handler's answer."""

    result: Result
    dead_letter_queue_records: tuple[ProducedRecord, ...] = ()

    @staticmethod
    def resume(dead_letter_queue_records: Iterable[ProducedRecord] = ()) -> Response:
        """Go on without the record."""
        return Response(Result.RESUME, tuple(dead_letter_queue_records))

    @staticmethod
    def fail(dead_letter_queue_records: Iterable[ProducedRecord] = ()) -> Response:
        """Stop: the error goes up."""
        return Response(Result.FAIL, tuple(dead_letter_queue_records))

    @staticmethod
    def retry() -> Response:
        """Send the record again; only a production handler may say so."""
        return Response(Result.RETRY)


class SerializationExceptionOrigin(Enum):
    """Which half of a record could not be serialized."""

    KEY = "key"
    VALUE = "value"


@runtime_checkable
class DeserializationExceptionHandler(Protocol):
    """Asked about a record whose key or value could not be deserialized."""

    def handle_error(
        self, context: ErrorHandlerContext, record: ConsumedRecord, exception: Exception
    ) -> Response:
        """`record` holds the bytes."""
        ...


@runtime_checkable
class ProcessingExceptionHandler(Protocol):
    """Asked about a record that a processor raised an exception for."""

    def handle_error(
        self, context: ErrorHandlerContext, record: Record[Any, Any] | None, exception: Exception
    ) -> Response:
        """`record` is what the processor was given; None in a punctuation."""
        ...


@runtime_checkable
class ProductionExceptionHandler(Protocol):
    """Asked about a result that could not be sent, or not be serialized."""

    def handle_error(
        self, context: ErrorHandlerContext, record: ProducedRecord, exception: Exception
    ) -> Response:
        """`record` holds the bytes that could not be sent."""
        ...

    def handle_serialization_error(
        self,
        context: ErrorHandlerContext,
        record: ProducedRecord,
        exception: Exception,
        origin: SerializationExceptionOrigin,
    ) -> Response:
        """`record` holds key and value as they are."""
        ...


def dead_letter_queue_record(
    topic: str,
    key: bytes | None,
    value: bytes | None,
    context: ErrorHandlerContext,
    exception: BaseException,
) -> ProducedRecord:
    """The record that Kafka Streams' handlers write: headers say what happened, and where."""
    kind = type(exception)
    plain = kind.__module__ == "builtins"
    name = kind.__qualname__ if plain else f"{kind.__module__}.{kind.__qualname__}"
    message = str(exception) or None
    told = (
        ("exception", name),
        ("message", message),
        ("stacktrace", "".join(traceback.format_exception(exception))),
        ("topic", context.topic),
        ("partition", str(context.partition)),
        ("offset", str(context.offset)),
    )
    headers = Headers((
        *context.headers,
        *((f"__streams.errors.{what}", None if text is None else text.encode("utf-8", "replace"))
          for what, text in told),
    ))
    return ProducedRecord(topic, None, context.timestamp, key, value, headers)


@dataclass(frozen=True, slots=True)
class BuiltInHandler:
    """A handler that writes the source record to the dead letter queue, if there is one."""

    dead_letter_queue_topic: str | None = None

    def _dead_letters(
        self, context: ErrorHandlerContext, exception: BaseException
    ) -> tuple[ProducedRecord, ...]:
        topic = self.dead_letter_queue_topic
        if topic is None:
            return ()
        key, value = context.source_raw_key, context.source_raw_value
        return (dead_letter_queue_record(topic, key, value, context, exception),)


def _log_deserialization(
    level: int, context: ErrorHandlerContext, record: ConsumedRecord, exception: Exception
) -> None:
    log.log(
        level, "A record could not be deserialized: task %s, topic '%s', partition %d, offset %d.",
        context.task_id, record.topic, record.partition, record.offset, exc_info=exception,
    )


def _log_processing(level: int, context: ErrorHandlerContext, exception: Exception) -> None:
    log.log(
        level,
        "A record could not be processed: processor '%s', task %s, source topic '%s', "
        "partition %d, offset %d.",
        context.processor_node_id, context.task_id, context.topic, context.partition,
        context.offset, exc_info=exception,
    )


class LogAndFailExceptionHandler(BuiltInHandler):
    """Bytes that cannot be read end the application. The default."""

    def handle_error(
        self, context: ErrorHandlerContext, record: ConsumedRecord, exception: Exception
    ) -> Response:
        _log_deserialization(logging.ERROR, context, record, exception)
        return Response.fail(self._dead_letters(context, exception))


class LogAndContinueExceptionHandler(BuiltInHandler):
    """Records that cannot be read are left out."""

    def handle_error(
        self, context: ErrorHandlerContext, record: ConsumedRecord, exception: Exception
    ) -> Response:
        _log_deserialization(logging.WARNING, context, record, exception)
        return Response.resume(self._dead_letters(context, exception))


class LogAndFailProcessingExceptionHandler(BuiltInHandler):
    """An exception in a processor ends the application. The default."""

    def handle_error(
        self, context: ErrorHandlerContext, record: Record[Any, Any] | None, exception: Exception
    ) -> Response:
        _log_processing(logging.ERROR, context, exception)
        return Response.fail(self._dead_letters(context, exception))


class LogAndContinueProcessingExceptionHandler(BuiltInHandler):
    """A record that a processor raises for goes no further there; other branches go on."""

    def handle_error(
        self, context: ErrorHandlerContext, record: Record[Any, Any] | None, exception: Exception
    ) -> Response:
        _log_processing(logging.WARNING, context, exception)
        return Response.resume(self._dead_letters(context, exception))


class DefaultProductionExceptionHandler(BuiltInHandler):
    """What may succeed later is tried again, everything else ends the application.

    An exception says that it may succeed later with a true attribute `retriable`.
    """

    def handle_error(
        self, context: ErrorHandlerContext, record: ProducedRecord, exception: Exception
    ) -> Response:
        if getattr(exception, "retriable", False) is True:
            return Response.retry()
        return Response.fail(self._dead_letters(context, exception))

    def handle_serialization_error(
        self,
        context: ErrorHandlerContext,
        record: ProducedRecord,
        exception: Exception,
        origin: SerializationExceptionOrigin,
    ) -> Response:
        return Response.fail(self._dead_letters(context, exception))


class LogAndContinueProductionExceptionHandler(BuiltInHandler):
    """Results that cannot be written are left out."""

    def handle_error(
        self, context: ErrorHandlerContext, record: ProducedRecord, exception: Exception
    ) -> Response:
        log.warning(
            "A record for topic '%s' could not be written: %s.", record.topic, context,
            exc_info=exception,
        )
        return Response.resume(self._dead_letters(context, exception))

    def handle_serialization_error(
        self,
        context: ErrorHandlerContext,
        record: ProducedRecord,
        exception: Exception,
        origin: SerializationExceptionOrigin,
    ) -> Response:
        return self.handle_error(context, record, exception)


@dataclass(frozen=True, slots=True)
class _FromFunction:
    """A function with the arguments of `handle_error`, as a handler."""

    function: Callable[[ErrorHandlerContext, Any, Exception], Response]

    def handle_error(
        self, context: ErrorHandlerContext, record: Any, exception: Exception
    ) -> Response:
        return self.function(context, record, exception)

    def handle_serialization_error(
        self,
        context: ErrorHandlerContext,
        record: ProducedRecord,
        exception: Exception,
        origin: SerializationExceptionOrigin,
    ) -> Response:
        return self.function(context, record, exception)


_DESERIALIZATION: Mapping[str, type[BuiltInHandler]] = {
    "fail": LogAndFailExceptionHandler,
    "continue": LogAndContinueExceptionHandler,
    "LogAndFailExceptionHandler": LogAndFailExceptionHandler,
    "LogAndContinueExceptionHandler": LogAndContinueExceptionHandler,
}
_PROCESSING: Mapping[str, type[BuiltInHandler]] = {
    "fail": LogAndFailProcessingExceptionHandler,
    "continue": LogAndContinueProcessingExceptionHandler,
    "LogAndFailProcessingExceptionHandler": LogAndFailProcessingExceptionHandler,
    "LogAndContinueProcessingExceptionHandler": LogAndContinueProcessingExceptionHandler,
}
_PRODUCTION: Mapping[str, type[BuiltInHandler]] = {
    "fail": DefaultProductionExceptionHandler,
    "continue": LogAndContinueProductionExceptionHandler,
    "DefaultProductionExceptionHandler": DefaultProductionExceptionHandler,
    "LogAndContinueProductionExceptionHandler": LogAndContinueProductionExceptionHandler,
}
_BUILT_INS = {
    "deserialization": _DESERIALIZATION,
    "processing": _PROCESSING,
    "production": _PRODUCTION,
}


def check_handler(chosen: Any, kind: str) -> None:
    """Refuse what is no handler of this kind; nothing is made or configured for it."""
    names = _BUILT_INS[kind]
    if isinstance(chosen, str):
        _choose(chosen, names, kind, {})
        return
    made = chosen if isinstance(chosen, type) else type(chosen)
    if issubclass(made, BuiltInHandler) and made not in names.values():
        raise ConfigException(
            f"{made.__name__} is no {kind} exception handler. "
            f"There are: {', '.join(names)}; or give a function of (context, record, exception)."
        )
    if hasattr(chosen, "handle_error"):
        return
    if isinstance(chosen, type) or not callable(chosen):
        raise ConfigException(
            f"A {kind} exception handler must be 'fail', 'continue', an object with handle_error "
            f"or a function of (context, record, exception), not {made.__name__}."
        )
    try:
        inspect.signature(chosen).bind(None, None, None)
    except TypeError:
        raise ConfigException(
            f"A {kind} exception handler is called with (context, record, exception), which "
            f"{getattr(chosen, '__name__', made.__name__)} does not take."
        ) from None
    except ValueError:
        pass


def _choose(
    chosen: Any, names: Mapping[str, type[BuiltInHandler]], kind: str, configs: Mapping[str, Any]
) -> Any:
    dead_letter_queue_topic = configs.get(DEAD_LETTER_QUEUE_TOPIC)
    if isinstance(chosen, str):
        found = names.get(chosen.rpartition(".")[2])
        if found is None:
            raise ConfigException(
                f"No {kind} exception handler is called '{chosen}'. "
                f"There are: {', '.join(names)}; or give a function of its arguments."
            )
        return found(dead_letter_queue_topic)
    handler = chosen() if isinstance(chosen, type) else chosen
    if isinstance(handler, BuiltInHandler):
        topic = handler.dead_letter_queue_topic
        return type(handler)(dead_letter_queue_topic if topic is None else topic)
    if hasattr(handler, "handle_error"):
        if hasattr(handler, "configure"):
            handler.configure(configs)
        return handler
    if callable(handler):
        return _FromFunction(handler)
    raise ConfigException(
        f"A {kind} exception handler must be 'fail', 'continue', an object with handle_error or a "
        f"function of (context, record, exception), not {type(chosen).__name__}."
    )


def deserialization_handler(
    chosen: Any, configs: Mapping[str, Any]
) -> DeserializationExceptionHandler:
    """What was chosen, as a handler. One that has `configure` is given the configuration."""
    handler: DeserializationExceptionHandler = _choose(
        chosen, _DESERIALIZATION, "deserialization", configs
    )
    return handler


def processing_handler(chosen: Any, configs: Mapping[str, Any]) -> ProcessingExceptionHandler:
    """What was chosen, as a handler. One that has `configure` is given the configuration."""
    handler: ProcessingExceptionHandler = _choose(chosen, _PROCESSING, "processing", configs)
    return handler


def production_handler(chosen: Any, configs: Mapping[str, Any]) -> ProductionExceptionHandler:
    """What was chosen, as a handler. One that has `configure` is given the configuration.

    A handler without `handle_serialization_error` fails on serialization errors, as Kafka's do.
    """
    handler = _choose(chosen, _PRODUCTION, "production", configs)
    if not hasattr(handler, "handle_serialization_error"):
        return _FailsOnSerialization(handler)
    return handler  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class _FailsOnSerialization:
    """A production handler that says nothing about serialization, with what Kafka says then."""

    handler: Any

    def handle_error(
        self, context: ErrorHandlerContext, record: ProducedRecord, exception: Exception
    ) -> Response:
        response: Response = self.handler.handle_error(context, record, exception)
        return response

    def handle_serialization_error(
        self,
        context: ErrorHandlerContext,
        record: ProducedRecord,
        exception: Exception,
        origin: SerializationExceptionOrigin,
    ) -> Response:
        return Response.fail()
