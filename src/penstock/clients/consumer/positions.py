"""The positions of a consumer: seek, pause, and lookups of offsets."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.clients.consumer.fetcher import Fetcher
from penstock.clients.errors import (
    KafkaError,
    kafka_exception,
    to_kafka_error,
    to_kafka_exception,
)
from penstock.clients.types import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    TopicPartition,
    to_log_partition,
)
from penstock.log.base import Log
from penstock.log.errors import LogError

_SEEKABLE = {OFFSET_BEGINNING, OFFSET_END, OFFSET_STORED}


class ConsumerPositions:
    """Reads and moves the positions of a consumer's partitions. See `Consumer` for the methods."""

    def __init__(self, log: Log, fetcher: Fetcher, group_id: str) -> None:
        self._log = log
        self._fetcher = fetcher
        self._group_id = group_id

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions."""
        return [TopicPartition(*partition) for partition in sorted(self._fetcher.cursors)]

    def position(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Return the positions; `OFFSET_INVALID` if unknown."""
        positions = []
        for partition in partitions:
            cursor = self._fetcher.cursors.get(to_log_partition(partition))
            position = None if cursor is None else cursor.position
            offset = OFFSET_INVALID if position is None else position
            positions.append(TopicPartition(partition.topic, partition.partition, offset))
        return positions

    def seek(self, partition: TopicPartition) -> None:
        """Move to the partition's offset, which may be a logical one."""
        offset = partition.offset
        if offset < 0 and offset not in _SEEKABLE:
            raise kafka_exception(KafkaError._INVALID_ARG, f"Cannot seek to offset {offset}.")
        self._fetcher.cursor(to_log_partition(partition)).seek(offset)

    def seek_all(self, partitions: Sequence[TopicPartition] | None, offset: int) -> None:
        """Move the partitions, or all assigned ones, to one logical offset."""
        for partition in self.assignment() if partitions is None else partitions:
            self.seek(TopicPartition(partition.topic, partition.partition, offset))

    def set_paused(self, partitions: Sequence[TopicPartition], paused: bool) -> None:
        """Pause or resume partitions."""
        for partition in partitions:
            self._fetcher.cursor(to_log_partition(partition)).paused = paused

    def committed(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Return the committed offsets of the group; `OFFSET_INVALID` without one."""
        log_partitions = [to_log_partition(partition) for partition in partitions]
        try:
            committed = self._log.committed(self._group_id, log_partitions)
        except LogError as error:
            raise to_kafka_exception(error) from error
        return [
            TopicPartition(*partition) if (offset := committed.get(partition)) is None
            else TopicPartition(*partition, offset.offset, offset.metadata or None)
            for partition in log_partitions
        ]

    def watermarks(self, partition: TopicPartition) -> tuple[int, int]:
        """Return the first offset and the end offset of a partition."""
        log_partition = to_log_partition(partition)
        try:
            offsets = self._log.offsets([log_partition])[log_partition]
        except LogError as error:
            raise to_kafka_exception(error) from error
        return offsets.start, offsets.end

    def offsets_for_times(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Return the first offsets at or after the times in `partitions`."""
        results = []
        for partition in partitions:
            result = TopicPartition(partition.topic, partition.partition, OFFSET_END)
            try:
                found = self._log.offset_for_time(*to_log_partition(partition), partition.offset)
                if found is not None:
                    result.offset = found.offset
            except LogError as error:
                result.error = to_kafka_error(error)
            results.append(result)
        return results
