"""Where a consumer stands in each of its partitions, and what it has read ahead.

A `Cursor`'s `position` is the offset after the last record that the program got: what a commit
commits. What was read ahead lies in `rows`; a seek throws it away.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from penstock.clients.errors import (
    ConsumeError,
    KafkaError,
    KeyDeserializationError,
    ValueDeserializationError,
    as_kafka_error,
    failure,
)
from penstock.clients.serialization import Converter
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
from penstock.record import PartitionColumns

logger = logging.getLogger(__name__)

#: So many records of a partition are read ahead at most.
_READ_AHEAD = 10_000


@dataclass(frozen=True, slots=True)
class FetchRules:
    """What to read at a time, and where to begin."""

    min_bytes: int
    max_wait_ms: int
    max_bytes: int
    partition_max_bytes: int
    #: "earliest", "latest" or "error".
    reset: str
    partition_eof: bool


class Cursor:
    """One partition that is being read."""

    __slots__ = (
        "at", "end_told", "error_told", "failed", "paused", "place", "position", "rows", "then",
        "timestamp_kind", "unread", "where",
    )

    def __init__(self, where: TopicPartition, offset: int) -> None:
        self.where = where
        self.paused = False
        self.timestamp_kind = 0
        self.go_to(offset)

    def go_to(self, offset: int) -> None:
        """Stand at an offset, or at a place that is looked up by the next fetch."""
        #: None: not looked up yet.
        self.position: int | None = offset if offset >= 0 else None
        self.place = offset
        self.rows: deque[PartitionColumns] = deque()
        #: The next record of the first rows.
        self.at = 0
        #: Where to stand when the rows are used up.
        self.then: int | None = None
        self.unread = 0
        #: The end that the program was told of (`enable.partition.eof`).
        self.end_told: int | None = None
        self.error_told: int | None = None
        #: There is nowhere to read until the program seeks.
        self.failed = False

    def add(self, rows: PartitionColumns, size: int) -> None:
        """Read ahead."""
        self.rows.append(rows)
        self.unread += size


class Fetcher:
    """Reads the partitions of one consumer in turn."""

    def __init__(
        self,
        log: Log,
        rules: FetchRules,
        converters: tuple[Converter, Converter],
        committed: Callable[[Collection[TopicPartition]], dict[TopicPartition, int]],
    ) -> None:
        self._log = log
        self._rules = rules
        self._keys, self._values = converters
        self._committed = committed
        #: In the order in which they are read next.
        self.cursors: dict[TopicPartition, Cursor] = {}
        self._held_until = 0.0
        #: Errors that the program gets in place of a record.
        self.events: deque[Message] = deque()

    def add(self, where: TopicPartition, offset: int = OFFSET_STORED) -> None:
        """Read a partition too, from an offset or a place."""
        self.cursors[where] = Cursor(where, offset if offset != OFFSET_INVALID else OFFSET_STORED)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Read them no more."""
        for where in partitions:
            self.cursors.pop(where, None)

    def cursor(self, where: TopicPartition) -> Cursor:
        """The cursor of a partition; an error if it is not the consumer's."""
        cursor = self.cursors.get(where)
        if cursor is None:
            raise failure(
                KafkaError._STATE,
                f"'{where.topic}' [{where.partition}] is not assigned to this consumer.",
            )
        return cursor

    # Giving out

    def take(self, most: int, messages: list[Message]) -> bool:
        """Add what was read ahead, up to so many messages in all.

        A record that cannot be read is raised if it would be the first; otherwise nothing is taken
        from it on, and the answer is False.
        """
        if self._held_until and not self._may_give():
            return True
        for cursor in list(self.cursors.values()):
            if len(messages) >= most:
                break
            if cursor.rows and not cursor.paused:
                if not self._take_from(cursor, most, messages):
                    return False
                if not cursor.rows:
                    # The others come first next time.
                    self.cursors[cursor.where] = self.cursors.pop(cursor.where)
        return True

    def _take_from(self, cursor: Cursor, most: int, messages: list[Message]) -> bool:
        topic, partition = cursor.where
        read_key = self._keys.function(topic)
        read_value = self._values.function(topic)
        kind = cursor.timestamp_kind
        while cursor.rows and len(messages) < most:
            rows = cursor.rows[0]
            begin = cursor.at
            stop = min(len(rows), begin + most - len(messages))
            headers = rows.headers
            for at in range(begin, stop):
                key, value = rows.keys[at], rows.values[at]
                message = Message(
                    topic, partition, rows.offsets[at], key=key, value=value,
                    headers=None if headers is None else headers[at],
                    timestamp=(kind, rows.timestamps[at]),
                )
                if read_key is not None or read_value is not None:
                    error = _deserialized(message, read_key, read_value)
                    if error is not None:
                        if messages:
                            self._advance(cursor, at)
                            return False
                        self._advance(cursor, at + 1)
                        raise error
                messages.append(message)
            self._advance(cursor, stop)
        return True

    def _advance(self, cursor: Cursor, at: int) -> None:
        rows = cursor.rows[0]
        if at > cursor.at:
            cursor.position = rows.offsets[at - 1] + 1
        cursor.at = at
        if at >= len(rows):
            cursor.rows.popleft()
            cursor.at = 0
            if not cursor.rows:
                cursor.unread = 0
                # Behind offsets that hold no record, too.
                cursor.position = cursor.then

    def _may_give(self) -> bool:
        unread = sum(cursor.unread for cursor in self.cursors.values())
        if unread < self._rules.min_bytes and time.monotonic() < self._held_until:
            return False
        self._held_until = 0.0
        return True

    def wait_at_most(self, timeout: float) -> float:
        """How long to wait for a change, given that records may be held back for more."""
        if not self._held_until:
            return timeout
        return max(0.0, min(timeout, self._held_until - time.monotonic()))

    # Reading

    def fetch(self) -> None:
        """Read ahead where nothing is left of what was read before."""
        hungry = [cursor for cursor in self.cursors.values() if self._is_hungry(cursor)]
        if not hungry:
            return
        ends = self._offsets(hungry)
        self._look_up([cursor for cursor in hungry if cursor.position is None], ends)
        size = 0
        for cursor in hungry:
            offsets = ends.get(cursor.where)
            if offsets is None or cursor.position is None:
                continue
            if size >= self._rules.max_bytes:
                break
            size += self._read(cursor, offsets)
        if self._rules.min_bytes > 1 and size and not self._held_until:
            self._held_until = time.monotonic() + self._rules.max_wait_ms / 1000

    def _is_hungry(self, cursor: Cursor) -> bool:
        if cursor.paused or cursor.failed:
            return False
        if not cursor.rows:
            return True
        return self._held_until > 0 and cursor.unread < self._rules.partition_max_bytes

    def _offsets(self, cursors: list[Cursor]) -> dict[TopicPartition, PartitionOffsets]:
        try:
            return self._log.offsets([cursor.where for cursor in cursors])
        except UnknownTopic:
            found = {}
            for cursor in cursors:
                try:
                    found.update(self._log.offsets([cursor.where]))
                except UnknownTopic as error:
                    self._tell_once(cursor, as_kafka_error(error))
            return found

    def _read(self, cursor: Cursor, offsets: PartitionOffsets) -> int:
        start = cursor.then if cursor.rows and cursor.then is not None else cursor.position
        assert start is not None
        if not offsets.start <= start <= offsets.end:
            self._out_of_range(cursor, offsets)
            return 0
        if start >= offsets.end:
            self._tell_end(cursor, offsets.end)
            return 0
        if not cursor.timestamp_kind:
            cursor.timestamp_kind = self._timestamp_kind(cursor.where.topic)
        size = 0
        limit = min(self._rules.partition_max_bytes, self._rules.max_bytes)
        try:
            reading = self._log.read(
                *cursor.where, start, offsets.end, max_records=_READ_AHEAD, max_bytes=limit
            )
            for batch in reading:
                rows = batch.columns()
                bytes_read = batch.records.nbytes
                cursor.add(rows, bytes_read)
                size += bytes_read
        except OffsetOutOfRange as error:
            if not size:
                self._out_of_range(cursor, PartitionOffsets(error.start, error.end))
                return 0
        cursor.then = reading.position
        if not cursor.rows:
            cursor.position = reading.position
        return size

    # Where to begin

    def _look_up(
        self, cursors: list[Cursor], ends: dict[TopicPartition, PartitionOffsets]
    ) -> None:
        stored = [cursor.where for cursor in cursors if cursor.place == OFFSET_STORED]
        committed = self._committed(stored) if stored else {}
        for cursor in cursors:
            offsets = ends.get(cursor.where)
            if offsets is None:
                continue
            if cursor.place == OFFSET_BEGINNING:
                cursor.position = offsets.start
            elif cursor.place == OFFSET_END:
                cursor.position = offsets.end
            elif cursor.where in committed:
                cursor.position = committed[cursor.where]
            else:
                self._reset(cursor, offsets, "the group has committed none")

    def _timestamp_kind(self, topic: str) -> int:
        try:
            kind = self._log.topic(topic).setting("message.timestamp.type")
        except LogError:
            kind = ""
        return TIMESTAMP_LOG_APPEND_TIME if kind == "LogAppendTime" else TIMESTAMP_CREATE_TIME

    def _out_of_range(self, cursor: Cursor, offsets: PartitionOffsets) -> None:
        position = cursor.position
        topic, partition = cursor.where
        if position is not None and position < offsets.start:
            logger.warning(
                "Records of '%s' [%d] from %d up to %d are gone: retention was faster than the "
                "consumer", topic, partition, position, offsets.start,
            )
        cursor.go_to(OFFSET_STORED)
        self._reset(
            cursor, offsets, f"offset {position} is not between {offsets.start} and {offsets.end}"
        )

    def _reset(self, cursor: Cursor, offsets: PartitionOffsets, why: str) -> None:
        if self._rules.reset == "error":
            cursor.failed = True
            topic, partition = cursor.where
            self.tell(KafkaError(
                KafkaError._AUTO_OFFSET_RESET,
                f"No offset to begin at in '{topic}' [{partition}]: {why}, and auto.offset.reset "
                "is 'error'. Seek to one.",
            ), cursor.where)
        else:
            earliest = self._rules.reset == "earliest"
            cursor.position = offsets.start if earliest else offsets.end

    # Events

    def _tell_once(self, cursor: Cursor, error: KafkaError) -> None:
        if cursor.error_told != error.code():
            cursor.error_told = error.code()
            self.tell(error, cursor.where)

    def _tell_end(self, cursor: Cursor, end: int) -> None:
        if self._rules.partition_eof and not cursor.rows and cursor.end_told != end:
            cursor.end_told = end
            reason = f"The end of '{cursor.where.topic}' [{cursor.where.partition}] is reached."
            self.tell(KafkaError(KafkaError._PARTITION_EOF, reason), cursor.where, end)

    def tell(
        self, error: KafkaError, where: TopicPartition | None = None, offset: int | None = None
    ) -> None:
        """Let the program have an error in place of a record."""
        topic, partition = (None, None) if where is None else where
        self.events.append(Message(topic, partition, offset, error=error))


def _deserialized(
    message: Message, read_key: Callable[[Any], Any] | None, read_value: Callable[[Any], Any] | None
) -> ConsumeError | None:
    """Put the deserialized key and value into the message, or say why it cannot be."""
    try:
        if read_key is not None and message.key() is not None:
            message.set_key(read_key(message.key()))
    except Exception as error:
        return KeyDeserializationError(_unreadable("key", message, error), message).after(error)
    try:
        if read_value is not None and message.value() is not None:
            message.set_value(read_value(message.value()))
    except Exception as error:
        return ValueDeserializationError(_unreadable("value", message, error), message).after(error)
    return None


def _unreadable(part: str, message: Message, error: Exception) -> KafkaError:
    is_key = part == "key"
    return KafkaError(
        KafkaError._KEY_DESERIALIZATION if is_key else KafkaError._VALUE_DESERIALIZATION,
        f"The {part} of '{message.topic()}' [{message.partition()}] at offset {message.offset()} "
        f"cannot be read. {error}",
    )
