"""An exception that travels from a worker to the driver, where it is raised again."""

from __future__ import annotations

import pickle
import traceback
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import msgspec

import penstock
from penstock.engine.packaging.escaping import escape_surrogates
from penstock.errors import (
    NotSentException,
    ProcessingFailedException,
    StoreSerdeException,
    StreamsException,
    TopicSerdeException,
)
from penstock.log.errors import LogDamaged

#: Frames of these packages are not part of the user's traceback.
_INTERNAL_PATHS = (f"{Path(penstock.__file__).parent}/", "/pyspark/", "/py4j/", "<frozen ")


class Failure(msgspec.Struct, frozen=True):
    """The exception that ended a task's batch, as plain data."""

    task: str
    #: The class of the exception, and its message.
    kind: str
    message: str
    #: The processor and record that failed, if known.
    processor: str | None = None
    topic: str | None = None
    partition: int = -1
    offset: int = -1
    #: The representation of the record's key.
    key: str | None = None
    #: The setting of the handler that can skip such records.
    handler_setting: str | None = None
    #: The global store that the record was to update.
    store: str | None = None
    #: The user's frames only.
    traceback: str = ""
    #: The exception and its cause, empty if they cannot be pickled.
    pickled: bytes = b""

    @classmethod
    def of(cls, task: str, error: BaseException) -> Failure:
        """Describe an exception that was raised in this process."""
        details: dict[str, Any] = {}
        if isinstance(error, ProcessingFailedException):
            details = {
                "processor": error.processor, "topic": error.topic, "partition": error.partition,
                "offset": error.offset, "key": None if error.key is None else _repr(error.key),
                "handler_setting": error.handler_setting, "store": error.store,
            }
        return cls(
            task, type(error).__qualname__, str(error), traceback=user_traceback(error),
            pickled=_pickle(error), **details,
        )

    def escape_surrogates(self) -> Failure:
        """Return a copy whose text UTF-8 can represent. The pickled exception stays as it is."""
        escaped = {
            name: escape_surrogates(value) for name, value in msgspec.structs.asdict(self).items()
            if isinstance(value, str)
        }
        return msgspec.structs.replace(self, **escaped)

    def exception(self) -> Exception:
        """Return the exception to raise.

        The user's traceback is its attribute `user_traceback`, and a note.
        """
        error = self._unpickle() or self._rebuild()
        error.user_traceback = self.traceback  # type: ignore[attr-defined]
        if self.traceback:
            error.add_note(f"In task {self.task}:\n{self.traceback.rstrip()}")
        return error

    def _unpickle(self) -> Exception | None:
        if not self.pickled:
            return None
        try:
            error, cause = pickle.loads(self.pickled)
        except Exception:
            # The driver may not know the class of the exception.
            return None
        if not isinstance(error, Exception):
            return None
        error.__cause__ = cause
        return error

    def _rebuild(self) -> StreamsException:
        if self.processor is not None:
            return ProcessingFailedException(
                self.message, task_id=self.task, processor=self.processor, topic=self.topic,
                partition=self.partition, offset=self.offset, key=self.key,
                handler_setting=self.handler_setting, store=self.store,
            )
        return StreamsException(f"Task {self.task} failed: {self.kind}: {self.message}")


def user_traceback(error: BaseException) -> str:
    """Format the traceback of the original exception, with frames of user code only.

    If no frame belongs to user code, all frames are kept. The text is empty if the message is
    complete: for damage of the log, for a record that cannot be sent, and for the built-in serdes
    of stores.
    """
    if isinstance(error, LogDamaged):
        return ""
    root = error.__cause__ or error
    formatted = traceback.TracebackException.from_exception(root)
    each: traceback.TracebackException | None = formatted
    chain = []
    while each is not None:
        chain.append(each)
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
    stacks = [[frame for frame in each.stack if _is_user_code(frame)] for each in chain]
    if any(stacks):
        for each, frames in zip(chain, stacks, strict=True):
            each.stack = traceback.StackSummary.from_list(frames)
    elif isinstance(root, NotSentException | StoreSerdeException | TopicSerdeException):
        return ""
    return "".join(formatted.format())


def _is_user_code(frame: traceback.FrameSummary) -> bool:
    return not any(part in frame.filename for part in _INTERNAL_PATHS)


def _pickle(error: BaseException) -> bytes:
    """Pickle an exception with its cause, or without it, or return nothing."""
    for cause in (error.__cause__, None):
        try:
            data: bytes = cloudpickle.dumps((error, cause))
            # Some exceptions can be pickled but not unpickled.
            pickle.loads(data)
        except Exception:
            continue
        return data
    return b""


def _repr(key: object) -> str:
    try:
        return repr(key)
    except Exception:
        return f"<{type(key).__name__} without a representation>"
