"""Exception handlers: they decide about records that cannot be read, processed or written.

There are three kinds: for deserialization errors, for exceptions in processors, and for outputs
that cannot be serialized or sent. A handler is called once for each such record and returns a
`Response`: skip the record, fail, or (production only) retry; and the records to write to a dead
letter queue.

A setting for a handler is "fail", "continue", Kafka's class name, a class, an instance, or a
function with the arguments of `handle_error`.
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
#: The headers of a dead letter that describe the error start with it.
ERROR_HEADER_PREFIX = "__streams.errors."
#: The maximum number of characters of an exception's message in a log line.
_MAX_CAUSE = 300


class ProducedRecord(NamedTuple):
    """A record to write to a topic. If `partition` is None, the partitioner chooses one."""

    topic: str
    partition: int | None
    timestamp: int
    key: Any
    value: Any
    headers: Headers = NO_HEADERS


@dataclass(frozen=True, slots=True)
class ErrorHandlerContext:
    """The position of a failed record.

    `timestamp` and `headers` are those of the current record; topic, partition, offset and the raw
    bytes are those of its source record. A punctuation has no source record: topic is None,
    partition and offset are -1.
    """

    topic: str | None
    partition: int
    offset: int
    # Headers and raw bytes are user data and must not appear in logs.
    headers: Headers = field(repr=False)
    processor_node_id: str
    task_id: TaskId
    timestamp: int
    source_raw_key: bytes | None = field(default=None, repr=False)
    source_raw_value: bytes | None = field(default=None, repr=False)


class Result(Enum):
    """The decision of a handler about a failed record."""

    RESUME = "resume"
    FAIL = "fail"
    RETRY = "retry"


@dataclass(frozen=True, slots=True)
class Response:
    """The decision of a handler, and the records to write to a dead letter queue.

    Example:
        >>> def skip_and_keep(context, record, exception):
        ...     data = record.key, record.value
        ...     return Response.resume([ProducedRecord("bad", None, context.timestamp, *data)])
    """

    result: Result
    dead_letter_queue_records: tuple[ProducedRecord, ...] = ()
    #: Set by built-in handlers: what the task logs about the skipped record, at a limited rate.
    notice: str = field(default="", compare=False, repr=False)

    @staticmethod
    def resume(dead_letter_queue_records: Iterable[ProducedRecord] = ()) -> Response:
        """Skip the record.

        Args:
            dead_letter_queue_records: Records for the dead letter queue.

        Returns:
            The response of a handler.

        Kafka: Response#resume
        """
        return Response(Result.RESUME, tuple(dead_letter_queue_records))

    @staticmethod
    def fail(dead_letter_queue_records: Iterable[ProducedRecord] = ()) -> Response:
        """Stop processing and raise the error.

        Args:
            dead_letter_queue_records: Records for the dead letter queue.

        Returns:
            The response of a handler.

        Kafka: Response#fail
        """
        return Response(Result.FAIL, tuple(dead_letter_queue_records))

    @staticmethod
    def retry() -> Response:
        """Process the batch again, because the error may pass (`retriable`).

        Only for production exception handlers. For other errors it means fail.

        Returns:
            The response of a production handler.

        Kafka: Response#retry
        """
        return Response(Result.RETRY)


class SerializationExceptionOrigin(Enum):
    """Whether the key or the value could not be serialized."""

    KEY = "key"
    VALUE = "value"


@runtime_checkable
class DeserializationExceptionHandler(Protocol):
    """Decides about records whose key or value cannot be deserialized.

    Example:
        >>> class SkipTests:
        ...     def handle_error(self, context, record, exception):
        ...         is_test = context.topic.startswith("test-")
        ...         return Response.resume() if is_test else Response.fail()
        >>> isinstance(SkipTests(), DeserializationExceptionHandler)
        True
    """

    def handle_error(
        self, context: ErrorHandlerContext, record: ConsumedRecord, exception: Exception
    ) -> Response:
        """Return a response; `record` contains the raw bytes.

        Args:
            context: The position of the record.
            record: The record, with its bytes.
            exception: The error.

        Kafka: DeserializationExceptionHandler#handleError
        """
        ...


@runtime_checkable
class ProcessingExceptionHandler(Protocol):
    """Decides about records for which a processor raises an exception.

    Example:
        >>> class SkipDivisions:
        ...     def handle_error(self, context, record, exception):
        ...         is_known = isinstance(exception, ZeroDivisionError)
        ...         return Response.resume() if is_known else Response.fail()
        >>> isinstance(SkipDivisions(), ProcessingExceptionHandler)
        True
    """

    def handle_error(
        self, context: ErrorHandlerContext, record: Record[Any, Any] | None, exception: Exception
    ) -> Response:
        """Return a response; `record` is the input of the processor, None in a punctuation.

        Args:
            context: The position of the record.
            record: The record that the processor received.
            exception: The error.

        Kafka: ProcessingExceptionHandler#handleError
        """
        ...


@runtime_checkable
class ProductionExceptionHandler(Protocol):
    """Decides about output records that cannot be sent or serialized.

    Example:
        >>> class Drop:
        ...     def handle_error(self, context, record, exception):
        ...         return Response.resume()
        ...     def handle_serialization_error(self, context, record, exception, origin):
        ...         return Response.fail()
        >>> isinstance(Drop(), ProductionExceptionHandler)
        True
    """

    def handle_error(
        self, context: ErrorHandlerContext, record: ProducedRecord, exception: Exception
    ) -> Response:
        """Return a response; `record` contains the serialized key and value.

        Args:
            context: The position of the record that was processed.
            record: The record that cannot be sent.
            exception: The error.

        Kafka: ProductionExceptionHandler#handleError
        """
        ...

    def handle_serialization_error(
        self,
        context: ErrorHandlerContext,
        record: ProducedRecord,
        exception: Exception,
        origin: SerializationExceptionOrigin,
    ) -> Response:
        """Return a response; `record` contains key and value before serialization.

        Args:
            context: The position of the record that was processed.
            record: The record that cannot be sent.
            exception: The error.
            origin: Whether the key or the value cannot be serialized.

        Kafka: ProductionExceptionHandler#handleSerializationError
        """
        ...


def dead_letter_queue_record(
    topic: str,
    key: bytes | None,
    value: bytes | None,
    context: ErrorHandlerContext,
    exception: BaseException,
) -> ProducedRecord:
    """Return a dead letter record with Kafka Streams' headers about the error and its position."""
    kind = type(exception)
    plain = kind.__module__ == "builtins"
    name = kind.__qualname__ if plain else f"{kind.__module__}.{kind.__qualname__}"
    message = str(exception) or None
    details = (
        ("exception", name),
        ("message", message),
        ("stacktrace", "".join(traceback.format_exception(exception))),
        ("topic", context.topic),
        ("partition", str(context.partition)),
        ("offset", str(context.offset)),
    )
    headers = Headers((
        *context.headers,
        *((ERROR_HEADER_PREFIX + what, None if text is None else text.encode("utf-8", "replace"))
          for what, text in details),
    ))
    return ProducedRecord(topic, None, context.timestamp, key, value, headers)


