"""Records and offsets before they are sent, and the checks of a topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from penstock.log.errors import InvalidRecord, RecordTooLarge
from penstock.log.kafka.client.topic_metadata import TopicInfo
from penstock.log.kafka.encoding import CheckedColumns, check_columns
from penstock.log.kafka.staging import StagingDirectory
from penstock.log.types import CommittedOffset, Records, StagedRecords, TopicPartition


@dataclass(slots=True)
class PendingAppend:
    """Records for one partition, in memory or staged, in order."""

    topic: str
    partition: int
    parts: list[CheckedColumns | StagedRecords]

    @classmethod
    def of(cls, topic: str, partition: int, records: Records) -> PendingAppend:
        """Validate the records of an append."""
        part = records if isinstance(records, StagedRecords) else check_columns(records)
        return cls(topic, partition, [part])

    @property
    def where(self) -> tuple[str, int]:
        """The partition."""
        return self.topic, self.partition

    def __len__(self) -> int:
        return sum(
            part.records if isinstance(part, StagedRecords) else len(part) for part in self.parts
        )

    def pieces(self, staging: StagingDirectory) -> Iterator[CheckedColumns]:
        """Yield the records, a bounded number at a time."""
        for part in self.parts:
            if isinstance(part, StagedRecords):
                yield from staging.read(part)
            elif len(part):
                yield part

    def staged(self) -> list[StagedRecords]:
        """Return the staged parts."""
        return [part for part in self.parts if isinstance(part, StagedRecords)]


def check_records(columns: CheckedColumns, topic: TopicInfo, now: int) -> None:
    """Raise if the topic would reject a record."""
    name, settings = topic.description.name, topic.settings
    if not columns.surely_fits(settings.max_message_bytes):
        size, wire_size = columns.largest()
        if wire_size > settings.max_message_bytes:
            raise RecordTooLarge(name, size, settings.max_message_bytes)
    if settings.compact and None in columns.keys:
        raise InvalidRecord(f"Topic '{name}' is compacted. Its records must have a key.")
    if settings.append_time or columns.times is None:
        return
    first, last = columns.times
    for timestamp, is_wrong, setting in (
        (first, first < now - settings.timestamp_before_max_ms, "message.timestamp.before.max.ms"),
        (last, last > now + settings.timestamp_after_max_ms, "message.timestamp.after.max.ms"),
    ):
        if is_wrong:
            raise InvalidRecord(
                f"The timestamp {timestamp} is too far from the log's clock for topic '{name}'. "
                f"The limit is {setting}."
            )


def normalize_offsets(
    offsets: Mapping[TopicPartition, CommittedOffset | int],
) -> dict[TopicPartition, CommittedOffset]:
    """Return offsets in one form; `ValueError` for a negative one."""
    normalized = {}
    for where, given in offsets.items():
        committed = CommittedOffset(given) if isinstance(given, int) else CommittedOffset(*given)
        if committed.offset < 0:
            raise ValueError(f"An offset must not be negative: {committed.offset}.")
        normalized[TopicPartition(*where)] = committed
    return normalized
