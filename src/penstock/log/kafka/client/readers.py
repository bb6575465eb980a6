"""Pooled consumers, one partition each.

A `Reader` is idle, or positioned in one partition. It prefetches, so continuing at its position
costs nothing, and any other position costs a fetch. The end of a partition is known only from an
event of librdkafka (`_PARTITION_EOF`), which follows a fetch without records; its offset is behind
transaction markers and other offsets without a record.

A reader at the end of its partition polls the broker continuously. Therefore a thread unassigns
readers that were not used for a while. The thread runs only while there are such readers.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from confluent_kafka import KafkaError, KafkaException

from penstock.log.kafka.client.column_buffer import ColumnBuffer
from penstock.log.kafka.client.connection import Connection
from penstock.log.kafka.client.errors import error_of
from penstock.log.kafka.client.native_io import create_consumer
from penstock.log.types import TopicPartition
from penstock.record import PartitionColumns

#: The size of the pool. More readers are created only while all are in use.
_POOL_SIZE = 16
#: A reader is unassigned after this time without use.
_IDLE_S = 1.0
_POLL_S = 0.25
#: The most records that one call of the consumer returns.
_CONSUME_RECORDS = 4096


class FetchError(Exception):
    """A broker rejected a fetch, or did not respond for a while (`error` is None)."""

    def __init__(self, error: KafkaError | None, offset: int | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        #: The offset of the batch that could not be read, if the error is about one.
        self.offset = offset


class Reader:
    """One consumer. Used by one thread at a time."""

    def __init__(self, connection: Connection) -> None:
        self._consumer = create_consumer(connection.settings.reader())
        self.topic = ""
        self.partition = -1
        #: The next offset to be returned.
        self.position = 0
        self.used_at = 0.0
        self._fetched = ColumnBuffer()
        #: The end of the partition behind everything fetched, once it is known.
        self._end = -1
        self._failed: FetchError | None = None

    @property
    def is_unassigned(self) -> bool:
        """Whether it has no position."""
        return not self.topic

    def is_at(self, topic: str, partition: int, position: int) -> bool:
        """Return whether it can continue at this position without a new fetch."""
        return (self.topic, self.partition, self.position) == (topic, partition, position)

    def seek(self, topic: str, partition: int, position: int) -> None:
        """Move to a position."""
        if self.is_at(topic, partition, position):
            return
        self._clear()
        self._consumer.replace({TopicPartition(topic, partition): position})
        self.topic, self.partition, self.position = topic, partition, position

    def take(self, end: int, max_records: int, timeout: float) -> list[PartitionColumns]:
        """Return the next records below the offset `end`, at most `max_records`, in pieces.

        The position moves behind the last record; if there are fewer than `max_records`, to `end`.
        Raises `FetchError` if a fetch was rejected or nothing arrived within the timeout.
        """
        taken: list[PartitionColumns] = []
        left = max_records
        waiting_since = time.monotonic()
        while left > 0 and self.position < end:
            piece = self._fetched.take(left, end)
            if piece is not None:
                taken.append(piece)
                left -= len(piece)
                self.position = piece.offsets[-1] + 1
            elif len(self._fetched):
                # The next record belongs to the next range.
                self.position = end
            elif self._end > self.position:
                self.position = min(self._end, end)
            elif self._failed is not None:
                raise self._failed
            elif self._fetch(left):
                waiting_since = time.monotonic()
            elif time.monotonic() - waiting_since > timeout:
                raise FetchError(None)
        return taken

    def _fetch(self, wanted: int) -> bool:
        """Wait for the next records or events. Returns whether any arrived."""
        try:
            fetched = self._consumer.consume(_POLL_S, min(wanted, _CONSUME_RECORDS))
        except KafkaException as raised:
            raise FetchError(error_of(raised)) from raised
        for where, records, end, error, error_offset in fetched:
            if error is not None:
                self._failed = FetchError(error, None if error_offset < 0 else error_offset)
            if where != (self.topic, self.partition):
                continue
            if records is not None:
                self._fetched.add(records, self.position)
            self._end = max(self._end, end)
        return bool(fetched)

    def push_back(self, columns: PartitionColumns) -> None:
        """Return records that were taken last; they are the next ones again."""
        if len(columns):
            self._fetched.push_back(columns)
            self.position = columns.offsets[0]

    def unassign(self) -> None:
        """Give up the position and stop fetching."""
        self._clear()
        self.topic, self.partition = "", -1
        with contextlib.suppress(KafkaException, RuntimeError):
            self._consumer.replace({})

    def _clear(self) -> None:
        self._fetched.clear()
        self._end = -1
        self._failed = None

    def close(self) -> None:
        """Close the consumer."""
        with contextlib.suppress(KafkaException, RuntimeError):
            self._consumer.close()


class Readers:
    """The pool of readers of one log in one process. Thread-safe."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._idle: list[Reader] = []
        #: Whether the thread that unassigns idle readers runs.
        self._is_watched = False
        self._closed = False

    @contextlib.contextmanager
    def at(self, topic: str, partition: int, position: int) -> Iterator[Reader]:
        """Borrow a reader at a position."""
        reader = self._borrow(topic, partition, position)
        try:
            reader.seek(topic, partition, position)
            yield reader
        except BaseException:
            reader.close()
            raise
        self._give_back(reader)

    def _borrow(self, topic: str, partition: int, position: int) -> Reader:
        with self._lock:
            chosen = next(
                (one for one in self._idle if one.is_at(topic, partition, position)), None
            ) or next((one for one in self._idle if one.is_unassigned), None)
            if chosen is None and len(self._idle) >= _POOL_SIZE:
                chosen = min(self._idle, key=lambda one: one.used_at)
            if chosen is not None:
                self._idle.remove(chosen)
        return chosen or Reader(self._connection)

    def _give_back(self, reader: Reader) -> None:
        reader.used_at = time.monotonic()
        with self._lock:
            if not self._closed and len(self._idle) < _POOL_SIZE:
                self._idle.append(reader)
                if not self._is_watched:
                    self._is_watched = True
                    threading.Thread(
                        target=self._unassign_idle, name="penstock-kafka-readers", daemon=True
                    ).start()
                return
        reader.close()

    def _unassign_idle(self) -> None:
        while True:
            time.sleep(_IDLE_S / 2)
            with self._lock:
                assigned = [one for one in self._idle if not one.is_unassigned]
                if not assigned or self._closed:
                    self._is_watched = False
                    return
                before = time.monotonic() - _IDLE_S
                for reader in assigned:
                    if reader.used_at < before:
                        reader.unassign()

    def close_topic(self, topic: str) -> None:
        """Close the idle readers of a topic."""
        with self._lock:
            gone = [one for one in self._idle if one.topic == topic]
            self._idle = [one for one in self._idle if one.topic != topic]
        for reader in gone:
            reader.close()

    def close(self) -> None:
        """Close all idle readers."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for reader in idle:
            reader.close()
