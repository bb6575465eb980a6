"""The queue of records of one source partition (M3, M4)."""

from __future__ import annotations

import logging
import operator
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.errors import StreamsException
from penstock.native import core
from penstock.processors.base import Forward
from penstock.record import NO_HEADERS, Headers, PartitionColumns, RecordMetadata
from penstock.serdes.builtin import Serde
from penstock.serdes.headers import RecordHeaders, bind_headers
from penstock.task.error_handling import ExceptionHandlers
from penstock.task.meters import Measured
from penstock.task.punctuation import NEVER
from penstock.task.runtime import Runtime
from penstock.timestamps import (
    ConsumedRecord,
    FailOnInvalidTimestamp,
    LogAndSkipOnInvalidTimestamp,
)

#: The number of records between two checks of the task's budget, at most.
CHUNK = 1024


class RawRecord(NamedTuple):
    """A serialized record of a topic."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    def columns(self) -> PartitionColumns:
        """The record as columns, the form that a queue takes."""
        return PartitionColumns(
            topic=self.topic, partition=self.partition, offsets=(self.offset,),
            timestamps=(self.timestamp,), keys=(self.key,), values=(self.value,),
            headers=(self.headers,),
        )


@dataclass(frozen=True, slots=True)
class RecordRange:
    """A range of a partition.

    `cut`: the partition has more records after the range. When the range runs empty, the task must
    not continue with other partitions. `whole`: the task must process all records in this batch,
    because they are not offered again.
    """

    records: PartitionColumns
    cut: bool = False
    whole: bool = False


@dataclass(frozen=True)
class QueueSource:
    """The source node of a queue: its name, serdes, timestamp extractor and forward function."""

    name: str
    serdes: tuple[Serde[Any], Serde[Any]]
    extract: Callable[[ConsumedRecord, int], int]
    forward: Forward
    handlers: ExceptionHandlers


class RecordQueue:
    """A queue of serialized records whose head is always deserialized.

    `has_head` tells whether a head exists. `time` is its timestamp, which orders the queues of a
    task. `partition_time` is the largest timestamp processed. A head that only represents skipped
    records is `corrupted`.
    """

    __slots__ = (
        "_extract", "_extracted", "_feed_bytes", "_feeds", "_finished", "_handlers",
        "_head_headers", "_measured", "_next", "_plain_time", "_rejected", "_runtime",
        "_sees_headers", "_serdes", "_source", "_sums", "at", "corrupted", "cut", "forward",
        "has_head", "key", "name", "next_offset", "partition", "partition_time", "rows", "skipped",
        "taken", "time", "topic", "value", "whole",
    )

    def __init__(
        self, topic: str, partition: int, source: QueueSource, runtime: Runtime
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.name = source.name
        self.forward = source.forward
        self.has_head = False
        self.corrupted = False
        self.rows: Any = None
        self.at = 0
        self.key: Any = None
        self.value: Any = None
        self.time = -1
        self.partition_time = -1
        #: The offset after the last processed record, or -1.
        self.next_offset = -1
        self.taken = 0
        #: The number of records that could not be deserialized and were skipped.
        self.skipped = 0
        self.cut = False
        self.whole = False
        self._source = source
        #: The headers of the record that is being deserialized, for serdes that depend on them.
        self._head_headers = RecordHeaders()
        self._serdes, self._sees_headers = bind_headers(source.serdes, self._head_headers)
        self._extract = source.extract
        self._plain_time = type(source.extract) is FailOnInvalidTimestamp
        self._handlers = source.handlers
        self._runtime = runtime
        self._feeds: deque[PartitionColumns] = deque()
        #: The size of each feed.
        self._feed_bytes: deque[int] = deque()
        #: The index of the next record of the first feed.
        self._next = 0
        #: The index of the first record of the first feed that `take_consumed` has not returned.
        self._measured = 0
        #: Consumed records before that: rows, first and last index.
        self._finished: list[tuple[PartitionColumns, int, int]] = []
        #: The measurements of records that native code has measured.
        self._sums: list[Measured] = []
        #: The timestamps of an extractor since `take_extracted`.
        self._extracted: list[int] = []
        #: Consumed records since `take_rejected` that never become the head.
        self._rejected = 0

    @property
    def keeps_timestamps(self) -> bool:
        """Whether records are processed with the timestamps that they have in the log."""
        return self._plain_time

    def take_consumed(self) -> list[tuple[PartitionColumns, int, int]]:
        """Return the records that were consumed since the last call: rows, first and last index.

        Includes those that were skipped, but not those of `take_measured`.
        """
        consumed, self._finished = self._finished, []
        if self._feeds:
            rows = self._feeds[0]
            # The head is a record of the first feed, and is not consumed yet.
            end = self._next - (self.has_head and self.rows is rows)
            consumed.append((rows, self._measured, end))
            self._measured = end
        return [span for span in consumed if span[1] < span[2]]

    def take_measured(self) -> list[Measured]:
        """Return the measurements since the last call of records that `take_consumed` omits."""
        measured, self._sums = self._sums, []
        return measured

    def take_extracted(self) -> list[int]:
        """Return the timestamps that an extractor of the user has returned since the last call."""
        extracted, self._extracted = self._extracted, []
        return extracted

    def take_rejected(self) -> int:
        """Return how many records since the last call were consumed but not processed.

        They could not be deserialized, or have no valid timestamp.
        """
        rejected, self._rejected = self._rejected, 0
        return rejected

    def _note_measured(
        self, rows: PartitionColumns, first: int, last: int, measured: Measured
    ) -> None:
        """Native code has measured records of the first feed."""
        if self._measured < first:
            self._finished.append((rows, self._measured, first))
        self._measured = last
        self._sums.append(measured)

    def _drop_feed(self) -> None:
        """Remove the first feed, whose records are consumed."""
        rows = self._feeds.popleft()
        self._feed_bytes.popleft()
        if self._measured < len(rows):
            self._finished.append((rows, self._measured, len(rows)))
        self._next = self._measured = 0

    @property
    def position(self) -> int:
        """The offset to resume from: after all skipped records, before the head."""
        if self.has_head:
            offset: int = self.rows.offsets[self.at]
            return offset + self.corrupted
        return self.next_offset

    @property
    def size(self) -> int:
        """The number of queued records."""
        return sum(map(len, self._feeds)) - self._next + self.has_head

    @property
    def size_bytes(self) -> int:
        """The size of the feeds, as far as it is known. A feed stays until all of it is
        consumed."""
        return sum(self._feed_bytes)

    def add(self, rows: PartitionColumns, size: int = 0) -> None:
        """Append records. `size`: their bytes, if `size_bytes` is used."""
        self._feeds.append(rows)
        self._feed_bytes.append(size)
        if not self.has_head:
            self.next_head()

    def next_head(self) -> None:
        """Deserialize the next record, if there is one."""
        self.has_head = False
        self.corrupted = False
        before = self.skipped
        feeds = self._feeds
        while feeds:
            rows = feeds[0]
            for at in range(self._next, len(rows)):
                self._next = at + 1
                if self._set_head(rows, at):
                    return
                self.skipped += 1
            self._drop_feed()
        if self.skipped > before:
            self.has_head = self.corrupted = True
            self.time = -1

    def _set_head(
        self, rows: PartitionColumns, at: int, halves: tuple[Any, ...] = (),
        failure: Exception | None = None,
    ) -> bool:
        """Make a record the head. Returns False if it must be skipped.

        `halves` holds the key, or key and value, if they are deserialized already. `reader` raised
        `failure` for the next one.
        """
        self.rows = rows
        self.at = at
        known = len(halves)
        if self._sees_headers:
            self._head_headers.headers = NO_HEADERS if rows.headers is None else rows.headers[at]
        part = "key"
        try:
            key = halves[0] if known else self._read(0, rows.keys[at], failure)
            part = "value"
            value = halves[1] if known > 1 else self._read(
                1, rows.values[at], failure if known else None
            )
        except Exception as error:
            raw = self._consumed(rows.keys[at], rows.values[at])
            origin = None if rows.origins is None else rows.origins.position(at)
            self._handlers.not_deserialized(self.name, raw, part, error, origin)
            self._rejected += 1
            return False
        timestamp = rows.timestamps[at]
        if not self._plain_time or timestamp < 0:
            timestamp = self._timestamp(key, value)
            if timestamp < 0:
                self._drop_invalid_time()
                self._rejected += 1
                return False
            self._extracted.append(timestamp)
        self.has_head = True
        self.key = key
        self.value = value
        self.time = timestamp
        return True

    def _drop_invalid_time(self) -> None:
        runtime, rows, at = self._runtime, self.rows, self.at
        runtime.drop("negative extracted timestamp")
        if type(self._extract) is not LogAndSkipOnInvalidTimestamp:
            # That extractor has logged the record.
            runtime.drop_notes.add(
                self.name, "dropped a record: negative extracted timestamp", logging.WARNING,
                lambda: RecordMetadata(rows.topic, rows.partition, rows.offsets[at]),
            )

    def _read(self, half: int, data: bytes | None, failure: Exception | None) -> Any:
        serde = self._serdes[half]
        if failure is not None and not serde.has_careful_reader:
            # The user's deserializer raised it, and is called only once per record.
            raise failure
        return None if data is None else serde.deserialize(data)

    def process_chunk(self, size: int = CHUNK) -> bool:
        """Process the head and at most `size` further records. False if the queue is empty.

        Only valid if no other queue has records.
        """
        if self.has_head:
            self.take()
            if not self.corrupted:
                self.process(self.rows, self.at, self.key, self.value, self.time)
            self.has_head = False
        while self._feeds:
            rows, first = self._feeds[0], self._next
            last = min(first + size, len(rows))
            if first < last:
                self._take_rows(rows, first, last)
                return True
            self._drop_feed()
        return False

    def process_before(self, limit: int, size: int = CHUNK) -> bool:
        """Process the head and `size` following records at most, with timestamps before `limit`.

        Returns False, without processing anything, if there is no such record after the head.
        """
        if not self._feeds or not self._plain_time or self.corrupted:
            return False
        rows, first = self._feeds[0], self._next
        times = rows.timestamps
        last, end = first, min(first + size, len(rows))
        while last < end and 0 <= times[last] < limit:
            last += 1
        if last == first:
            return False
        self.take()
        self.process(self.rows, self.at, self.key, self.value, self.time)
        self._take_rows(rows, first, last)
        self.next_head()
        return True

    def _take_rows(self, rows: PartitionColumns, first: int, last: int) -> None:
        """Process records of the first feed."""
        self._process_rows(rows, first, last)
        self._next = last
        self.taken += last - first
        self.next_offset = rows.offsets[last - 1] + 1

    def _process_rows(self, rows: PartitionColumns, first: int, last: int) -> None:
        """Process records one by one: the hot path, bound to local names."""
        if self._sees_headers:
            self._process_rows_with_headers(rows, first, last)
            return
        read_key, read_value = (serde.reader for serde in self._serdes)
        if core is not None:
            found = core.process_rows(
                self, self._runtime, rows, (first, last), (read_key, read_value),
                (self._plain_time, NEVER, NO_HEADERS), self._set_head, self._runtime.now(),
            )
            self.partition_time = found[0]
            self.has_head = False
            if rows.headers is None:
                self._note_measured(rows, first, last, Measured(*found[1:]))
            return
        runtime, current = self._runtime, self._runtime.current
        forward, set_head = self.forward, self._set_head
        plain_from = 0 if self._plain_time else NEVER
        schedules = runtime.stream_schedules
        stream_time, partition_time = runtime.stream_time, self.partition_time
        all_headers, headers = rows.headers, NO_HEADERS
        current.rows = rows
        for at, timestamp, key, value in zip(
            range(first, last), rows.timestamps[first:last], rows.keys[first:last],
            rows.values[first:last], strict=True,
        ):
            failure, known = None, 0
            try:
                if key is not None:
                    key = read_key(key)
                known = 1
                if value is not None:
                    value = read_value(value)
                known = 2
            except Exception as error:
                failure, timestamp = error, -1
            if timestamp < plain_from:
                # The careful path: calls the deserialization handler and the extractor.
                self.partition_time = partition_time
                if not set_head(rows, at, (key, value)[:known], failure):
                    continue
                key, value, timestamp = self.key, self.value, self.time
            if timestamp > partition_time:
                partition_time = timestamp
                if timestamp > stream_time:
                    runtime.stream_time = stream_time = timestamp
            if all_headers is not None:
                headers = all_headers[at]
            current.at = at
            current.sent = False
            current.timestamp = timestamp
            current.headers = headers
            forward(key, value, timestamp, headers)
            if schedules.next_due <= stream_time:
                schedules.fire(stream_time, runtime.punctuate)
                current.rows = rows
        self.has_head = False
        self.partition_time = partition_time

    def _process_rows_with_headers(self, rows: PartitionColumns, first: int, last: int) -> None:
        """Process records one by one with serdes that depend on headers."""
        runtime = self._runtime
        for at in range(first, last):
            if not self._set_head(rows, at):
                continue
            if self.time > self.partition_time:
                self.partition_time = self.time
            if self.time > runtime.stream_time:
                runtime.stream_time = self.time
            self.process(rows, at, self.key, self.value, self.time)
        self.has_head = False

    def take(self) -> None:
        """Count the head as processed; its fields stay valid until `next_head`."""
        self.next_offset = self.rows.offsets[self.at] + 1
        self.taken += 1
        time = self.time
        if time > self.partition_time:
            self.partition_time = time
        if time > self._runtime.stream_time:
            self._runtime.stream_time = time

    def process(
        self, rows: PartitionColumns, at: int, key: Any, value: Any, timestamp: int
    ) -> None:
        """Process a record, then fire the schedules that its timestamp makes due."""
        runtime = self._runtime
        current = runtime.current
        current.rows = rows
        current.at = at
        current.sent = False
        current.timestamp = timestamp
        current.headers = headers = NO_HEADERS if rows.headers is None else rows.headers[at]
        self.forward(key, value, timestamp, headers)
        schedules = runtime.stream_schedules
        if schedules.next_due <= runtime.stream_time:
            schedules.fire(runtime.stream_time, runtime.punctuate)

    def _consumed(self, key: Any, value: Any) -> ConsumedRecord:
        rows, at = self.rows, self.at
        return ConsumedRecord(
            rows.topic, rows.partition, rows.offsets[at], rows.timestamps[at], key, value,
            NO_HEADERS if rows.headers is None else rows.headers[at],
        )

    def _timestamp(self, key: Any, value: Any) -> int:
        consumed = self._consumed(key, value)
        try:
            timestamp = self._extract(consumed, self.partition_time)
            return timestamp if type(timestamp) is int else _milliseconds(timestamp)
        except StreamsException:
            raise
        except Exception as error:
            raise StreamsException(
                f"The timestamp extractor of {self.name} failed for the record at topic "
                f"{consumed.topic}, partition {consumed.partition}, offset {consumed.offset}: "
                f"{error}"
            ) from error


def _milliseconds(extracted: Any) -> int:
    """Convert the result of an extractor that is not a plain int, such as a numpy integer."""
    if not isinstance(extracted, bool):
        try:
            return int(operator.index(extracted))
        except TypeError:
            pass
    raise TypeError(
        f"It returned {extracted!r}, of type {type(extracted).__name__}. It must return epoch "
        "milliseconds as an int."
    )
