"""The buffer of a producer, between the threads that call `produce` and the sender thread.

Invariants, under `_changed`:
- `_used_bytes` is the total size of all records that wait, are being sent, or whose callback has
  not run yet. It exceeds `buffer_bytes` only if the buffer holds a single record.
- One sender drains the buffer, always completely and in order, so the order within a partition is
  the order of the calls of `produce`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeAlias

from penstock.clients.errors import KafkaError, KafkaException
from penstock.clients.types import Message

log = logging.getLogger(__name__)

DeliveryCallback: TypeAlias = Callable[["KafkaError | None", Message], object]


@dataclass(slots=True, eq=False)
class PendingRecord:
    """A record that is not acknowledged yet."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...]
    #: Counts against `buffer.memory`.
    size: int
    #: The time of the call of `produce`, on the monotonic clock.
    created_at: float
    callback: DeliveryCallback | None = None
    future: Future[Message] | None = None

    def message(self, offset: int, timestamp: tuple[int, int], error: KafkaError | None) -> Message:
        """Return the message of the delivery report."""
        return Message(
            self.topic, self.partition, offset, key=self.key, value=self.value,
            headers=self.headers, error=error, timestamp=timestamp,
            latency=time.monotonic() - self.created_at,
        )


#: A record, its error if delivery failed, and its message if there is a callback or a future.
DeliveryReport: TypeAlias = tuple[PendingRecord, "KafkaError | None", "Message | None"]


def _log_unseen_errors(unseen: Counter[tuple[str, str]]) -> None:
    """Log the errors that no callback and no future reports. `unseen`: by topic and reason."""
    for (topic, reason), count in unseen.items():
        log.warning(
            "Not delivered to topic '%s': %d record%s. %s Pass on_delivery to handle such errors.",
            topic, count, "" if count == 1 else "s",
            reason if reason.endswith(".") else f"{reason}.",
        )


@dataclass(frozen=True, slots=True)
class BufferLimits:
    """The size of batches and of the buffer."""

    linger_ms: int
    batch_bytes: int
    batch_records: int
    buffer_bytes: int
    #: 0: no limit.
    buffer_records: int
    max_block_ms: int