@dataclass(frozen=True, slots=True)
class BuiltInHandler:
    """A handler that writes the source record to a dead letter queue, if one is configured."""

    dead_letter_queue_topic: str | None = None

    def _dead_letters(
        self, context: ErrorHandlerContext, exception: BaseException
    ) -> tuple[ProducedRecord, ...]:
        topic = self.dead_letter_queue_topic
        if topic is None:
            return ()
        key, value = context.source_raw_key, context.source_raw_value
        return (dead_letter_queue_record(topic, key, value, context, exception),)

    def _skip(
        self, notice: str, context: ErrorHandlerContext, exception: BaseException
    ) -> Response:
        return Response(Result.RESUME, self._dead_letters(context, exception), notice)


def one_line(error: BaseException) -> str:
    """Return the class and the message of an exception as one line of limited length."""
    message = " ".join(str(error).split())
    shortened = f"{message[:_MAX_CAUSE]}..." if len(message) > _MAX_CAUSE else message
    return f"{type(error).__name__}: {shortened}" if shortened else type(error).__name__


def log_failed_record(what: str, context: ErrorHandlerContext, error: Exception) -> None:
    """Log a bad record as one line with its position and the cause; the traceback at DEBUG."""
    position = "no source record" if context.topic is None else (
        f"topic '{context.topic}', partition {context.partition}, offset {context.offset}"
    )
    log.error(
        "%s: %s (%s; processor '%s', task %s).", what, one_line(error).rstrip("."), position,
        context.processor_node_id, context.task_id,
    )
    log.debug("The traceback of this error:", exc_info=error)


