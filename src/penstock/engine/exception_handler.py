"""What becomes of an application whose batch failed: Kafka's three choices."""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

log = logging.getLogger(__name__)


class StreamThreadExceptionResponse(Enum):
    """What an uncaught exception handler answers."""

    #: Begin anew from what is committed. The record that failed is met again.
    REPLACE_THREAD = "REPLACE_THREAD"
    #: End this instance; one that stands by takes over.
    SHUTDOWN_CLIENT = "SHUTDOWN_CLIENT"
    #: End all instances of the application, those that stand by too.
    SHUTDOWN_APPLICATION = "SHUTDOWN_APPLICATION"


#: Is given what ended the batch.
UncaughtExceptionHandler: TypeAlias = Callable[[BaseException], StreamThreadExceptionResponse]


def shut_down_client(error: BaseException) -> StreamThreadExceptionResponse:
    """The handler of those who set none: the instance ends."""
    return StreamThreadExceptionResponse.SHUTDOWN_CLIENT


def response_of(
    handler: UncaughtExceptionHandler, error: BaseException
) -> StreamThreadExceptionResponse:
    """What the handler says; a handler that fails, or answers nonsense, ends the instance."""
    try:
        answer = handler(error)
        return StreamThreadExceptionResponse(getattr(answer, "value", answer))
    except Exception:
        log.exception("The uncaught exception handler failed on: %s", error)
        return StreamThreadExceptionResponse.SHUTDOWN_CLIENT
