"""Error handling inside a task: calls the exception handlers and applies their decision (F13)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.config import StreamsConfig
from penstock.errors import (
    NotSentException,
    ProcessingFailedException,
    RetryRequestedException,
    SchemaRegistryException,
    StoreSerdeException,
    StreamsException,
    TopicSerdeException,
    WrongSerdeException,
)
from penstock.handlers import (
    BuiltInHandler,
    ErrorHandlerContext,
    ProducedRecord,
    Response,
    Result,
    SerializationExceptionOrigin,
)
from penstock.processors.base import OnError
from penstock.record import Headers, Record, RecordMetadata
from penstock.timestamps import ConsumedRecord

if TYPE_CHECKING:
    from penstock.task.runtime import Runtime

log = logging.getLogger(__name__)

#: The settings of the handlers.
DESERIALIZATION_HANDLER = "deserialization.exception.handler"
PROCESSING_HANDLER = "processing.exception.handler"
PRODUCTION_HANDLER = "production.exception.handler"


def end_sentence(text: object) -> str:
    """Return a text with a full stop at its end."""
    return f"{str(text).rstrip('.')}."


def skipping_setting(error: BaseException) -> str | None:
    """Return the setting that skips records for which a step raises this error.

    None for the serde of a store or an internal topic: good records would be skipped, too.
    """
    is_serde = isinstance(error, StoreSerdeException | TopicSerdeException) or isinstance(
        error.__cause__, WrongSerdeException
    )
    return None if is_serde else PROCESSING_HANDLER


class NodeFailed(StreamsException):
    """A node failed and its handler decided to fail; parents do not handle it again."""

    def __init__(self, node: str, cause: BaseException, key: object = None) -> None:
        super().__init__(f"{node} failed: {cause}")
        self.node = node
        self.cause = cause
        self.key = key


class ExceptionHandlers:
    """Calls the configured exception handlers for a task.

    `write` sends a record of a dead letter queue. `internal_topics` are the repartition topics and
    the topics of foreign-key joins: the application itself has written their records.
    """

    def __init__(
        self, config: StreamsConfig, runtime: Runtime,
        write: Callable[[ProducedRecord], tuple[Any, ...]],
        internal_topics: Collection[str] = (),
    ) -> None:
        self._application_id = config.application_id
        self._internal_topics = internal_topics
        #: The dead letters of a response that fails the batch, as outputs.
        self.final_letters: list[tuple[Any, ...]] = []
        self._deserialization = config.deserialization_handler()
        self._processing = config.processing_handler()
        self._production = config.production_handler()
        #: Whether a handler may read the bytes of the source record: a handler of the user, or a
        #: built-in one for a dead letter queue.
        self.needs_sources = config.errors_dead_letter_queue_topic_name is not None or not all(
            isinstance(handler, BuiltInHandler) for handler in (self._processing, self._production)
        )
        self._runtime = runtime
        self._task_id = runtime.task_id
        self._current = runtime.current
        self._write = write
        self._drop = runtime.drop

    def not_deserialized(
        self, node: str, raw: ConsumedRecord, part: str, error: Exception,
        origin: RecordMetadata | None = None,
    ) -> None:
        """Handle a deserialization error: raise, or skip the record. `part` is key or value.

        `origin` is the record of the log that caused this one, if another task sent it.
        """
        topic, partition, offset = origin or RecordMetadata(raw.topic, raw.partition, raw.offset)
        context = ErrorHandlerContext(
            topic, partition, offset, raw.headers, node, self._task_id, raw.timestamp,
            raw.key, raw.value,
        )
        response = self._call_handler(
            node, error, lambda: self._deserialization.handle_error(context, raw, error)
        )
        if response.result is Result.FAIL:
            place = f"topic {topic}, partition {partition}, offset {offset}"
            if origin is not None:
                place = f"topic {raw.topic}, sent because of a record of {place},"
            what = f"The {part} of a record of {place} cannot be deserialized: "
            failure = partial(
                ProcessingFailedException, task_id=str(self._task_id), processor=node, topic=topic,
                partition=partition, offset=offset, key=raw.key,
            )
            if raw.topic in self._internal_topics:
                cause = self._not_readable(f"{what}{end_sentence(error)}", part)
                cause.__cause__ = error
                raise failure(str(cause)) from cause
            raise failure(
                f"{what}{end_sentence(error)} To skip such records, set "
                f"{DESERIALIZATION_HANDLER}=continue.",
                handler_setting=DESERIALIZATION_HANDLER,
            ) from error
        self._note_skipped(
            response.notice or f"Skipping a record whose {part} cannot be deserialized",
            context, error,
        )
        self._drop("deserialization error")

    def _not_readable(self, what: str, part: str) -> TopicSerdeException:
        """The error for bytes that the application itself has written."""
        return TopicSerdeException(
            f"{what} The application has written this topic itself, with another {part} serde or "
            "an earlier schema, so the record is valid. Give the step the serde that has written "
            "it, let the previous version process the records that are left, or reset the "
            f"application with 'penstock reset {self._application_id}'."
        )

    def not_processed(
        self, node: str, error: Exception, record: Record[Any, Any] | None
    ) -> None:
        """Handle the error of a processor: raise `NodeFailed`, or skip the record."""
        context = self._context(node)
        response = self._call_handler(
            node, error, lambda: self._processing.handle_error(context, record, error)
        )
        if response.result is Result.FAIL:
            raise NodeFailed(node, error, None if record is None else record.key) from error
        self._note_skipped(response.notice, context, error)
        # The error of a sink may have failed before, and its parent continues.
        self.final_letters.clear()
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
        context = self._context(node)
        response = self._call_handler(
            node, error,
            lambda: self._production.handle_serialization_error(context, record, error, origin),
        )
        if response.result is not Result.RESUME:
            self._explain_retry(response)
            what = f"The {origin.value} of a record for topic {record.topic} cannot be serialized: "
            if record.topic in self._internal_topics:
                raise TopicSerdeException(
                    f"{node}: {what}{end_sentence(error)} Pass {origin.value}= to the step that "
                    "needs this topic."
                ) from error
            raise self._not_produced(node, f"{what}{error}") from error
        self._note_skipped(
            response.notice or f"Skipping a record for topic '{record.topic}'", context, error
        )
        self._drop("serialization error")

    def not_sent(self, node: str, record: ProducedRecord, error: NotSentException) -> None:
        """Handle an output record that the log would reject: raise, or skip it.

        The parents of the sink are not asked: the record is the fault of none of them.
        """
        context = self._context(node)
        response = self._call_handler(
            node, error, lambda: self._production.handle_error(context, record, error)
        )
        if response.result is Result.RESUME:
            self._note_skipped(response.notice, context, error)
            self._drop("production error")
            return
        retries = response.result is Result.RETRY and error.retriable
        if not retries:
            self._explain_retry(response)
        failure = self._not_produced(node, str(error), RetryRequestedException if retries else None)
        failure.__cause__ = error
        raise NodeFailed(node, failure) from error

    def _note_skipped(self, what: str, context: ErrorHandlerContext, error: Exception) -> None:
        """Log a skipped record after the commit, at a limited rate. Nothing if `what` is empty."""
        if what:
            position = RecordMetadata(context.topic, context.partition, context.offset)
            self._runtime.drop_notes.add_error(context.processor_node_id, what, error, position)
            log.debug("The traceback of a skipped record:", exc_info=error)

    def _explain_retry(self, response: Response) -> None:
        if response.result is Result.RETRY:
            log.warning(
                "The production exception handler returned RETRY for an error that does not pass. "
                "It means FAIL."
            )

    def _not_produced(
        self, node: str, what: str, kind: type[ProcessingFailedException] | None = None
    ) -> ProcessingFailedException:
        """The error with the source record; its key is shown as the bytes that were read."""
        current = self._current
        key = current.rows.keys[current.at]
        topic, partition, offset = self._runtime.source_position()
        source = "" if topic is None else (
            f" Source record: topic {topic}, partition {partition}, offset {offset}, key {key!r}."
        )
        return (kind or ProcessingFailedException)(
            f"{node}: {end_sentence(what)}{source} To skip such records, set "
            f"{PRODUCTION_HANDLER}=continue.",
            task_id=str(self._task_id), processor=node, topic=topic,
            partition=partition, offset=offset, key=key,
            handler_setting=PRODUCTION_HANDLER,
        )

    def _call_handler(
        self, node: str, error: Exception, handler: Callable[[], Response]
    ) -> Response:
        if any(isinstance(each, SchemaRegistryException) for each in (error, error.__cause__)):
            # The record may be valid.
            raise NodeFailed(node, error) from error
        try:
            response = handler()
            if not isinstance(response, Response):
                raise TypeError(f"An exception handler must return a Response, not {response!r}.")
        except Exception as broken:
            log.error("The exception handler itself failed on: %s", error)
            raise NodeFailed(node, broken) from broken
        letters = [self._write(record) for record in response.dead_letter_queue_records]
        if response.result is Result.FAIL:
            self.final_letters += letters
        return response

    def _context(self, node: str) -> ErrorHandlerContext:
        current = self._current
        return ErrorHandlerContext(
            *self._runtime.source_position(), current.headers, node,
            self._task_id, current.timestamp, current.raw_key, current.raw_value,
        )

