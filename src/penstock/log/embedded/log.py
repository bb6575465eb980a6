"""The embedded log, composed of its parts."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.log.base import (
    Candidate,
    Lease,
    Log,
    Member,
    RangeReader,
    TailReader,
    Transaction,
    Writer,
)
from penstock.log.embedded.appends import Appender
from penstock.log.embedded.cleaner import Cleaner
from penstock.log.embedded.database import Database
from penstock.log.embedded.leases import LeaseTable
from penstock.log.embedded.members import GroupMembers
from penstock.log.embedded.offsets import GroupOffsets
from penstock.log.embedded.options import EmbeddedOptions
from penstock.log.embedded.ranges import RangeQueries
from penstock.log.embedded.schema import read_id
from penstock.log.embedded.scheme import EMBEDDED
from penstock.log.embedded.tail import EmbeddedTailReader
from penstock.log.embedded.topics import TopicCatalog
from penstock.log.embedded.verifier import Verifier
from penstock.log.types import (
    Append,
    AppendResult,
    CleanReport,
    CommittedOffset,
    GroupDescription,
    OffsetAndTimestamp,
    PartitionOffsets,
    Records,
    StagedRecords,
    TopicDescription,
    TopicPartition,
    VerifyReport,
    WriterGrant,
)
from penstock.record import RecordColumns

if TYPE_CHECKING:
    import pyarrow as pa

#: How often to poll the file for changes: short at first, for callers that expect one soon.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.0005, 0.01


class EmbeddedLog(Log):
    """A log in one SQLite file. All parts share the `Database`, which owns the connections."""

    capabilities = EMBEDDED.capabilities

    def __init__(self, path: str, options: EmbeddedOptions | None = None) -> None:
        self.address = str(Path(path).absolute())
        self._database = Database(self.address, options or EmbeddedOptions())
        with self._database.reading() as db:
            self.id = read_id(db)
        self._topics = TopicCatalog(self._database, self.id)
        self._appends = Appender(self._database)
        self._ranges = RangeQueries(self._database)
        self._offsets = GroupOffsets(self._database)
        self._members = GroupMembers(self._database)
        self._leases = LeaseTable(self._database)
        self._cleaner = Cleaner(self._database)
        self._verifier = Verifier(self._database)

    # Topics

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None, *,
        replication_factor: int = -1,
    ) -> TopicDescription:
        """See `Log.create_topic`."""
        return self._topics.create(name, partitions, config or {})

    def topics(self) -> list[TopicDescription]:
        """See `Log.topics`."""
        return self._topics.describe_all()

    def topic(self, name: str) -> TopicDescription:
        """See `Log.topic`."""
        return self._topics.describe(name)

    def alter_topic(self, name: str, config: Mapping[str, object | None]) -> TopicDescription:
        """See `Log.alter_topic`."""
        return self._topics.alter(name, config)

    def add_partitions(self, name: str, partitions: int) -> TopicDescription:
        """See `Log.add_partitions`."""
        return self._topics.add_partitions(name, partitions)

    def delete_topic(self, name: str) -> None:
        """See `Log.delete_topic`."""
        self._topics.delete(name)

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        """See `Log.delete_records`."""
        return self._topics.delete_records(topic, partition, before)

    # Records

    def append(self, topic: str, partition: int, records: Records) -> AppendResult:
        """See `Log.append`."""
        return self._appends.append_many([Append(topic, partition, records)])[0]

    def append_many(
        self, appends: Iterable[Append], *, together: bool = True
    ) -> list[AppendResult]:
        """See `Log.append_many`. Always atomic: a transaction of the file costs no more."""
        return self._appends.append_many(appends)

    def transaction(self, lease: Lease | None = None) -> Transaction:
        """See `Log.transaction`."""
        return self._appends.transaction(lease)

    def stage_records(
        self, records: RecordColumns | pa.RecordBatch | pa.Table
    ) -> list[StagedRecords]:
        """See `Log.stage_records`."""
        return self._appends.stage(records)

    def drop_staged(self, staged: Iterable[StagedRecords]) -> None:
        """See `Log.drop_staged`."""
        self._appends.drop_staged(staged)

    def read(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int | None = None,
        *,
        max_records: int | None = None,
        max_bytes: int | None = None,
    ) -> RangeReader:
        """See `Log.read`."""
        where = TopicPartition(topic, partition)
        return self._ranges.read(where, start, end, (max_records, max_bytes))

    def offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, PartitionOffsets]:
        """See `Log.offsets`."""
        return self._ranges.offsets(partitions)

    def offset_for_time(
        self, topic: str, partition: int, timestamp: int
    ) -> OffsetAndTimestamp | None:
        """See `Log.offset_for_time`."""
        return self._ranges.offset_for_time(topic, partition, timestamp)

    def wait_for_change(self, timeout: float) -> bool:
        """See `Log.wait_for_change`."""
        deadline = time.monotonic() + timeout
        pause = _FIRST_PAUSE_S
        changed = self._database.changed
        while True:
            # Commits of this process set the event. Clear it first, so that none is missed.
            woken = changed.is_set()
            changed.clear()
            if self._database.has_changed() or woken:
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            changed.wait(min(pause, left))
            pause = min(pause * 1.5, _LONGEST_PAUSE_S)

    def wake(self) -> None:
        """See `Log.wake`."""
        self._database.changed.set()

    # Groups

    def commit_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset | int],
        member: Member | None = None,
    ) -> None:
        """See `Log.commit_offsets`."""
        self._offsets.commit(group, offsets, member)

    def committed(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """See `Log.committed`."""
        return self._offsets.committed(group, partitions)

    def groups(self) -> list[str]:
        """See `Log.groups`."""
        return self._offsets.groups()

    def group(self, name: str) -> GroupDescription:
        """See `Log.group`."""
        return self._offsets.describe_group(name)

    def delete_group(self, name: str) -> None:
        """See `Log.delete_group`."""
        self._offsets.delete_group(name)

    def join_group(
        self,
        group: str,
        topics: Collection[str],
        *,
        client_id: str = "",
        member_id: str | None = None,
        session_timeout_ms: int = 45_000,
        strategy: str = "sticky",
    ) -> Member:
        """See `Log.join_group`."""
        return self._members.join(
            group, topics, client_id=client_id, member_id=member_id,
            session_timeout_ms=session_timeout_ms, strategy=strategy,
        )

    # Leases

    def candidate(self, name: str, *, holder: str = "", timeout_ms: int = 6_000) -> Candidate:
        """See `Log.candidate`."""
        return self._leases.candidate(name, holder, timeout_ms)

    def take_lease(self, name: str, *, holder: str = "") -> Lease:
        """See `Log.take_lease`."""
        return self._leases.take(name, holder)

    # Continuous reading and writing

    def open_writer(self, grant: WriterGrant, token: Callable[[], bytes]) -> Writer:
        """See `Log.open_writer`. The file checks the lease itself, without a token."""
        return self._appends.open_writer(grant)

    def tail(self) -> TailReader:
        """See `Log.tail`."""
        return EmbeddedTailReader(self._ranges, self.wait_for_change, self.wake)

    # Maintenance

    def clean(self, topics: Iterable[str] | None = None, *, force: bool = False) -> CleanReport:
        """See `Log.clean`."""
        return self._cleaner.clean(topics, force=force)

    def verify(self, topic: str, partition: int) -> VerifyReport:
        """See `Log.verify`."""
        return self._verifier.partition(topic, partition)

    def verify_metadata(self) -> list[str]:
        """See `Log.verify_metadata`."""
        return self._verifier.metadata()

    def drop_damaged(self, topics: Collection[str]) -> None:
        """See `Log.drop_damaged`."""
        self._verifier.drop_damaged(topics)

    def close(self) -> None:
        """See `Log.close`."""
        self._database.close()

    def __repr__(self) -> str:
        return f"EmbeddedLog('{self.address}')"


def open_embedded(address: str, options: Mapping[str, Any]) -> EmbeddedLog:
    """Open the file at a path. `options` are the fields of `EmbeddedOptions`."""
    return EmbeddedLog(address, EmbeddedOptions(**options))