class RecordBuffer:
    """Holds records until they are delivered and their callbacks have run."""

    def __init__(self, limits: BufferLimits) -> None:
        self._limits = limits
        self._changed = threading.Condition()
        self._waiting: list[PendingRecord] = []
        self._waiting_bytes = 0
        self._in_flight = 0
        self._used_bytes = 0
        self._used_records = 0
        #: The next drain does not wait for `linger.ms`.
        self._flush_requested = False
        self._closed = False
        self._callbacks: deque[tuple[PendingRecord, KafkaError | None, Message]] = deque()

    def append(self, record: PendingRecord) -> None:
        """Add a record. Waits up to `max.block.ms` for room, then raises `BufferError`."""
        limits = self._limits
        with self._changed:
            if not self._has_room(record.size):
                self._wait_for_room(record.size)
            waiting = self._waiting
            waiting.append(record)
            self._waiting_bytes += record.size
            self._used_bytes += record.size
            self._used_records += 1
            if (
                len(waiting) == 1
                or self._waiting_bytes >= limits.batch_bytes
                or len(waiting) >= limits.batch_records
            ):
                self._changed.notify_all()

    def _has_room(self, size: int) -> bool:
        limits = self._limits
        if self._used_records == 0:
            return True
        if self._used_bytes + size > limits.buffer_bytes:
            return False
        return not limits.buffer_records or self._used_records < limits.buffer_records

    def _wait_for_room(self, size: int) -> None:
        deadline = time.monotonic() + self._limits.max_block_ms / 1000
        self._flush_requested = True
        self._changed.notify_all()
        while not self._has_room(size):
            if self._callbacks and not self._waiting and not self._in_flight:
                # Everything is delivered: only callbacks can free room.
                self._changed.release()
                try:
                    self.run_callbacks()
                finally:
                    self._changed.acquire()
                continue
            remaining = deadline - time.monotonic()
            if remaining > 0:
                self._changed.wait(remaining)
            else:
                raise BufferError(
                    f"The producer's buffer is full: {self._used_records} records with "
                    f"{self._used_bytes} bytes are waiting (buffer.memory is "
                    f"{self._limits.buffer_bytes}). No record was sent within max.block.ms "
                    f"({self._limits.max_block_ms})."
                )

    # Called by the sender thread

    def drain(self) -> list[PendingRecord]:
        """Wait until a batch is due and take all waiting records; empty after `close`."""
        with self._changed:
            while not self._closed or self._waiting:
                remaining = self._time_until_due()
                if remaining is not None and remaining <= 0:
                    records, self._waiting = self._waiting, []
                    self._waiting_bytes = 0
                    self._flush_requested = False
                    self._in_flight += len(records)
                    return records
                self._changed.wait(remaining)
            return []

    def _time_until_due(self) -> float | None:
        waiting = self._waiting
        limits = self._limits
        if not waiting:
            return None
        if (
            self._flush_requested
            or self._closed
            or self._waiting_bytes >= limits.batch_bytes
            or len(waiting) >= limits.batch_records
        ):
            return 0
        return waiting[0].created_at + limits.linger_ms / 1000 - time.monotonic()

    def complete(self, reports: list[DeliveryReport]) -> None:
        """Resolve futures and queue callbacks of drained records; free the room of the others."""
        futures: list[tuple[Future[Message], KafkaError | None, Message]] = []
        unseen: Counter[tuple[str, str]] = Counter()
        with self._changed:
            for record, error, message in reports:
                if record.callback is not None and message is not None:
                    self._callbacks.append((record, error, message))
                else:
                    self._used_bytes -= record.size
                    self._used_records -= 1
                if record.future is not None and message is not None:
                    futures.append((record.future, error, message))
                elif error is not None and record.callback is None:
                    unseen[record.topic, error.str()] += 1
            self._in_flight -= len(reports)
            self._changed.notify_all()
        for future, error, message in futures:
            resolve_future(future, error, message)
        _log_unseen_errors(unseen)

    # Called by the program

    def run_callbacks(self, timeout: float | None = 0) -> int:
        """Run the queued callbacks and return their number. Waits for the first one."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while not self._callbacks and (self._waiting or self._in_flight or timeout):
                remaining = None if deadline is None else deadline - time.monotonic()
                if self._closed or (remaining is not None and remaining <= 0):
                    break
                self._changed.wait(remaining)
        count = 0
        while self._callbacks:
            try:
                record, error, message = self._callbacks.popleft()
            except IndexError:  # Another thread took the last one.
                break
            with self._changed:
                self._used_bytes -= record.size
                self._used_records -= 1
                self._changed.notify_all()
            count += 1
            if record.callback is not None:
                record.callback(error, message)
        return count

    def flush(self, timeout: float | None) -> int:
        """Send all records and run their callbacks. Returns the number of remaining records."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            self.run_callbacks()
            with self._changed:
                if not self._waiting and not self._in_flight:
                    if not self._callbacks:
                        return self._used_records
                    continue
                self._flush_requested = True
                self._changed.notify_all()
                remaining = None if deadline is None else deadline - time.monotonic()
                if remaining is not None and remaining <= 0:
                    return self._used_records
                self._changed.wait(remaining)

    def purge(self) -> list[PendingRecord]:
        """Remove and return the records that are not being sent. Pass them to `complete`."""
        with self._changed:
            records, self._waiting = self._waiting, []
            self._waiting_bytes = 0
            self._in_flight += len(records)
            return records

    def close(self) -> None:
        """Let the sender thread end once the buffer is empty."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __len__(self) -> int:
        return self._used_records


def resolve_future(future: Future[Message], error: KafkaError | None, message: Message) -> None:
    """Set the result or the exception of a future that is not cancelled."""
    if not future.set_running_or_notify_cancel():
        return
    if error is None:
        future.set_result(message)
    else:
        future.set_exception(KafkaException(error))
