"""Responses to a failed batch: Kafka's three choices, and the request that stops all instances.

SHUTDOWN_APPLICATION writes a `ShutdownRequest` to the topic of the task records. Every instance
polls it with a `ShutdownMonitor`, standbys included.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

import msgspec

from penstock.engine.layout.internal_topics import tasks_topic
from penstock.log.base import Log
from penstock.log.errors import OffsetOutOfRange, UnknownTopic
from penstock.log.types import TopicPartition
from penstock.record import RecordColumns

log = logging.getLogger(__name__)

#: The key of a shutdown request. Task records have other keys.
_SHUTDOWN_KEY = b"shutdown"


class StreamThreadExceptionResponse(Enum):
    """The result of an uncaught exception handler.

    Example:
        >>> def restart_on_timeouts(error: BaseException) -> StreamThreadExceptionResponse:
        ...     if isinstance(error, TimeoutError):
        ...         return StreamThreadExceptionResponse.REPLACE_THREAD
        ...     return StreamThreadExceptionResponse.SHUTDOWN_CLIENT
    """

    #: Resume from the last commit. The failed record is processed again.
    REPLACE_THREAD = "REPLACE_THREAD"
    #: Stop this instance. A standby takes over.
    SHUTDOWN_CLIENT = "SHUTDOWN_CLIENT"
    #: Stop all instances of the application, standbys included.
    SHUTDOWN_APPLICATION = "SHUTDOWN_APPLICATION"


#: Called with the exception that failed the batch.
UncaughtExceptionHandler: TypeAlias = Callable[[BaseException], StreamThreadExceptionResponse]


def shut_down_client(error: BaseException) -> StreamThreadExceptionResponse:
    """Stop the instance: the default handler."""
    return StreamThreadExceptionResponse.SHUTDOWN_CLIENT


def call_handler(
    handler: UncaughtExceptionHandler, error: BaseException
) -> StreamThreadExceptionResponse:
    """Call the handler. If it fails or returns no valid response, the instance stops."""
    try:
        response = handler(error)
        return StreamThreadExceptionResponse(getattr(response, "value", response))
    except Exception:
        log.exception("The uncaught exception handler failed on: %s", error)
        return StreamThreadExceptionResponse.SHUTDOWN_CLIENT


class ShutdownRequest(msgspec.Struct, frozen=True):
    """The instance that requests a shutdown, and its reason."""

    instance: str
    reason: str
    #: All records of the topic have it, so that readers of the others can skip this one.
    format_version: int = 1


def request_shutdown(target: Log, application_id: str, request: ShutdownRequest) -> None:
    """Ask all running instances of an application to stop."""
    target.append(
        tasks_topic(application_id), 0,
        RecordColumns([_SHUTDOWN_KEY], [msgspec.json.encode(request)]),
    )


class ShutdownMonitor:
    """Finds shutdown requests that were written after the monitor was created."""

    def __init__(self, source: Log, application_id: str) -> None:
        self._log = source
        self._partition = TopicPartition(tasks_topic(application_id), 0)
        self._position = self._end_offset()

    def poll(self) -> ShutdownRequest | None:
        """Return the newest request since the last call, or None."""
        end = self._end_offset()
        found = None
        if end > self._position:
            try:
                for batch in self._log.read(*self._partition, self._position, end):
                    columns = batch.columns()
                    for key, value in zip(columns.keys, columns.values, strict=True):
                        if key == _SHUTDOWN_KEY and value is not None:
                            found = msgspec.json.decode(value, type=ShutdownRequest)
            except (OffsetOutOfRange, UnknownTopic):
                # The topic was recreated: its requests are not for this instance.
                found = None
        self._position = end
        return found

    def _end_offset(self) -> int:
        try:
            return self._log.offsets([self._partition])[self._partition].end
        except UnknownTopic:
            return 0
