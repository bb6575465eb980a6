"""The records of one source partition that wait for their turn (M3, M4)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from penstock.errors import StreamsException
from penstock.processors.base import Forward
from penstock.record import Headers
from penstock.serdes import Serde
from penstock.task.failures import Failures
from penstock.timestamps import ConsumedRecord, FailOnInvalidTimestamp


class RawRecord(NamedTuple):
    """A record as it was read from a topic: bytes."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Head(NamedTuple):
    """The first record of a queue, deserialized. `corrupted`: there only to be passed over."""

    raw: RawRecord
    key: Any
    value: Any
    timestamp: int
    corrupted: bool = False


class RecordQueue:
    """A queue of raw records whose first one is always deserialized.

    `time` is the timestamp of the first record, by which queues are ordered; `partition_time` the
    largest that was taken.
    """

    __slots__ = (
        "_drop", "_extract", "_failures", "_name", "_plain_time", "_raw", "_read_key",
        "_read_value", "forward", "head", "next_offset", "partition", "partition_time", "time",
        "topic",
    )

    def __init__(
        self, topic: str, partition: int, name: str, serdes: tuple[Serde[Any], Serde[Any]],
        extract: Callable[[ConsumedRecord, int], int], forward: Forward, failures: Failures,
        drop: Callable[[str], None],
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.forward = forward
        self.head: Head | None = None
        self.time = -1
        self.partition_time = -1
        self.next_offset = -1
        self._name = name
        self._read_key = serdes[0].deserialize
        self._read_value = serdes[1].deserialize
        self._extract = extract
        self._plain_time = type(extract) is FailOnInvalidTimestamp
        self._failures = failures
        self._drop = drop
        self._raw: deque[RawRecord] = deque()

    def __len__(self) -> int:
        return len(self._raw) + (self.head is not None)

    def add(self, records: Iterable[RawRecord]) -> None:
        """Put records at the end."""
        self._raw.extend(records)
        if self.head is None:
            self._update_head()

    def take(self) -> Head:
        """Remove and answer the first record; the next one is deserialized."""
        head = self.head
        assert head is not None
        self.head = None
        self.next_offset = head.raw.offset + 1
        if head.timestamp > self.partition_time:
            self.partition_time = head.timestamp
        self._update_head()
        return head

    def _update_head(self) -> None:
        raw = self._raw
        skipped: RawRecord | None = None
        while raw:
            record = raw.popleft()
            key, value = record.key, record.value
            try:
                if key is not None:
                    key = self._read_key(key)
                if value is not None:
                    value = self._read_value(value)
            except Exception as error:
                self._failures.not_deserialized(
                    self._name, ConsumedRecord(*record), error
                )
                skipped = record
                continue
            timestamp = record.timestamp
            if not self._plain_time or timestamp < 0:
                timestamp = self._timestamp(record, key, value)
                if timestamp < 0:
                    self._drop("negative extracted timestamp")
                    skipped = record
                    continue
            self.head = Head(record, key, value, timestamp)
            self.time = timestamp
            return
        if skipped is not None:
            self.head = Head(skipped, None, None, -1, corrupted=True)
            self.time = -1

    def _timestamp(self, record: RawRecord, key: Any, value: Any) -> int:
        consumed = ConsumedRecord(
            record.topic, record.partition, record.offset, record.timestamp, key, value,
            record.headers,
        )
        try:
            return self._extract(consumed, self.partition_time)
        except StreamsException:
            raise
        except Exception as error:
            raise StreamsException(
                f"The timestamp extractor failed for the record at topic {record.topic}, "
                f"partition {record.partition}, offset {record.offset}: {error}"
            ) from error
