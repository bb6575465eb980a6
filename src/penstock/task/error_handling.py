"""Error handling inside a task: calls the exception handlers and applies their decision (F13)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from penstock.config import StreamsConfig
from penstock.errors import ProcessingFailedException, StreamsException
from penstock.handlers import (
    BuiltInHandler,
    ErrorHandlerContext,
    ProducedRecord,
    Response,
    Result,
    SerializationExceptionOrigin,
)
from penstock.processors.base import OnError
from penstock.record import CurrentRecord, Headers, Record, TaskId
from penstock.timestamps import ConsumedRecord

log = logging.getLogger(__name__)


class NodeFailed(StreamsException):
    """A node failed and its handler decided to fail; parents do not handle it again."""

    def __init__(self, node: str, cause: BaseException, key: object = None) -> None:
        super().__init__(f"{node} failed: {cause}")
        self.node = node
        self.cause = cause
        self.key = key


class ExceptionHandlers:
    """Calls the configured exception handlers for a task.

    `write` sends a record of a dead letter queue, `drop` counts a skipped record.
    """

    def __init__(
        self, config: StreamsConfig, task_id: TaskId, current: CurrentRecord,
        write: Callable[[ProducedRecord], None], drop: Callable[[str], None],
    ) -> None:
        self._deserialization = config.deserialization_handler()
        self._processing = config.processing_handler()
        self._production = config.production_handler()
        #: Whether a handler may read the bytes of the source record: a handler of the user, or a
        #: built-in one for a dead letter queue.
        self.needs_sources = config.errors_dead_letter_queue_topic_name is not None or not all(
            isinstance(handler, BuiltInHandler) for handler in (self._processing, self._production)
        )
        self._task_id = task_id
        self._current = current
        self._write = write
        self._drop = drop

    def not_deserialized(
        self, node: str, raw: ConsumedRecord, part: str, error: Exception
    ) -> None:
        """Handle a deserialization error: raise, or skip the record. `part` is key or value."""
        context = ErrorHandlerContext(
            raw.topic, raw.partition, raw.offset, raw.headers, node, self._task_id, raw.timestamp,
            raw.key, raw.value,
        )
        response = self._call_handler(
            node, error, lambda: self._deserialization.handle_error(context, raw, error)
        )
        if response.result is Result.FAIL:
            raise ProcessingFailedException(
                f"The {part} of a record of topic {raw.topic}, partition {raw.partition}, offset "
                f"{raw.offset} cannot be deserialized: {error} To skip such records set "
                "deserialization_exception_handler='continue'.",
                task_id=str(self._task_id), processor=node, topic=raw.topic,
                partition=raw.partition, offset=raw.offset, key=raw.key,
            ) from error
        log.warning(
            "Skipping a record whose %s cannot be deserialized: topic %s, partition %d, offset %d.",
            part, raw.topic, raw.partition, raw.offset,
        )
        self._drop("deserialization error")

    def not_processed(
        self, node: str, error: Exception, record: Record[Any, Any] | None
    ) -> None:
        """Handle the error of a processor: raise `NodeFailed`, or skip the record."""
        response = self._call_handler(
            node, error,
            lambda: self._processing.handle_error(self._context(node), record, error),
        )
        if response.result is Result.FAIL:
            raise NodeFailed(node, error, None if record is None else record.key) from error
        self._drop("processing error")

    def error_callback(self, node: str) -> OnError:
        """The function that a node calls when it cannot process a record."""

        def failed(
            error: Exception, key: Any, value: Any, timestamp: int, headers: Headers
        ) -> None:
            self.not_processed(node, error, Record(key, value, max(timestamp, 0), headers))

        return failed

    def not_serialized(
        self, node: str, record: ProducedRecord, error: Exception,
        origin: SerializationExceptionOrigin,
    ) -> None:
        """Handle a serialization error: raise, or skip the output record."""
        response = self._call_handler(
            node, error,
            lambda: self._production.handle_serialization_error(
                self._context(node), record, error, origin
            ),
        )
        if response.result is not Result.RESUME:
            raise self._not_produced(
                node, f"the {origin.value} of a record for topic {record.topic} cannot be "
                f"serialized: {error}",
            ) from error
        log.warning("Skipping a record for topic %s that cannot be serialized.", record.topic)
        self._drop("serialization error")

    def not_sent(self, node: str, record: ProducedRecord, error: Exception) -> None:
        """Handle an output record that the log would reject: raise, or skip it."""
        response = self._call_handler(
            node, error,
            lambda: self._production.handle_error(self._context(node), record, error),
        )
        if response.result is not Result.RESUME:
            raise self._not_produced(
                node, f"a record for topic {record.topic} cannot be sent: {error}"
            ) from error
        self._drop("production error")

    def _not_produced(self, node: str, what: str) -> ProcessingFailedException:
        """The error with the source record; its key is shown as the bytes that were read."""
        current = self._current
        key = current.rows.keys[current.at]
        source = "" if current.topic is None else (
            f" Source record: topic {current.topic}, partition {current.partition}, offset "
            f"{current.offset}, key {key!r}."
        )
        return ProcessingFailedException(
            f"{node}: {what.rstrip('.')}.{source} To skip such records set "
            "production_exception_handler='continue'.",
            task_id=str(self._task_id), processor=node, topic=current.topic,
            partition=current.partition, offset=current.offset, key=key,
        )

    def _call_handler(
        self, node: str, error: Exception, handler: Callable[[], Response]
    ) -> Response:
        try:
            response = handler()
            if not isinstance(response, Response):
                raise TypeError(f"An exception handler must return a Response, not {response!r}.")
        except Exception as broken:
            log.error("The exception handler itself failed on: %s", error)
            raise NodeFailed(node, broken) from broken
        for record in response.dead_letter_queue_records:
            self._write(record)
        return response

    def _context(self, node: str) -> ErrorHandlerContext:
        current = self._current
        return ErrorHandlerContext(
            current.topic, current.partition, current.offset, current.headers, node,
            self._task_id, current.timestamp, current.raw_key, current.raw_value,
        )

