"""The records of one source partition that wait for their turn (M3, M4)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, repeat
from typing import Any, NamedTuple

from penstock.errors import StreamsException
from penstock.processors.base import Forward
from penstock.record import NO_HEADERS, Headers
from penstock.serdes import Serde
from penstock.task.failures import Failures
from penstock.task.runtime import Runtime
from penstock.timestamps import ConsumedRecord, FailOnInvalidTimestamp

#: How many records are taken between two looks at the task's budget.
CHUNK = 1024


class RawRecord(NamedTuple):
    """A record as it was read from a topic: bytes."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True)
class RecordRange:
    """A range of a partition, column by column.

    `cut`: the partition has more records behind the range, so that when it runs empty the task
    must not go on with other partitions as if there were none.
    """

    offsets: Sequence[int]
    timestamps: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    #: None if no record has headers.
    headers: Sequence[Headers] | None = None
    cut: bool = False

    def rows(self, topic: str, partition: int) -> Iterator[tuple[Any, ...]]:
        """The records as `RawRecord` has them, without making objects of them."""
        return zip(
            repeat(topic), repeat(partition), self.offsets, self.timestamps, self.keys,
            self.values, repeat(NO_HEADERS) if self.headers is None else self.headers,
            strict=False,
        )


@dataclass(frozen=True)
class QueueSource:
    """The source node of a queue: its name, serdes, timestamp extractor and way into the task."""

    name: str
    serdes: tuple[Serde[Any], Serde[Any]]
    extract: Callable[[ConsumedRecord, int], int]
    forward: Forward
    failures: Failures


class RecordQueue:
    """A queue of raw records whose first one is always deserialized.

    `has_head` says whether there is a first one; `time` is its timestamp, by which queues are
    ordered, and its other parts stand beside it. `partition_time` is the largest timestamp taken.
    A first record that is only there to be passed over is `corrupted`.
    """

    __slots__ = (
        "_extract", "_failures", "_feeds", "_plain_time", "_runtime", "_source",
        "corrupted", "cut", "forward", "has_head", "key", "name", "next_offset", "partition",
        "partition_time", "raw", "taken", "time", "topic", "value",
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
        self.raw: Any = None
        self.key: Any = None
        self.value: Any = None
        self.time = -1
        self.partition_time = -1
        #: Where to go on: behind the last record that was taken; -1 if none was.
        self.next_offset = -1
        self.taken = 0
        self.cut = False
        self._source = source
        self._extract = source.extract
        self._plain_time = type(source.extract) is FailOnInvalidTimestamp
        self._failures = source.failures
        self._runtime = runtime
        self._feeds: deque[Iterator[Any]] = deque()

    def add(self, records: Iterable[Any]) -> None:
        """Put records (each as `RawRecord` has it) at the end."""
        self._feeds.append(iter(records))
        if not self.has_head:
            self.next_head()

    def next_head(self) -> None:
        """Deserialize the next record, or find that there is none."""
        self.has_head = False
        self.corrupted = False
        skipped = None
        feeds = self._feeds
        while feeds:
            for raw in feeds[0]:
                if self._set_head(raw):
                    return
                skipped = raw
            feeds.popleft()
        if skipped is not None:
            self.has_head = self.corrupted = True
            self.raw = skipped
            self.time = -1

    def _set_head(self, raw: Any) -> bool:
        """Make a record the first one; False if it has to be skipped."""
        _, _, _, timestamp, key, value, _ = raw
        read_key, read_value = self._source.serdes
        try:
            if key is not None:
                key = read_key.deserialize(key)
            if value is not None:
                value = read_value.deserialize(value)
        except Exception as error:
            self._failures.not_deserialized(self.name, ConsumedRecord(*raw), error)
            return False
        if not self._plain_time or timestamp < 0:
            timestamp = self._timestamp(raw, key, value)
            if timestamp < 0:
                self._runtime.drop("negative extracted timestamp")
                return False
        self.has_head = True
        self.raw = raw
        self.key = key
        self.value = value
        self.time = timestamp
        return True

    def process_chunk(self) -> bool:
        """Push the next records through the task, as many as fit into a chunk.

        Only when no other queue has records. False if this one has none left.
        """
        runtime = self._runtime
        current = runtime.current
        forward, set_head = self.forward, self._set_head
        read_key, read_value = (serde.reader for serde in self._source.serdes)
        plain_time = self._plain_time
        schedules = runtime.stream_schedules
        self._process_head()
        stream_time, partition_time = runtime.stream_time, self.partition_time
        while self._feeds:
            taken = 0
            offset = self.next_offset - 1
            for raw in islice(self._feeds[0], CHUNK):
                _, _, offset, timestamp, raw_key, raw_value, headers = raw
                taken += 1
                try:
                    key = None if raw_key is None else read_key(raw_key)
                    value = None if raw_value is None else read_value(raw_value)
                    careful = not plain_time or timestamp < 0
                except Exception:
                    careful = True
                if careful:
                    self.partition_time = partition_time
                    if not set_head(raw):
                        continue
                    key, value, timestamp = self.key, self.value, self.time
                if timestamp > partition_time:
                    partition_time = timestamp
                    if timestamp > stream_time:
                        runtime.stream_time = stream_time = timestamp
                current.record = current.source = raw
                current.timestamp = timestamp
                current.headers = headers
                forward(key, value, timestamp, headers)
                if schedules.next_due <= stream_time:
                    schedules.fire(stream_time, runtime.punctuate)
            self.taken += taken
            self.has_head = False
            self.partition_time = partition_time
            self.next_offset = offset + 1
            if taken == CHUNK:
                return True
            self._feeds.popleft()
        return False

    def _process_head(self) -> None:
        """Process the record that is deserialized already."""
        if self.has_head:
            self.take()
            if not self.corrupted:
                self.process_taken()
            self.has_head = False

    def take(self) -> None:
        """Count the first record as taken; its parts stay until `next_head`."""
        self.next_offset = self.raw[2] + 1
        self.taken += 1
        time = self.time
        if time > self.partition_time:
            self.partition_time = time
        if time > self._runtime.stream_time:
            self._runtime.stream_time = time

    def process_taken(self) -> None:
        """Push the first record through the task."""
        self.process(self.raw, self.key, self.value, self.time)

    def process(self, raw: Any, key: Any, value: Any, timestamp: int) -> None:
        """Push a record through the task, then fire what its time makes due."""
        runtime = self._runtime
        current = runtime.current
        current.record = current.source = raw
        current.timestamp = timestamp
        current.headers = headers = raw[6]
        self.forward(key, value, timestamp, headers)
        schedules = runtime.stream_schedules
        if schedules.next_due <= runtime.stream_time:
            schedules.fire(runtime.stream_time, runtime.punctuate)

    def _timestamp(self, raw: Any, key: Any, value: Any) -> int:
        topic, partition, offset, timestamp, _, _, headers = raw
        consumed = ConsumedRecord(topic, partition, offset, timestamp, key, value, headers)
        try:
            return self._extract(consumed, self.partition_time)
        except StreamsException:
            raise
        except Exception as error:
            raise StreamsException(
                f"The timestamp extractor of {self.name} failed for the record at topic {topic}, "
                f"partition {partition}, offset {offset}: {error}"
            ) from error

