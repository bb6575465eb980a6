"""Fetches and prefetches the records of a consumer's partitions.

The `position` of a `PartitionCursor` is the offset after the last record that the program got: the
offset to commit. Prefetched records are in `batches`; a seek discards them.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from penstock.clients.errors import (
    ConsumeError,
    KafkaError,
    KeyDeserializationError,
    ValueDeserializationError,
    kafka_exception,
    to_kafka_error,
)
from penstock.clients.serialization import TopicSerde
from penstock.clients.types import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Message,
)
from penstock.log.base import Log
from penstock.log.errors import LogError, OffsetOutOfRange, UnknownTopic
from penstock.log.types import PartitionOffsets, TopicPartition
from penstock.record import NO_HEADERS, PartitionColumns

logger = logging.getLogger(__name__)

#: Maximum number of prefetched records per partition.
_MAX_PREFETCHED = 10_000


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """The size of fetches and the initial position."""

    min_bytes: int
    max_wait_ms: int
    max_bytes: int
    partition_max_bytes: int
    #: "earliest", "latest" or "error".
    offset_reset: str
    partition_eof: bool


class PartitionCursor:
    """The position in one assigned partition, with its prefetched records."""

    __slots__ = (
        "batches", "buffered_bytes", "failed", "fetch_offset", "partition", "paused", "position",
        "reported_end", "reported_error", "row", "start_offset", "timestamp_type",
    )

    def __init__(self, partition: TopicPartition, offset: int) -> None:
        self.partition = partition
        self.paused = False
        self.timestamp_type = 0
        self.seek(offset)

    def seek(self, offset: int) -> None:
        """Move to an offset. The next fetch resolves a logical one."""
        #: None: not resolved yet.
        self.position: int | None = offset if offset >= 0 else None
        self.start_offset = offset
        self.batches: deque[PartitionColumns] = deque()
        #: The next record of the first batch.
        self.row = 0
        #: The offset after the prefetched records.
        self.fetch_offset: int | None = None
        self.buffered_bytes = 0
        #: The end for which `enable.partition.eof` sent an event.
        self.reported_end: int | None = None
        self.reported_error: int | None = None
        #: No position could be determined; the program has to seek.
        self.failed = False

    def add(self, batch: PartitionColumns, size: int) -> None:
        """Add prefetched records."""
        self.batches.append(batch)
        self.buffered_bytes += size


class Fetcher:
    """Reads the partitions of one consumer in turn."""

    def __init__(
        self,
        log: Log,
        settings: FetchSettings,
        key_serde: TopicSerde,
        value_serde: TopicSerde,
        group_id: str,
    ) -> None:
        self._log = log
        self._settings = settings
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._group_id = group_id
        #: In the order of the next reads.
        self.cursors: dict[TopicPartition, PartitionCursor] = {}
        #: While fewer than `fetch.min.bytes` are prefetched, records are held back until this time.
        self._held_until = 0.0
        #: Errors that the program gets in place of a record.
        self.events: deque[Message] = deque()

    def add(self, partition: TopicPartition, offset: int = OFFSET_STORED) -> None:
        """Add a partition that starts at an offset, which may be a logical one."""
        start = offset if offset != OFFSET_INVALID else OFFSET_STORED
        self.cursors[partition] = PartitionCursor(partition, start)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions."""
        for partition in partitions:
            self.cursors.pop(partition, None)

    def cursor(self, partition: TopicPartition) -> PartitionCursor:
        """Return the cursor of a partition. Raises if it is not assigned."""
        cursor = self.cursors.get(partition)
        if cursor is None:
            raise kafka_exception(
                KafkaError._STATE,
                f"'{partition.topic}' [{partition.partition}] is not assigned to this consumer.",
            )
        return cursor

    # Returning prefetched records

    def take(self, limit: int, messages: list[Message]) -> bool:
        """Append prefetched records to `messages` until it has `limit` elements.

        A record that cannot be deserialized raises if `messages` is empty. Otherwise the method
        stops before it and returns False, so that the call returns the messages first.
        """
        if self._held_until and not self._may_release():
            return True
        for cursor in list(self.cursors.values()):
            if len(messages) >= limit:
                break
            if cursor.batches and not cursor.paused:
                if not self._take_from(cursor, limit, messages):
                    return False
                if not cursor.batches:
                    # The other partitions come first next time.
                    self.cursors[cursor.partition] = self.cursors.pop(cursor.partition)
        return True

    def _take_from(self, cursor: PartitionCursor, limit: int, messages: list[Message]) -> bool:
        topic, partition = cursor.partition
        read_key = self._key_serde.function(topic)
        read_value = self._value_serde.function(topic)
        sees_headers = self._key_serde.sees_headers or self._value_serde.sees_headers
        timestamp_type = cursor.timestamp_type
        while cursor.batches and len(messages) < limit:
            batch = cursor.batches[0]
            first = cursor.row
            stop = min(len(batch), first + limit - len(messages))
            headers = batch.headers
            for row in range(first, stop):
                key, value = batch.keys[row], batch.values[row]
                message = Message(
                    topic, partition, batch.offsets[row], key=key, value=value,
                    headers=None if headers is None else headers[row],
                    timestamp=(timestamp_type, batch.timestamps[row]),
                )
                if sees_headers:
                    record_headers = NO_HEADERS if headers is None else headers[row]
                    self._key_serde.set_headers(record_headers)
                    self._value_serde.set_headers(record_headers)
                if read_key is not None or read_value is not None:
                    error = _deserialize(message, read_key, read_value)
                    if error is not None:
                        if messages:
                            self._advance(cursor, row)
                            return False
                        self._advance(cursor, row + 1)
                        raise error
                messages.append(message)
            self._advance(cursor, stop)
        return True

    def _advance(self, cursor: PartitionCursor, row: int) -> None:
        batch = cursor.batches[0]
        if row > cursor.row:
            cursor.position = batch.offsets[row - 1] + 1
        cursor.row = row
        if row >= len(batch):
            cursor.batches.popleft()
            cursor.row = 0
            if not cursor.batches:
                cursor.buffered_bytes = 0
                # Also skips offsets without a record after the last one.
                cursor.position = cursor.fetch_offset

    def _may_release(self) -> bool:
        buffered_bytes = sum(cursor.buffered_bytes for cursor in self.cursors.values())
        if buffered_bytes < self._settings.min_bytes and time.monotonic() < self._held_until:
            return False
        self._held_until = 0.0
        return True

    def limit_wait(self, timeout: float) -> float:
        """Shorten a wait for new records to the time at which held records are released."""
        if not self._held_until:
            return timeout
        return max(0.0, min(timeout, self._held_until - time.monotonic()))

    # Fetching

    def fetch(self) -> None:
        """Prefetch records of the partitions that have none left."""
        cursors = [cursor for cursor in self.cursors.values() if self._needs_fetch(cursor)]
        if not cursors:
            return
        offsets_by_partition = self._read_offsets(cursors)
        self._resolve_positions(
            [cursor for cursor in cursors if cursor.position is None], offsets_by_partition
        )
        size = 0
        for cursor in cursors:
            offsets = offsets_by_partition.get(cursor.partition)
            if offsets is None or cursor.position is None:
                continue
            if size >= self._settings.max_bytes:
                break
            size += self._fetch_partition(cursor, offsets)
        if self._settings.min_bytes > 1 and size and not self._held_until:
            self._held_until = time.monotonic() + self._settings.max_wait_ms / 1000

    def _needs_fetch(self, cursor: PartitionCursor) -> bool:
        if cursor.paused or cursor.failed:
            return False
        if not cursor.batches:
            return True
        return (
            self._held_until > 0 and cursor.buffered_bytes < self._settings.partition_max_bytes
        )

    def _read_offsets(
        self, cursors: list[PartitionCursor]
    ) -> dict[TopicPartition, PartitionOffsets]:
        try:
            return self._log.offsets([cursor.partition for cursor in cursors])
        except UnknownTopic:
            found = {}
            for cursor in cursors:
                try:
                    found.update(self._log.offsets([cursor.partition]))
                except UnknownTopic as error:
                    self._report_once(cursor, to_kafka_error(error))
            return found

    def _fetch_partition(self, cursor: PartitionCursor, offsets: PartitionOffsets) -> int:
        start = cursor.position
        if cursor.batches and cursor.fetch_offset is not None:
            start = cursor.fetch_offset
        assert start is not None
        if not offsets.start <= start <= offsets.end:
            self._handle_out_of_range(cursor, offsets)
            return 0
        if start >= offsets.end:
            self._report_end(cursor, offsets.end)
            return 0
        if not cursor.timestamp_type:
            cursor.timestamp_type = self._timestamp_type(cursor.partition.topic)
        size = 0
        max_bytes = min(self._settings.partition_max_bytes, self._settings.max_bytes)
        try:
            batches = self._log.read(
                *cursor.partition, start, offsets.end, max_records=_MAX_PREFETCHED,
                max_bytes=max_bytes,
            )
            for batch in batches:
                columns = batch.columns()
                batch_bytes = batch.records.nbytes
                cursor.add(columns, batch_bytes)
                size += batch_bytes
        except OffsetOutOfRange as error:
            if not size:
                self._handle_out_of_range(cursor, PartitionOffsets(error.start, error.end))
                return 0
        cursor.fetch_offset = batches.position
        if not cursor.batches:
            cursor.position = batches.position
        return size

    # Initial positions

    def _resolve_positions(
        self,
        cursors: list[PartitionCursor],
        offsets_by_partition: dict[TopicPartition, PartitionOffsets],
    ) -> None:
        stored = [cursor.partition for cursor in cursors if cursor.start_offset == OFFSET_STORED]
        committed = self._log.committed(self._group_id, stored) if stored and self._group_id else {}
        for cursor in cursors:
            offsets = offsets_by_partition.get(cursor.partition)
            if offsets is None:
                continue
            if cursor.start_offset == OFFSET_BEGINNING:
                cursor.position = offsets.start
            elif cursor.start_offset == OFFSET_END:
                cursor.position = offsets.end
            elif cursor.partition in committed:
                cursor.position = committed[cursor.partition].offset
            else:
                self._reset(cursor, offsets, "the group has no committed offset")

    def _timestamp_type(self, topic: str) -> int:
        try:
            configured = self._log.topic(topic).setting("message.timestamp.type")
        except LogError:
            configured = ""
        if configured == "LogAppendTime":
            return TIMESTAMP_LOG_APPEND_TIME
        return TIMESTAMP_CREATE_TIME

    def _handle_out_of_range(self, cursor: PartitionCursor, offsets: PartitionOffsets) -> None:
        position = cursor.position
        topic, partition = cursor.partition
        if position is not None and position < offsets.start:
            logger.warning(
                "Records of '%s' [%d] from offset %d to %d were deleted by retention before they "
                "were consumed", topic, partition, position, offsets.start,
            )
        cursor.seek(OFFSET_STORED)
        self._reset(
            cursor, offsets, f"offset {position} is not between {offsets.start} and {offsets.end}"
        )

    def _reset(self, cursor: PartitionCursor, offsets: PartitionOffsets, reason: str) -> None:
        if self._settings.offset_reset == "error":
            cursor.failed = True
            topic, partition = cursor.partition
            self.report(KafkaError(
                KafkaError._AUTO_OFFSET_RESET,
                f"'{topic}' [{partition}] has no initial offset: {reason}, and auto.offset.reset "
                "is 'error'. Seek to an offset.",
            ), cursor.partition)
        else:
            earliest = self._settings.offset_reset == "earliest"
            cursor.position = offsets.start if earliest else offsets.end

    # Events

    def _report_once(self, cursor: PartitionCursor, error: KafkaError) -> None:
        if cursor.reported_error != error.code():
            cursor.reported_error = error.code()
            self.report(error, cursor.partition)

    def _report_end(self, cursor: PartitionCursor, end: int) -> None:
        if self._settings.partition_eof and not cursor.batches and cursor.reported_end != end:
            cursor.reported_end = end
            topic, partition = cursor.partition
            reason = f"The consumer reached the end of '{topic}' [{partition}]."
            self.report(KafkaError(KafkaError._PARTITION_EOF, reason), cursor.partition, end)

    def report(
        self,
        error: KafkaError,
        log_partition: TopicPartition | None = None,
        offset: int | None = None,
    ) -> None:
        """Queue an error event, which the program gets in place of a record."""
        topic, partition = (None, None) if log_partition is None else log_partition
        self.events.append(Message(topic, partition, offset, error=error))


def _deserialize(
    message: Message, read_key: Callable[[Any], Any] | None, read_value: Callable[[Any], Any] | None
) -> ConsumeError | None:
    """Deserialize the key and value of a message in place; return the error if that fails."""
    try:
        if read_key is not None and message.key() is not None:
            message.set_key(read_key(message.key()))
    except Exception as error:
        reason = _deserialization_error("key", message, error)
        return KeyDeserializationError(reason, message).caused_by(error)
    try:
        if read_value is not None and message.value() is not None:
            message.set_value(read_value(message.value()))
    except Exception as error:
        reason = _deserialization_error("value", message, error)
        return ValueDeserializationError(reason, message).caused_by(error)
    return None


def _deserialization_error(part: str, message: Message, error: Exception) -> KafkaError:
    is_key = part == "key"
    return KafkaError(
        KafkaError._KEY_DESERIALIZATION if is_key else KafkaError._VALUE_DESERIALIZATION,
        f"The {part} of '{message.topic()}' [{message.partition()}] at offset {message.offset()} "
        f"cannot be deserialized. {error}",
    )
