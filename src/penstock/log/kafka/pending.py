"""Records and offsets that were asked for and not sent yet, and what a topic does not take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from penstock.log.errors import InvalidRecord, RecordTooLarge
from penstock.log.kafka.client.topic_metadata import TopicInfo
from penstock.log.kafka.encoding import CheckedColumns, check_columns
from penstock.log.kafka.staging import Blobs
from penstock.log.types import CommittedOffset, Records, StagedRecords, TopicPartition


@dataclass(slots=True)
class Prepared:
    """Records for one partition: rows, or blobs, in order."""

    topic: str
    partition: int
    parts: list[CheckedColumns | StagedRecords]

    @classmethod
    def of(cls, topic: str, partition: int, records: Records) -> Prepared:
        """What a user appends."""
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

    def pieces(self, blobs: Blobs) -> Iterator[CheckedColumns]:
        """The records, a bounded number at a time."""
        for part in self.parts:
            if isinstance(part, StagedRecords):
                yield from blobs.rows(part)
            elif len(part):
                yield part

    def blobs(self) -> list[StagedRecords]:
        """The blobs among the parts."""
        return [part for part in self.parts if isinstance(part, StagedRecords)]


def check(rows: CheckedColumns, topic: TopicInfo, now: int) -> None:
    """Refuse what the topic does not take."""
    name, settings = topic.description.name, topic.settings
    if not rows.fits(settings.max_message_bytes):
        size, wire_size = rows.largest()
        if wire_size > settings.max_message_bytes:
            raise RecordTooLarge(name, size, settings.max_message_bytes)
    if settings.compact and None in rows.keys:
        raise InvalidRecord(f"Topic '{name}' is compacted: it takes no records without a key.")
    if settings.append_time or rows.timestamps is None or not len(rows):
        return
    first, last = min(rows.timestamps), max(rows.timestamps)
    for timestamp, is_wrong, setting in (
        (first, first < now - settings.timestamp_before_max_ms, "message.timestamp.before.max.ms"),
        (last, last > now + settings.timestamp_after_max_ms, "message.timestamp.after.max.ms"),
    ):
        if is_wrong:
            raise InvalidRecord(
                f"The timestamp {timestamp} is too far from the log's clock for topic '{name}'. "
                f"{setting} is the limit."
            )


def as_committed(
    offsets: Mapping[TopicPartition, CommittedOffset | int],
) -> dict[TopicPartition, CommittedOffset]:
    """Offsets in one form; negative ones are refused."""
    answer = {}
    for where, given in offsets.items():
        committed = CommittedOffset(given) if isinstance(given, int) else CommittedOffset(*given)
        if committed.offset < 0:
            raise ValueError(f"An offset must not be negative: {committed.offset}.")
        answer[TopicPartition(*where)] = committed
    return answer
