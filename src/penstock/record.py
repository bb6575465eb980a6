"""The words that travel: records, headers, changes, and where a record came from.

Everything here is immutable, so a record can be handed to several processors, kept in a
cache or a buffer, and sent to another task without being copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

V = TypeVar("V")
# Records cannot be changed: one of a narrower type will do where a wider one is asked for.
K_co = TypeVar("K_co", covariant=True)
V_co = TypeVar("V_co", covariant=True)
K2 = TypeVar("K2")
V2 = TypeVar("V2")


class Headers(tuple[tuple[str, "bytes | None"], ...]):
    """The headers of a record: pairs of a name and bytes, in order, names may repeat."""

    __slots__ = ()

    def add(self, name: str, value: bytes | None) -> Headers:
        """These headers with one more at the end."""
        return Headers((*self, (name, value)))

    def remove(self, name: str) -> Headers:
        """These headers without any of that name."""
        return Headers(pair for pair in self if pair[0] != name)

    def last(self, name: str) -> bytes | None:
        """The value of the last header of that name, None if there is none."""
        for header, value in reversed(self):
            if header == name:
                return value
        return None


NO_HEADERS = Headers()


def as_headers(headers: Iterable[tuple[str, bytes | None]]) -> Headers:
    """Any iterable of pairs as `Headers`; what is already so stays as it is."""
    return headers if isinstance(headers, Headers) else Headers(headers)


@dataclass(frozen=True, slots=True)
class Record(Generic[K_co, V_co]):
    """A record as a processor sees it. `timestamp` is in epoch milliseconds."""

    key: K_co
    value: V_co
    timestamp: int
    headers: Headers = NO_HEADERS

    def __post_init__(self) -> None:
        if self.timestamp < 0:
            raise ValueError(f"A record's timestamp must not be negative: {self.timestamp}.")

    def with_key(self, key: K2) -> Record[K2, V_co]:
        """This record with another key."""
        return Record(key, self.value, self.timestamp, self.headers)

    def with_value(self, value: V2) -> Record[K_co, V2]:
        """This record with another value."""
        return Record(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: int) -> Record[K_co, V_co]:
        """This record with another timestamp."""
        return replace(self, timestamp=timestamp)

    def with_headers(self, headers: Iterable[tuple[str, bytes | None]]) -> Record[K_co, V_co]:
        """This record with other headers."""
        return replace(self, headers=as_headers(headers))


@dataclass(frozen=True, slots=True)
class FixedKeyRecord(Generic[K_co, V_co]):
    """A record whose key a processor may read but not change (`process_values`)."""

    key: K_co
    value: V_co
    timestamp: int
    headers: Headers = NO_HEADERS

    def with_value(self, value: V2) -> FixedKeyRecord[K_co, V2]:
        """This record with another value."""
        return FixedKeyRecord(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: int) -> FixedKeyRecord[K_co, V_co]:
        """This record with another timestamp."""
        if timestamp < 0:
            raise ValueError(f"A record's timestamp must not be negative: {timestamp}.")
        return replace(self, timestamp=timestamp)

    def with_headers(
        self, headers: Iterable[tuple[str, bytes | None]]
    ) -> FixedKeyRecord[K_co, V_co]:
        """This record with other headers."""
        return replace(self, headers=as_headers(headers))


class Change(NamedTuple):
    """What a table sends downstream: the new value of a row and, if asked for, the old one.

    `is_latest` is False only for an out-of-order update of a versioned table.
    """

    new: Any
    old: Any
    is_latest: bool = True


class ValueAndTimestamp(NamedTuple, Generic[V]):
    """A value of a timestamped store and the time of the record that wrote it."""

    value: V
    timestamp: int


class RecordMetadata(NamedTuple):
    """Where the record that is being processed was read from."""

    topic: str | None
    partition: int
    offset: int


class RecordContext(NamedTuple):
    """Where a record came from, and what its source record looked like.

    Inside a punctuation there is no source record: topic is None, partition and offset are -1.
    """

    topic: str | None
    partition: int
    offset: int
    timestamp: int
    headers: Headers
    source_raw_key: bytes | None = None
    source_raw_value: bytes | None = None


class TaskId(NamedTuple):
    """One sub-topology over one partition: the unit of work."""

    subtopology: int
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.partition}"


class RecordColumns(msgspec.Struct, frozen=True):
    """Records as columns of equal length. Other column carriers extend this class."""

    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    #: None: the log sets the time when it appends the records.
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


class Current:
    """The record a task is working on right now; one for each task, changed in place.

    The record is number `at` of `rows`, as it was read. `timestamp` and `headers` are those of the
    record that is being passed on, which may differ. `sent` is set as soon as something that was
    made of the record has been written: from then on its bytes are not given to a dead letter
    queue.

    Written by the task when it takes a record and by whoever forwards a record with another
    timestamp or other headers (who puts the former ones back afterwards). Read by stores (what
    goes to the changelog, what a cache entry remembers) and by user processors.
    """

    __slots__ = ("at", "headers", "rows", "sent", "timestamp")

    rows: PartitionColumns
    at: int
    sent: bool
    timestamp: int
    headers: Headers

    def __init__(self) -> None:
        self.set_context(NO_RECORD)

    @property
    def topic(self) -> str | None:
        """The topic the record was read from."""
        return self.rows.topic

    @property
    def partition(self) -> int:
        """The partition it was read from."""
        return self.rows.partition

    @property
    def offset(self) -> int:
        """Its offset."""
        return self.rows.offsets[self.at]

    @property
    def raw_key(self) -> bytes | None:
        """The bytes of its key, unless something was sent already."""
        return None if self.sent else self.rows.keys[self.at]

    @property
    def raw_value(self) -> bytes | None:
        """The bytes of its value, unless something was sent already."""
        return None if self.sent else self.rows.values[self.at]

    def context(self) -> RecordContext:
        """A snapshot, to be kept with a buffered record."""
        return RecordContext(
            self.topic, self.partition, self.offset, self.timestamp, self.headers, self.raw_key,
            self.raw_value,
        )

    def set_context(self, context: RecordContext) -> None:
        """Go on as if this were the record being processed."""
        topic, partition, offset, timestamp, headers, raw_key, raw_value = context
        self.rows = PartitionColumns(
            topic=topic, partition=partition, offsets=(offset,), timestamps=(timestamp,),
            keys=(raw_key,), values=(raw_value,),
        )
        self.at = 0
        self.sent = False
        self.timestamp = timestamp
        self.headers = headers

    def saved(self) -> tuple[Any, ...]:
        """What `restore` needs to put everything back."""
        return self.rows, self.at, self.sent, self.timestamp, self.headers

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Put back what `saved` answered."""
        self.rows, self.at, self.sent, self.timestamp, self.headers = saved


NO_RECORD = RecordContext(None, -1, -1, -1, NO_HEADERS)