class LogAndFailExceptionHandler(BuiltInHandler):
    """Logs a deserialization error and stops the application. The default.

    Example:
        >>> from penstock import StreamsConfig
        >>> config = StreamsConfig(
        ...     application_id="orders", deserialization_exception_handler="fail"
        ... )
    """

    def handle_error(
        self, context: ErrorHandlerContext, record: ConsumedRecord, exception: Exception
    ) -> Response:
        """Log the error and let the application fail.

        Args:
            context: The position of the record.
            record: The record, with its bytes.
            exception: The error.

        Returns:
            The response: fail.

        Kafka: LogAndFailExceptionHandler#configure, LogAndFailExceptionHandler#handleError
        """
        log_failed_record("Failed to deserialize a record", context, exception)
        return Response.fail(self._dead_letters(context, exception))


class LogAndContinueExceptionHandler(BuiltInHandler):
    """Logs a deserialization error and skips the record.

    Example:
        >>> from penstock import StreamsConfig
        >>> config = StreamsConfig(
        ...     application_id="orders", deserialization_exception_handler="continue"
        ... )
    """

    def handle_error(
        self, context: ErrorHandlerContext, record: ConsumedRecord, exception: Exception
    ) -> Response:
        """Log a warning and skip the record.

        Args:
            context: The position of the record.
            record: The record, with its bytes.
            exception: The error.

        Returns:
            The response: resume.

        Kafka: LogAndContinueExceptionHandler#configure, LogAndContinueExceptionHandler#handleError
        """
        return self._skip("Skipping a record that cannot be deserialized", context, exception)


class LogAndFailProcessingExceptionHandler(BuiltInHandler):
    """Logs an exception of a processor and stops the application. The default.

    Example:
        >>> from penstock import StreamsConfig
        >>> config = StreamsConfig(
        ...     application_id="orders", processing_exception_handler="fail"
        ... )
    """

    def handle_error(
        self, context: ErrorHandlerContext, record: Record[Any, Any] | None, exception: Exception
    ) -> Response:
        """Log the error and let the application fail.

        Args:
            context: The position of the record.
            record: The record that the processor received.
            exception: The error.

        Returns:
            The response: fail.

        Kafka: LogAndFailProcessingExceptionHandler#configure,
            LogAndFailProcessingExceptionHandler#handleError
        """
        log_failed_record("Failed to process a record", context, exception)
        return Response.fail(self._dead_letters(context, exception))


class LogAndContinueProcessingExceptionHandler(BuiltInHandler):
    """Logs an exception of a processor and drops the record there; other branches get it.

    Example:
        >>> from penstock import StreamsConfig
        >>> config = StreamsConfig(
        ...     application_id="orders", processing_exception_handler="continue"
        ... )
    """

    def handle_error(
        self, context: ErrorHandlerContext, record: Record[Any, Any] | None, exception: Exception
    ) -> Response:
        """Log a warning and skip the record.

        Args:
            context: The position of the record.
            record: The record that the processor received.
            exception: The error.

        Returns:
            The response: resume.

        Kafka: LogAndContinueProcessingExceptionHandler#configure,
            LogAndContinueProcessingExceptionHandler#handleError
        """
        return self._skip("Skipping a record that cannot be processed", context, exception)


class DefaultProductionExceptionHandler(BuiltInHandler):
    """Retries errors that may be temporary and stops the application for all others. The default.

    An exception with the attribute `retriable = True` is temporary.

    Example:
        >>> from penstock import StreamsConfig
        >>> config = StreamsConfig(
        ...     application_id="orders", production_exception_handler="fail"
        ... )
    """

    def handle_error(
        self, context: ErrorHandlerContext, record: ProducedRecord, exception: Exception
    ) -> Response:
        """Let the application fail, or retry if the error may pass.

        Args:
            context: The position of the record that was processed.
            record: The record that cannot be sent.
            exception: The error.

        Returns:
            The response: retry for an error that may pass, otherwise fail.

        Kafka: DefaultProductionExceptionHandler#handleError
        """
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
        """Let the application fail.

        Args:
            context: The position of the record that was processed.
            record: The record that cannot be sent.
            exception: The error.
            origin: Whether the key or the value cannot be serialized.

        Returns:
            The response: fail.

        Kafka: DefaultProductionExceptionHandler#handleSerializationError
        """
        return Response.fail(self._dead_letters(context, exception))


