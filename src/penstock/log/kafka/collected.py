"""The records and offsets of a transaction before its commit."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

from penstock.clock import wall_clock_ms
from penstock.log.base import Member, Transaction
from penstock.log.kafka.append_context import AppendContext
from penstock.log.kafka.encoding import CheckedColumns
from penstock.log.kafka.members import KafkaMember, check_member
from penstock.log.kafka.pending import PendingAppend, normalize_offsets
from penstock.log.types import AppendResult, CommittedOffset, Records, StagedRecords, TopicPartition

#: A transaction stages its records once they exceed this size.
_SPILL_BYTES = 32 * 1024 * 1024


class GroupCommit(NamedTuple):
    """Offsets of a group, and the member that commits them."""

    group: str
    offsets: dict[TopicPartition, CommittedOffset]
    member: KafkaMember | None


class CollectedTransaction(Transaction):
    """Collects appends and offsets until the commit. Subclasses send them."""

    #: Whether a commit checks records with old metadata of topics, rather than wait for brokers.
    _accepts_stale_metadata = False

    def __init__(self, context: AppendContext) -> None:
        self.appended: list[AppendResult] = []
        self._context = context
        self._appends: list[PendingAppend] = []
        self._offsets: list[GroupCommit] = []
        #: The size of the records that are not staged yet.
        self._bytes = 0
        self._spilled: list[StagedRecords] = []
        self._over = False

    def append(self, topic: str, partition: int, records: Records) -> None:
        """See `Transaction.append`."""
        self._check_open()
        append = PendingAppend.of(topic, partition, records)
        self._appends.append(append)
        self._bytes += sum(part.size for part in append.parts if isinstance(part, CheckedColumns))
        if self._bytes > _SPILL_BYTES:
            self._spill()

    def _spill(self) -> None:
        staging = self._context.staging
        for append in self._appends:
            parts: list[CheckedColumns | StagedRecords] = []
            for part in append.parts:
                if isinstance(part, CheckedColumns):
                    staged = staging.stage(part)
                    self._spilled += staged
                    parts += staged
                else:
                    parts.append(part)
            append.parts = parts
        self._bytes = 0

    def commit_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset | int],
        member: Member | None = None,
    ) -> None:
        """See `Transaction.commit_offsets`."""
        self._check_open()
        self._offsets.append(
            GroupCommit(group, normalize_offsets(offsets), check_member(group, member))
        )

    def commit(self) -> list[AppendResult]:
        """See `Transaction.commit`."""
        self._check_open()
        context = self._context
        try:
            now = wall_clock_ms()
            stale = self._accepts_stale_metadata
            limit = context.check_appends(self._appends, now, may_be_stale=stale)
            for _, offsets, member in self._offsets:
                if member is not None:
                    member.check_owns(offsets)
                for topic, partition in offsets:
                    context.clients.topics.find_partition(topic, partition, may_be_stale=stale)
            self.appended = self._publish(now, limit)
        except BaseException:
            self.abort()
            raise
        self._over = True
        used = [staged for append in self._appends for staged in append.staged()]
        context.staging.drop([*used, *self._spilled])
        context.connection.changed.set()
        return self.appended

    def abort(self) -> None:
        """See `Transaction.abort`."""
        if self._over:
            return
        self._over = True
        self._appends.clear()
        self._context.staging.drop(self._spilled)

    def _check_open(self) -> None:
        if self._over:
            raise ValueError("The transaction is over. Begin a new one.")

    @abstractmethod
    def _publish(self, now: int, limit: int) -> list[AppendResult]:
        """Send and commit everything. `limit` is the largest batch that the topics accept."""
