"""The part of a consumer that says where it stands, and goes elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from penstock.clients.consumer.fetcher import Fetcher
from penstock.clients.consumer.membership import Membership
from penstock.clients.errors import KafkaError, as_kafka_error, failure, translated
from penstock.clients.types import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    ClusterMetadata,
    TopicPartition,
    cluster_metadata,
    log_partition,
)
from penstock.log.base import Log, Member
from penstock.log.errors import LogError
from penstock.log.types import TopicPartition as LogPartition


class Places:
    """Positions, offsets and times of a consumer's partitions."""

    _log: Log
    _fetcher: Fetcher
    _group_id: str
    _membership: Membership | None
    _closed: bool

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are being read."""
        self._check_open()
        return [TopicPartition(*where) for where in sorted(self._fetcher.cursors)]

    def position(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """The offset after the last record that was given; -1001 where that is not known yet."""
        self._check_open()
        answer = []
        for partition in partitions:
            cursor = self._fetcher.cursors.get(log_partition(partition))
            position = None if cursor is None else cursor.position
            offset = OFFSET_INVALID if position is None else position
            answer.append(TopicPartition(partition.topic, partition.partition, offset))
        return answer

    def seek(self, partition: TopicPartition) -> None:
        """Read on from the partition's offset; `OFFSET_BEGINNING` and `OFFSET_END` are places."""
        self._check_open()
        offset = partition.offset
        if offset < 0 and offset not in {OFFSET_BEGINNING, OFFSET_END, OFFSET_STORED}:
            raise failure(KafkaError._INVALID_ARG, f"Cannot seek to offset {offset}.")
        self._fetcher.cursor(log_partition(partition)).go_to(offset)

    def seek_to_beginning(self, partitions: Sequence[TopicPartition] | None = None) -> None:
        """Read the partitions, or all that are assigned, from their oldest records on."""
        self._seek_all(partitions, OFFSET_BEGINNING)

    def seek_to_end(self, partitions: Sequence[TopicPartition] | None = None) -> None:
        """Read only what comes from the next poll on."""
        self._seek_all(partitions, OFFSET_END)

    def _seek_all(self, partitions: Sequence[TopicPartition] | None, place: int) -> None:
        chosen = self.assignment() if partitions is None else partitions
        for partition in chosen:
            self.seek(TopicPartition(partition.topic, partition.partition, place))

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Give no records of these, until `resume`; the consumer keeps them."""
        self._check_open()
        for partition in partitions:
            self._fetcher.cursor(log_partition(partition)).paused = True

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Give records of these again."""
        self._check_open()
        for partition in partitions:
            self._fetcher.cursor(log_partition(partition)).paused = False

    def committed(
        self, partitions: Sequence[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """What the group has committed; -1001 where it has nothing."""
        self._check_open()
        wanted = [log_partition(partition) for partition in partitions]
        try:
            found = self._log.committed(self._group_id, wanted)
        except LogError as error:
            raise translated(error) from error
        answer = []
        for where in wanted:
            offset = found.get(where)
            answer.append(
                TopicPartition(*where) if offset is None
                else TopicPartition(*where, offset.offset, offset.metadata or None)
            )
        return answer

    def _committed_offsets(self, partitions: Collection[LogPartition]) -> dict[LogPartition, int]:
        if not self._group_id:
            return {}
        found = self._log.committed(self._group_id, partitions)
        return {where: offset.offset for where, offset in found.items()}

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int]:
        """The oldest offset that may be read, and the next one to be given."""
        self._check_open()
        where = log_partition(partition)
        try:
            offsets = self._log.offsets([where])[where]
        except LogError as error:
            raise translated(error) from error
        return offsets.start, offsets.end

    def offsets_for_times(
        self, partitions: Sequence[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """For each partition, whose offset is a time: the first record not older; else -1."""
        self._check_open()
        answer = []
        for partition in partitions:
            found = TopicPartition(partition.topic, partition.partition, OFFSET_END)
            try:
                first = self._log.offset_for_time(*log_partition(partition), partition.offset)
                if first is not None:
                    found.offset = first.offset
            except LogError as error:
                found.error = as_kafka_error(error)
            answer.append(found)
        return answer

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """The topics of the log, or one."""
        self._check_open()
        return cluster_metadata(self._log, topic)

    def _member(self) -> Member | None:
        """Who commits: None for a consumer that assigned its partitions itself."""
        if self._membership is None:
            return None
        member = self._membership.member
        if member is None:
            raise failure(
                KafkaError.UNKNOWN_MEMBER_ID,
                f"The consumer is not in group '{self._group_id}' yet. Poll first.",
            )
        return member

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("The consumer is closed.")
