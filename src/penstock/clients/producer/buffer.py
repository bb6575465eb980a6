"""Records on their way from `produce` to the log, within the bounds of a buffer.

Invariants, under `_changed`:
- `_used` is the size of everything that is waiting, being sent, or reported but not yet called
  back; it passes `buffer_bytes` only for a single record.
- records are taken in the order in which they were put, all at once, by one sender; so the order
  of a partition is the order of the calls of `produce`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeAlias

from penstock.clients.errors import KafkaError, KafkaException
from penstock.clients.types import Message

DeliveryCallback: TypeAlias = Callable[["KafkaError | None", Message], object]


@dataclass(slots=True, eq=False)
class Pending:
    """A record that was not acknowledged yet."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...]
    #: As the buffer counts it.
    size: int
    #: When `produce` took it, on the monotonic clock.
    since: float
    callback: DeliveryCallback | None = None
    future: Future[Message] | None = None

    def message(self, offset: int, timestamp: tuple[int, int], error: KafkaError | None) -> Message:
        """The delivery report."""
        return Message(
            self.topic, self.partition, offset, key=self.key, value=self.value,
            headers=self.headers, error=error, timestamp=timestamp,
            latency=time.monotonic() - self.since,
        )


@dataclass(frozen=True, slots=True)
class OutboxLimits:
    """When to send, and how much may wait."""

    linger_ms: int
    batch_bytes: int
    batch_records: int
    buffer_bytes: int
    buffer_records: int
    max_block_ms: int


class Outbox:
    """The buffer between the threads that produce and the one that sends."""

    def __init__(self, limits: OutboxLimits) -> None:
        self._limits = limits
        self._changed = threading.Condition()
        self._waiting: list[Pending] = []
        self._waiting_bytes = 0
        self._sending = 0
        self._used = 0
        self._count = 0
        self._urgent = False
        self._closed = False
        self._reports: deque[tuple[Pending, KafkaError | None, Message]] = deque()

    def put(self, pending: Pending) -> None:
        """Take a record; waits for room up to `max.block.ms`, then `BufferError`."""
        limits = self._limits
        with self._changed:
            if not self._has_room(pending.size):
                self._wait_for_room(pending.size)
            waiting = self._waiting
            waiting.append(pending)
            self._waiting_bytes += pending.size
            self._used += pending.size
            self._count += 1
            if (
                len(waiting) == 1
                or self._waiting_bytes >= limits.batch_bytes
                or len(waiting) >= limits.batch_records
            ):
                self._changed.notify_all()

    def _has_room(self, size: int) -> bool:
        limits = self._limits
        if self._count == 0:
            return True
        if self._used + size > limits.buffer_bytes:
            return False
        return not limits.buffer_records or self._count < limits.buffer_records

    def _wait_for_room(self, size: int) -> None:
        end = time.monotonic() + self._limits.max_block_ms / 1000
        self._urgent = True
        self._changed.notify_all()
        while not self._has_room(size):
            if self._reports and not self._waiting and not self._sending:
                # Only callbacks can make room now.
                self._changed.release()
                try:
                    self.serve()
                finally:
                    self._changed.acquire()
                continue
            left = end - time.monotonic()
            if left > 0:
                self._changed.wait(left)
            else:
                raise BufferError(
                    f"The producer's buffer is full: {self._count} records of {self._used} bytes "
                    f"wait (buffer.memory is {self._limits.buffer_bytes}), and none could be sent "
                    f"within max.block.ms, {self._limits.max_block_ms}."
                )

    # The sender's side

    def take(self) -> list[Pending]:
        """Wait until there is a reason to send, and take all that waits; empty: closed."""
        with self._changed:
            while not self._closed or self._waiting:
                left = self._until_due()
                if left is not None and left <= 0:
                    taken, self._waiting = self._waiting, []
                    self._waiting_bytes = 0
                    self._urgent = False
                    self._sending = len(taken)
                    return taken
                self._changed.wait(left)
            return []

    def _until_due(self) -> float | None:
        waiting = self._waiting
        limits = self._limits
        if not waiting:
            return None
        if (
            self._urgent
            or self._closed
            or self._waiting_bytes >= limits.batch_bytes
            or len(waiting) >= limits.batch_records
        ):
            return 0
        return waiting[0].since + limits.linger_ms / 1000 - time.monotonic()

    def sent(self, reports: list[tuple[Pending, KafkaError | None, Message | None]]) -> None:
        """Tell what became of records that were taken; those nobody asks about make room."""
        futures: list[tuple[Future[Message], KafkaError | None, Message]] = []
        with self._changed:
            for pending, error, message in reports:
                if pending.callback is not None and message is not None:
                    self._reports.append((pending, error, message))
                else:
                    self._used -= pending.size
                    self._count -= 1
                if pending.future is not None and message is not None:
                    futures.append((pending.future, error, message))
            self._sending -= len(reports)
            self._changed.notify_all()
        for future, error, message in futures:
            resolve(future, error, message)

    # The caller's side

    def serve(self, timeout: float | None = 0) -> int:
        """Call the callbacks that are due; waits for the first one. Answers how many."""
        end = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while not self._reports and (self._waiting or self._sending or timeout):
                left = None if end is None else end - time.monotonic()
                if self._closed or (left is not None and left <= 0):
                    break
                self._changed.wait(left)
        served = 0
        while self._reports:
            try:
                pending, error, message = self._reports.popleft()
            except IndexError:  # another thread was faster
                break
            with self._changed:
                self._used -= pending.size
                self._count -= 1
                self._changed.notify_all()
            served += 1
            if pending.callback is not None:
                pending.callback(error, message)
        return served

    def flush(self, timeout: float | None) -> int:
        """Send all that waits now, call the callbacks; answers how many records are left."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            self.serve()
            with self._changed:
                if not self._waiting and not self._sending:
                    if not self._reports:
                        return self._count
                    continue
                self._urgent = True
                self._changed.notify_all()
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    return self._count
                self._changed.wait(left)

    def purge(self) -> list[Pending]:
        """Take out what waits and is not being sent."""
        with self._changed:
            taken, self._waiting = self._waiting, []
            self._waiting_bytes = 0
            self._sending += len(taken)
            return taken

    def close(self) -> None:
        """Let the sender end once nothing waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __len__(self) -> int:
        return self._count


def resolve(future: Future[Message], error: KafkaError | None, message: Message) -> None:
    """Finish a future, unless somebody gave it up."""
    if not future.set_running_or_notify_cancel():
        return
    if error is None:
        future.set_result(message)
    else:
        future.set_exception(KafkaException(error))
