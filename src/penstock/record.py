"""Records, headers, changes of tables, columns of records, and the position of a record.

All classes except `CurrentRecord` are immutable, so processors, caches, buffers and tasks can share
objects without copies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, NamedTuple, Never, Protocol, TypeVar

import msgspec

from penstock.errors import StreamsException, TaskIdFormatException

V = TypeVar("V")
# Covariant, because records are immutable.
K_co = TypeVar("K_co", covariant=True)
V_co = TypeVar("V_co", covariant=True)
K2 = TypeVar("K2")
V2 = TypeVar("V2")


class Headers(tuple[tuple[str, "bytes | None"], ...]):
    """The headers of a record: (name, bytes) pairs in order. Names may repeat.

    Example:
        >>> headers = Headers([("trace", b"1")]).add("trace", b"2")
        >>> headers.last("trace")
        b'2'
        >>> headers.remove("trace") == Headers()
        True
    """

    __slots__ = ()

    def add(self, name: str, value: bytes | None) -> Headers:
        """Return a copy with another header at the end.

        Args:
            name: The name of the header.
            value: The bytes of the header, or None.
        """
        return Headers((*self, (name, value)))

    def remove(self, name: str) -> Headers:
        """Return a copy without the headers of that name.

        Args:
            name: The name of the header.
        """
        return Headers(pair for pair in self if pair[0] != name)

    def last(self, name: str) -> bytes | None:
        """Return the value of the last header with that name; None if there is none.

        Args:
            name: The name of the header.
        """
        for header, value in reversed(self):
            if header == name:
                return value
        return None


NO_HEADERS = Headers()


def as_headers(headers: Iterable[tuple[str, bytes | None]]) -> Headers:
    """Convert an iterable of pairs to `Headers`; return `Headers` unchanged."""
    return headers if isinstance(headers, Headers) else Headers(headers)


@dataclass(frozen=True, slots=True)
class Record(Generic[K_co, V_co]):
    """The input and output of a processor. `timestamp` is in epoch milliseconds.

    Example:
        >>> record = Record("ann", 3, 1_000)
        >>> record.with_value(record.value * 2).value
        6
    """

    key: K_co
    value: V_co
    timestamp: int
    headers: Headers = NO_HEADERS

    def __post_init__(self) -> None:
        if self.timestamp < 0:
            raise ValueError(f"A record's timestamp must not be negative: {self.timestamp}.")

    def with_key(self, key: K2) -> Record[K2, V_co]:
        """Return a copy with another key.

        Args:
            key: The key.

        Kafka: Record#withKey
        """
        return Record(key, self.value, self.timestamp, self.headers)

    def with_value(self, value: V2) -> Record[K_co, V2]:
        """Return a copy with another value.

        Args:
            value: The value.

        Kafka: Record#withValue
        """
        return Record(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: int) -> Record[K_co, V_co]:
        """Return a copy with another timestamp.

        Args:
            timestamp: The timestamp, in milliseconds since the epoch.

        Kafka: Record#withTimestamp, To#withTimestamp
        """
        return replace(self, timestamp=timestamp)

    def with_headers(self, headers: Iterable[tuple[str, bytes | None]]) -> Record[K_co, V_co]:
        """Return a copy with other headers.

        Args:
            headers: The headers: pairs of a name and bytes or None.

        Kafka: Record#withHeaders
        """
        return replace(self, headers=as_headers(headers))


@dataclass(frozen=True, slots=True, init=False)
class FixedKeyRecord(Generic[K_co, V_co]):
    """The input and output of `process_values`: a record whose key cannot be changed.

    It has no constructor: derive a record from one that `process` received.
    """

    key: K_co
    value: V_co
    timestamp: int
    headers: Headers

    def __init__(self, *_: Never, **__: Never) -> None:
        raise TypeError(
            "A FixedKeyRecord cannot be created or get another key. Derive it from the record "
            "that process() received: record.with_value(value). To change keys, use process(). "
            "In tests, use penstock.testing.fixed_key_record(key, value, timestamp)."
        )

    def with_value(self, value: V2) -> FixedKeyRecord[K_co, V2]:
        """Return a copy with another value.

        Args:
            value: The value.

        Kafka: FixedKeyRecord#withValue
        """
        return fixed_key_record(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: int) -> FixedKeyRecord[K_co, V_co]:
        """Return a copy with another timestamp.

        Args:
            timestamp: The timestamp, in milliseconds since the epoch.

        Kafka: FixedKeyRecord#withTimestamp
        """
        if timestamp < 0:
            raise ValueError(f"A record's timestamp must not be negative: {timestamp}.")
        return fixed_key_record(self.key, self.value, timestamp, self.headers)

    def with_headers(
        self, headers: Iterable[tuple[str, bytes | None]]
    ) -> FixedKeyRecord[K_co, V_co]:
        """Return a copy with other headers.

        Args:
            headers: The headers: pairs of a name and bytes or None.

        Kafka: FixedKeyRecord#withHeaders
        """
        return fixed_key_record(self.key, self.value, self.timestamp, as_headers(headers))


# The slots of a frozen dataclass can be set only through their descriptors.
_new_fixed_key_record: Any = partial(object.__new__, FixedKeyRecord)
_set_key, _set_value, _set_timestamp, _set_headers = (
    getattr(FixedKeyRecord, name).__set__ for name in ("key", "value", "timestamp", "headers")
)


def fixed_key_record(
    key: K2, value: V2, timestamp: int, headers: Headers = NO_HEADERS
) -> FixedKeyRecord[K2, V2]:
    """Create a `FixedKeyRecord`; for tasks and tests.

    Args:
        key: The key.
        value: The value.
        timestamp: The timestamp, in milliseconds since the epoch.
        headers: The headers: pairs of a name and bytes or None.

    Returns:
        The record.

    Kafka: InternalFixedKeyRecordFactory#create
    """
    record: FixedKeyRecord[K2, V2] = _new_fixed_key_record()
    _set_key(record, key)
    _set_value(record, value)
    _set_timestamp(record, timestamp)
    _set_headers(record, headers)
    return record


class Change(NamedTuple):
    """An update of a row of a table: the new value and, if an operator needs it, the old value.

    `is_latest` is False only for an out-of-order update of a versioned table.
    """

    new: Any
    old: Any
    is_latest: bool = True


class ValueAndTimestamp(NamedTuple, Generic[V]):
    """A value of a timestamped store and the timestamp of the record that wrote it."""

    value: V
    timestamp: int


class RecordMetadata(NamedTuple):
    """The position of the current record in its topic."""

    topic: str | None
    partition: int
    offset: int


class RecordContext(NamedTuple):
    """The position of a record and the raw bytes of its source record.

    A punctuation has no source record: topic is None, partition and offset are -1.
    """

    topic: str | None
    partition: int
    offset: int
    timestamp: int
    headers: Headers
    source_raw_key: bytes | None = None
    source_raw_value: bytes | None = None


class TaskId(NamedTuple):
    """The id of a task, which runs one sub-topology for one partition."""

    subtopology: int
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.partition}"

    @classmethod
    def parse(cls, text: str) -> TaskId:
        """Return the task id of a text such as "0_3".

        Args:
            text: The number of the sub-topology, an underscore and the number of the partition.

        Raises:
            TaskIdFormatException: The text has another form.

        Example:
            >>> TaskId.parse("0_3")
            TaskId(subtopology=0, partition=3)

        Kafka: TaskId#parse
        """
        found = re.fullmatch(r"([0-9]+)_([0-9]+)", text)
        if found is None:
            raise TaskIdFormatException(
                f"'{text}' is not a task id. A task id is a sub-topology and a partition: '0_3'."
            )
        return cls(int(found[1]), int(found[2]))


class RecordColumns(msgspec.Struct, frozen=True):
    """Records as columns of equal length. Other column carriers extend this class."""

    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    #: None: the log sets the timestamps when it appends the records.
    timestamps: Sequence[int] | None = None
    #: None: no record has headers.
    headers: Sequence[Iterable[tuple[str, bytes | None]]] | None = None

    def __len__(self) -> int:
        return len(self.keys)


class PartitionColumns(RecordColumns, frozen=True, kw_only=True):
    """Records that were read from one partition."""

    topic: str | None
    partition: int
    offsets: Sequence[int]
    timestamps: Sequence[int]
    headers: Sequence[Headers] | None = None
    #: A `RecordOrigins` if the records come from other tasks of the batch and not from the log.
    origins: Any = None


class RecordOrigins(Protocol):
    """The records of the log from which other records result."""

    def position(self, index: int) -> RecordMetadata:
        """Return the position of the record that caused record `index`.

        The topic is None if no record caused it, but a punctuation.
        """
        ...


class CurrentRecord:
    """The record that a task is processing. Each task has one and changes it in place.

    The source record is element `at` of `rows`. `timestamp` and `headers` are those of the record
    that is being forwarded, which may differ. `sent` is True after an output of the record was
    written; from then on its raw bytes are not available to a dead letter queue.

    Written by the task when it takes a record, and by code that forwards a record with another
    timestamp or other headers and then restores the old ones. Read by stores, for changelogs and
    cache entries, and by user processors.
    """

    __slots__ = ("at", "headers", "keeps_source", "rows", "sent", "timestamp")

    rows: PartitionColumns
    at: int
    sent: bool
    timestamp: int
    headers: Headers

    def __init__(self) -> None:
        #: Whether a handler may read the bytes of the source record of a buffered record.
        self.keeps_source = False
        self.set_context(NO_RECORD)

    @property
    def topic(self) -> str | None:
        """The topic of the source record."""
        return self.rows.topic

    @property
    def partition(self) -> int:
        """The partition of the source record."""
        return self.rows.partition

    @property
    def offset(self) -> int:
        """The offset of the source record."""
        return self.rows.offsets[self.at]

    @property
    def raw_key(self) -> bytes | None:
        """The serialized key of the source record; None after an output was written."""
        return None if self.sent else self.rows.keys[self.at]

    @property
    def raw_value(self) -> bytes | None:
        """The serialized value of the source record; None after an output was written."""
        return None if self.sent else self.rows.values[self.at]

    @property
    def origin(self) -> RecordMetadata:
        """The record of the log that caused this one; itself unless another task sent it."""
        rows = self.rows
        if rows.origins is not None:
            position: RecordMetadata = rows.origins.position(self.at)
            return position
        return RecordMetadata(rows.topic, rows.partition, rows.offsets[self.at])

    def buffered_context(self, timestamp: int, headers: Headers) -> RecordContext:
        """The context of a record that a buffer keeps in memory.

        It has the serialized source record only if a handler needs it.
        """
        source = (self.raw_key, self.raw_value) if self.keeps_source else ()
        return RecordContext(self.topic, self.partition, self.offset, timestamp, headers, *source)

    def context(self) -> RecordContext:
        """Return an immutable copy, to store with a buffered record."""
        return RecordContext(
            self.topic, self.partition, self.offset, self.timestamp, self.headers, self.raw_key,
            self.raw_value,
        )

    def set_context(self, context: RecordContext) -> None:
        """Make the record of a stored context the current one."""
        topic, partition, offset, timestamp, headers, raw_key, raw_value = context
        self.rows = PartitionColumns(
            topic=topic, partition=partition, offsets=(offset,), timestamps=(timestamp,),
            keys=(raw_key,), values=(raw_value,),
        )
        self.at = 0
        self.sent = False
        self.timestamp = timestamp
        self.headers = headers

    def save(self) -> tuple[Any, ...]:
        """Return the state for `restore`."""
        return self.rows, self.at, self.sent, self.timestamp, self.headers

    def restore(self, state: tuple[Any, ...]) -> None:
        """Restore the state that `save` returned."""
        self.rows, self.at, self.sent, self.timestamp, self.headers = state


NO_RECORD = RecordContext(None, -1, -1, -1, NO_HEADERS)
#: The position of a record whose source is unknown, or that has none.
UNKNOWN_POSITION = RecordMetadata(None, -1, -1)
_processed: ContextVar[CurrentRecord | None] = ContextVar("processed", default=None)


@contextmanager
def processing(current: CurrentRecord) -> Iterator[None]:
    """Let `current_record` return the record of a task; entered once per call of the task."""
    token = _processed.set(current)
    try:
        yield
    finally:
        _processed.reset(token)


def current_record() -> RecordContext:
    """Return topic, partition, offset, timestamp and headers of the record that is processed.

    Any function of a topology may call it: a predicate, a mapper, a joiner, an aggregator.
    Timestamp and headers are those of the record that the function receives; topic, partition and
    offset are those of the record from which it was made. In `init` and in a punctuator the topic
    is None.

    Raises:
        StreamsException: The caller is not a function of a running topology.

    Example:
        >>> from penstock import Serdes, StreamsBuilder, current_record
        >>> from penstock.testing import TopologyTestDriver
        >>> text = Serdes.string()
        >>> builder = StreamsBuilder()
        >>> words = builder.stream("words", key=text, value=text)
        >>> times = words.map_values(lambda word: f"{word} at {current_record().timestamp}")
        >>> times.to("times", key=text, value=text)
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     topic = driver.create_input_topic("words", text, text)
        ...     topic.pipe_input("k", "hello", timestamp=7)
        ...     driver.create_output_topic("times", text, text).read_value()
        'hello at 7'
    """
    current = _processed.get()
    if current is None:
        raise StreamsException(
            "current_record() was called outside of a running topology. "
            "Call it inside of a function that a step calls for each record."
        )
    return current.context()
