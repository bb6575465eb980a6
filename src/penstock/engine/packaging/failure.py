"""A failure on its way from a worker to the driver, where it is raised again."""

from __future__ import annotations

import pickle
import traceback
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import msgspec

import penstock
from penstock.engine.packaging.escaping import escape_surrogates
from penstock.errors import ProcessingFailedException, StreamsException

#: Frames of these packages say nothing to the user.
_NOT_THE_USERS = (f"{Path(penstock.__file__).parent}/", "/pyspark/", "/py4j/", "<frozen ")


class Failure(msgspec.Struct, frozen=True):
    """What ended a task's batch, as plain data."""

    task: str
    #: The class of the error, and its message.
    kind: str
    message: str
    #: Where a record failed, if one did.
    processor: str | None = None
    topic: str | None = None
    partition: int = -1
    offset: int = -1
    #: The record's key, as text.
    key: str | None = None
    #: The user's part of it, down to the line that raised.
    traceback: str = ""
    #: The error and its cause, if they can travel.
    pickled: bytes = b""

    @classmethod
    def of(cls, task: str, error: BaseException) -> Failure:
        """Describe an error while its traceback is still there."""
        facts: dict[str, Any] = {}
        if isinstance(error, ProcessingFailedException):
            facts = {
                "processor": error.processor, "topic": error.topic, "partition": error.partition,
                "offset": error.offset, "key": None if error.key is None else _shown(error.key),
            }
        return cls(
            task, type(error).__qualname__, str(error), traceback=user_traceback(error),
            pickled=_pickled(error), **facts,
        )

    def escape_surrogates(self) -> Failure:
        """The same with texts that can be written; what is pickled stays as it was raised."""
        texts = {
            name: escape_surrogates(value) for name, value in msgspec.structs.asdict(self).items()
            if isinstance(value, str)
        }
        return msgspec.structs.replace(self, **texts)

    def exception(self) -> Exception:
        """The error to be raised; it has the user's traceback as `user_traceback` and as a note."""
        error = self._unpickled() or self._told()
        error.user_traceback = self.traceback  # type: ignore[attr-defined]
        if self.traceback:
            error.add_note(f"In task {self.task}:\n{self.traceback.rstrip()}")
        return error

    def _unpickled(self) -> Exception | None:
        if not self.pickled:
            return None
        try:
            error, cause = pickle.loads(self.pickled)
        except Exception:
            # Its class may be known to the worker only; the description is there anyway.
            return None
        if not isinstance(error, Exception):
            return None
        error.__cause__ = cause
        return error

    def _told(self) -> StreamsException:
        if self.processor is not None:
            return ProcessingFailedException(
                self.message, task_id=self.task, processor=self.processor, topic=self.topic,
                partition=self.partition, offset=self.offset, key=self.key,
            )
        return StreamsException(f"Task {self.task} failed: {self.kind}: {self.message}")


def user_traceback(error: BaseException) -> str:
    """The traceback of what really happened, without frames that are not the user's."""
    told = traceback.TracebackException.from_exception(error.__cause__ or error)
    each: traceback.TracebackException | None = told
    chain = []
    while each is not None:
        chain.append(each)
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
    stacks = [[frame for frame in each.stack if _is_the_users(frame)] for each in chain]
    if any(stacks):
        for each, frames in zip(chain, stacks, strict=True):
            each.stack = traceback.StackSummary.from_list(frames)
    return "".join(told.format())


def _is_the_users(frame: traceback.FrameSummary) -> bool:
    return not any(part in frame.filename for part in _NOT_THE_USERS)


def _pickled(error: BaseException) -> bytes:
    """The error with its cause, or without, or nothing: what comes back the same."""
    for cause in (error.__cause__, None):
        try:
            data: bytes = cloudpickle.dumps((error, cause))
            pickle.loads(data)
        except Exception:
            # Errors of users may refuse either way; the next attempt asks for less.
            continue
        return data
    return b""


def _shown(key: object) -> str:
    try:
        return repr(key)
    except Exception:
        return f"<a {type(key).__name__} that cannot be shown>"
