"""The data types of a log's arguments and results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from penstock.log.topic_config import DEFAULTS
from penstock.record import NO_HEADERS, Headers, PartitionColumns, RecordColumns

if TYPE_CHECKING:
    import pyarrow as pa

#: The columns of a batch that was read: int64, int64, binary, binary, and a list of
#: struct(name: string, value: binary), null for a record without headers.
COLUMNS = ("offset", "timestamp", "key", "value", "headers")


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class StagedRecords(NamedTuple):
    """A reference to records that are stored in the log, but in no partition yet.

    It can be sent to other processes. `token` is unique; an `id` may be used again.
    """

    id: int
    token: str
    records: int


#: The records of an append. Arrow data needs the columns key and value, and may have timestamp and
#: headers. An offset column is ignored, so a batch that was read can be appended elsewhere.
Records: TypeAlias = "RecordColumns | pa.RecordBatch | pa.Table | StagedRecords"


class Append(NamedTuple):
    """Records to append to one partition."""

    topic: str
    partition: int
    records: Records


class AppendResult(NamedTuple):
    """The offsets of an append: from `base_offset` up to, but not including, `next_offset`.

    `timestamp` is the time that the log has assigned to the records, or -1.
    """

    topic: str
    partition: int
    base_offset: int
    next_offset: int
    timestamp: int = -1


class PartitionOffsets(NamedTuple):
    """The offsets of a partition. For `tombstones_removed_to` see `penstock.log.base`."""

    start: int
    end: int
    tombstones_removed_to: int = 0


class OffsetAndTimestamp(NamedTuple):
    """The offset and the timestamp of a record."""

    offset: int
    timestamp: int


class CommittedOffset(NamedTuple):
    """An offset that a group has committed, with a metadata string."""

    offset: int
    metadata: str = ""


class WriterGrant(NamedTuple):
    """Lets one process write on behalf of the holder of a lease. It can be sent to others.

    `serial` is unique within the epoch of the lease.
    """

    lease: str
    epoch: int
    serial: int


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic. A later topic of the same name has another `id`."""

    name: str
    id: str
    partitions: int
    #: The settings that were given.
    config: Mapping[str, str] = field(default_factory=dict)
    #: The values of other settings. Kafka's brokers may have their own defaults.
    defaults: Mapping[str, str] = field(
        default_factory=lambda: DEFAULTS, repr=False, compare=False
    )

    def setting(self, name: str) -> str:
        """Return a setting or its default."""
        return self.config.get(name, self.defaults.get(name, ""))


class MemberDescription(NamedTuple):
    """A member of a group."""

    member_id: str
    client_id: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group with its members and committed offsets."""

    name: str
    generation: int
    members: tuple[MemberDescription, ...]
    offsets: Mapping[TopicPartition, CommittedOffset]


class Assignment(NamedTuple):
    """The partitions that a member may process."""

    generation: int
    partitions: frozenset[TopicPartition]


@dataclass(slots=True)
class CleanReport:
    """The result of cleaning."""

    #: By retention.
    records_expired: int = 0
    #: By compaction: superseded records and expired tombstones.
    records_compacted: int = 0
    batches_merged: int = 0
    #: Unused staged records, and the data of deleted topics and batches.
    blobs_swept: int = 0
    bytes_freed: int = 0


class DamagedRange(NamedTuple):
    """Offsets that cannot be read, from `first` to `last`."""

    first: int
    last: int
    problem: str


@dataclass(slots=True)
class VerifyReport:
    """The result of checking a partition."""

    #: Intact records.
    records: int = 0
    #: Batches that were written before the log had checksums. Only their structure is checked.
    unchecked_batches: int = 0
    damaged: list[DamagedRange] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class LogBatch:
    """Consecutive records of one partition, as an Arrow record batch."""

    topic: str
    partition: int
    #: With the columns of `COLUMNS`.
    records: pa.RecordBatch
    #: The offset to continue at.
    next_offset: int
    tombstones_removed_to: int

    def __len__(self) -> int:
        return int(self.records.num_rows)

    def columns(self) -> PartitionColumns:
        """Return the records as Python sequences, as a task reads them."""
        records = self.records
        headers: list[Headers] | None = None
        column = records.column("headers")
        if column.null_count < len(column):
            headers = [as_header_pairs(pairs) for pairs in column.to_pylist()]
        return PartitionColumns(
            topic=self.topic,
            partition=self.partition,
            offsets=records.column("offset").to_pylist(),
            timestamps=records.column("timestamp").to_pylist(),
            keys=records.column("key").to_pylist(),
            values=records.column("value").to_pylist(),
            headers=headers,
        )

    #: An alias of `columns`, which applications use.
    rows = columns


def as_header_pairs(pairs: list[dict[str, object]] | None) -> Headers:
    """Convert an entry of the column of headers."""
    if not pairs:
        return NO_HEADERS
    return Headers((pair["name"], pair["value"]) for pair in pairs)  # type: ignore[misc]


def record_size(
    key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]] = ()
) -> int:
    """Return the size of a record that `max.message.bytes` limits."""
    size = len(key or b"") + len(value or b"")
    for name, content in headers:
        size += len(name.encode()) + len(content or b"")
    return size