class LogAndContinueProductionExceptionHandler(BuiltInHandler):
    """Logs an output record that cannot be written and skips it.

    Example:
        >>> from penstock import StreamsConfig
        >>> config = StreamsConfig(
        ...     application_id="orders", production_exception_handler="continue"
        ... )
    """

    def handle_error(
        self, context: ErrorHandlerContext, record: ProducedRecord, exception: Exception
    ) -> Response:
        """Log a warning and drop the output record.

        Args:
            context: The position of the record that was processed.
            record: The record that cannot be sent.
            exception: The error.

        Returns:
            The response: resume.
        """
        return self._skip(f"Skipping a record for topic '{record.topic}'", context, exception)

    def handle_serialization_error(
        self,
        context: ErrorHandlerContext,
        record: ProducedRecord,
        exception: Exception,
        origin: SerializationExceptionOrigin,
    ) -> Response:
        """Log a warning and drop the output record.

        Args:
            context: The position of the record that was processed.
            record: The record that cannot be sent.
            exception: The error.
            origin: Whether the key or the value cannot be serialized.

        Returns:
            The response: resume.
        """
        return self.handle_error(context, record, exception)


@dataclass(frozen=True, slots=True)
class _FunctionHandler:
    """A handler that calls a function with the arguments of `handle_error`."""

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
    """Raise unless the setting is a handler of this kind; the handler is not created."""
    names = _BUILT_INS[kind]
    if isinstance(chosen, str):
        _make_handler(chosen, names, kind, {})
        return
    made = chosen if isinstance(chosen, type) else type(chosen)
    if issubclass(made, BuiltInHandler) and made not in names.values():
        raise ConfigException(
            f"{made.__name__} is not a {kind} exception handler. Handlers: {', '.join(names)}. "
            "Or use a function of (context, record, exception)."
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
            f"A {kind} exception handler must take (context, record, exception), but "
            f"{getattr(chosen, '__name__', made.__name__)} does not."
        ) from None
    except ValueError:
        pass


def _make_handler(
    chosen: Any, names: Mapping[str, type[BuiltInHandler]], kind: str, configs: Mapping[str, Any]
) -> Any:
    dead_letter_queue_topic = configs.get(DEAD_LETTER_QUEUE_TOPIC)
    if isinstance(chosen, str):
        found = names.get(chosen.rpartition(".")[2])
        if found is None:
            raise ConfigException(
                f"The {kind} exception handler '{chosen}' does not exist. Handlers: "
                f"{', '.join(names)}. Or use a function of (context, record, exception)."
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
        return _FunctionHandler(handler)
    raise ConfigException(
        f"A {kind} exception handler must be 'fail', 'continue', an object with handle_error or a "
        f"function of (context, record, exception), not {type(chosen).__name__}."
    )


def make_deserialization_handler(
    chosen: Any, configs: Mapping[str, Any]
) -> DeserializationExceptionHandler:
    """Create the handler of a setting and call its `configure`, if it has one."""
    handler: DeserializationExceptionHandler = _make_handler(
        chosen, _DESERIALIZATION, "deserialization", configs
    )
    return handler


def make_processing_handler(chosen: Any, configs: Mapping[str, Any]) -> ProcessingExceptionHandler:
    """Create the handler of a setting and call its `configure`, if it has one."""
    handler: ProcessingExceptionHandler = _make_handler(chosen, _PROCESSING, "processing", configs)
    return handler


def make_production_handler(chosen: Any, configs: Mapping[str, Any]) -> ProductionExceptionHandler:
    """Create the handler of a setting and call its `configure`, if it has one.

    A handler without `handle_serialization_error` fails on serialization errors, as in Kafka.
    """
    handler = _make_handler(chosen, _PRODUCTION, "production", configs)
    if not hasattr(handler, "handle_serialization_error"):
        return _FailOnSerializationError(handler)
    return handler  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class _FailOnSerializationError:
    """Adds Kafka's default, which is to fail, to a handler without `handle_serialization_error`."""

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
