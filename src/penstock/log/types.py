"""The words of a log: plain data that goes in and comes out."""

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
    """One partition of one topic."""

    topic: str
    partition: int


class StagedRecords(NamedTuple):
    """Records that lie in the log already, but in no partition; plain data that may travel.

    `token` tells it from any other that ever had the same `id`.
    """

    id: int
    token: str
    records: int


#: What can be appended. Arrow data needs the columns key and value and may have timestamp and
#: headers; an offset column is ignored, so what was read can be appended elsewhere.
Records: TypeAlias = "RecordColumns | pa.RecordBatch | pa.Table | StagedRecords"


class Append(NamedTuple):
    """Records for one partition."""

    topic: str
    partition: int
    records: Records


class AppendResult(NamedTuple):
    """Where an append went: offsets from `base_offset` up to, without, `next_offset`.

    `timestamp` is the log's clock where the records got it from there, else -1.
    """

    topic: str
    partition: int
    base_offset: int
    next_offset: int
    timestamp: int = -1


class PartitionOffsets(NamedTuple):
    """A partition as it stands. `tombstones_removed_to`: see the contract."""

    start: int
    end: int
    tombstones_removed_to: int = 0


class OffsetAndTimestamp(NamedTuple):
    """A record's offset and time."""

    offset: int
    timestamp: int


class CommittedOffset(NamedTuple):
    """Where a group goes on, with a text of its own."""

    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as it stands. `id` differs between a topic and a later one of the same name."""

    name: str
    id: str
    partitions: int
    #: The settings that were given.
    config: Mapping[str, str] = field(default_factory=dict)
    #: What the log takes for those that were not given; Kafka's brokers may have their own.
    defaults: Mapping[str, str] = field(
        default_factory=lambda: DEFAULTS, repr=False, compare=False
    )

    def setting(self, name: str) -> str:
        """A setting, or its default."""
        return self.config.get(name, self.defaults.get(name, ""))


class MemberDescription(NamedTuple):
    """A member of a group as others see it."""

    member_id: str
    client_id: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group: who is in it, and what it has committed."""

    name: str
    generation: int
    members: tuple[MemberDescription, ...]
    offsets: Mapping[TopicPartition, CommittedOffset]


class Assignment(NamedTuple):
    """What a member may work on now."""

    generation: int
    partitions: frozenset[TopicPartition]


@dataclass(slots=True)
class CleanReport:
    """What keeping house has done."""

    #: By retention.
    records_expired: int = 0
    #: By compaction: superseded records and expired tombstones.
    records_compacted: int = 0
    batches_merged: int = 0
    blobs_swept: int = 0
    bytes_freed: int = 0


@dataclass(frozen=True, slots=True)
class LogBatch:
    """Consecutive records of one partition, as one Arrow record batch."""

    topic: str
    partition: int
    #: With the columns of `COLUMNS`.
    records: pa.RecordBatch
    #: Where to read on after this batch.
    next_offset: int
    tombstones_removed_to: int

    def __len__(self) -> int:
        return int(self.records.num_rows)

    def columns(self) -> PartitionColumns:
        """The records as Python sequences, in the form that a task reads."""
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


def as_header_pairs(pairs: list[dict[str, object]] | None) -> Headers:
    """One entry of the column of headers."""
    if not pairs:
        return NO_HEADERS
    return Headers((pair["name"], pair["value"]) for pair in pairs)  # type: ignore[misc]


def record_size(
    key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]] = ()
) -> int:
    """The size of a record as `max.message.bytes` counts it."""
    size = len(key or b"") + len(value or b"")
    for name, content in headers:
        size += len(name.encode()) + len(content or b"")
    return size
