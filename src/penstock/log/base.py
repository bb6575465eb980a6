"""The contract of a log. The engine, the clients and the command line depend on nothing else.

A log holds **topics** with numbered **partitions**. A partition is a sequence of records; each
record has an **offset**. A partition has a `start`, the oldest readable offset, and an `end`, the
next offset to be assigned. Both are stored, and neither ever decreases.

*Append.* The records of one append, or of one transaction, become visible together in all their
partitions, or not at all. A killed process leaves nothing visible. When the call returns, every
process can read the records. Offsets in a partition ascend in the order of the appends. They can
have gaps: compaction leaves gaps in both logs, transaction markers leave gaps on Kafka. Therefore
continue reading at `RangeReader.position`, never at an offset plus one. On Kafka, an append to one
partition is not a transaction: a process killed during it may leave a prefix of the records, and
other writers may interleave.

*Read.* A reader sees committed records only. `read` returns a range in steps of bounded size, each
an Arrow record batch with the columns of `COLUMNS`, so memory does not depend on the size of the
topic. Retention or compaction may overtake a reader. After retention, the next step raises
`OffsetOutOfRange`; after compaction, the reader gets the remaining records.

*Tombstones.* Compaction removes a tombstone after `delete.retention.ms`. State that is built from
a topic must not miss one. If `tombstones_removed_to` is larger than the position of the state, and
larger than it was when the state was empty, rebuild the state from the start. Every batch carries
the value at the time of the read. Kafka does not report it: there it is always 0, and state that
was not updated for `delete.retention.ms` must be discarded.

*Time.* Timestamps are non-negative epoch milliseconds. A record without a timestamp gets the log's
clock (on Kafka the clock of the appending process). With `message.timestamp.type=LogAppendTime`
every record gets the log's clock.

*Sizes.* The size of a record is the number of bytes of its key, its value, and the names and
values of its headers (`record_size`). A record larger than the topic's `max.message.bytes` raises
`RecordTooLarge`. Kafka also counts the overhead of its format: about 80 bytes, and a few per
header. A compacted topic rejects records without a key.

*Groups.* A group is a name under which offsets are committed, each with a metadata string. A group
may have **members**; the log assigns the partitions of the subscribed topics to them. A partition
is not assigned to a member while another may still process it (see `Member.heartbeat`). On Kafka
the brokers assign partitions: changes take a moment to arrive, offsets can be committed without a
member only while the group is empty, and a static member keeps its assignment for its session
timeout after it has left.

*Leases.* A lease is a name with at most one holder. Its epoch increases with every holder. A
transaction with a lease raises `Fenced` once a later epoch exists. Candidates detect a dead holder,
each with its own monotonic clock; clocks of different processes are never compared. On Kafka the
group coordinator detects it, after at least six seconds, and a holder that does not renew within
its own timeout gives up the lease. On Kafka, do not use `candidate` and `take_lease` with the same
name at the same time.

*Writers.* The holder of a lease may let other processes write on its behalf. Each gets a grant of
its own (`Lease.create_writer`) and opens a `Writer` with it, in any process. The holder can fence a
single writer. A new holder of the lease has fenced all writers of earlier holders before it gets
the lease.

*Tails.* A `TailReader` follows partitions as they grow: it returns committed records in the order
of each partition, and fetches ahead.

*Threads and processes.* Several threads may share a `Log`. Pass its `address`, not the object, to
another process. A forked child may continue to use its copy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from penstock.log.errors import LogDamaged, LogError
from penstock.log.scheme import LogCapabilities
from penstock.log.types import (
    Append,
    AppendResult,
    Assignment,
    CleanReport,
    CommittedOffset,
    DamagedRange,
    GroupDescription,
    LogBatch,
    OffsetAndTimestamp,
    PartitionOffsets,
    Records,
    StagedRecords,
    TopicDescription,
    TopicPartition,
    VerifyReport,
    WriterGrant,
)
from penstock.record import PartitionColumns, RecordColumns

if TYPE_CHECKING:
    import pyarrow as pa


class RangeReader(ABC, Iterator[LogBatch]):
    """Reads a range of one partition step by step. Holds nothing open between steps."""

    #: The offset to continue at. It skips offsets without a record, so after the last step of a
    #: range without limits it is the end of the range.
    position: int

    def __iter__(self) -> Self:
        return self


class Transaction(ABC):
    """Appends and offset commits that become visible together at the end of the `with` block.

    If the block raises or calls `abort`, nothing is written. No lock is held before the commit.
    A transaction stages its records once they exceed a few megabytes.
    """

    #: One result per append, in order. Set by the commit.
    appended: list[AppendResult]

    @abstractmethod
    def append(self, topic: str, partition: int, records: Records) -> None:
        """Add records to the end of a partition. Invalid records raise here or at the commit."""

    @abstractmethod
    def commit_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset | int],
        member: Member | None = None,
    ) -> None:
        """Commit offsets of a group. `Fenced` if a given member does not own the partitions."""

    @abstractmethod
    def commit(self) -> list[AppendResult]:
        """Commit, and return `appended`. The end of the `with` block calls this."""

    @abstractmethod
    def abort(self) -> None:
        """Discard everything. Has no effect after a commit."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.commit()
        else:
            self.abort()


class Lease(ABC):
    """A lease in the hands of its holder, until another process takes it."""

    name: str
    epoch: int

    @abstractmethod
    def renew(self) -> None:
        """Send a sign of life. `Fenced` if the lease is lost."""

    @abstractmethod
    def settle(self) -> None:
        """Wait until the outcome of every transaction of the lease is decided and readable.

        Fences all writers of the lease, also those whose fence has failed before. Call it after
        `OutcomeUnknown` and after an outage, before you draw conclusions from the log.
        """

    @abstractmethod
    def release(self) -> None:
        """Give up the lease so that the next holder need not wait. No effect if it is lost."""

    # Writers

    @abstractmethod
    def create_writer(self) -> WriterGrant:
        """Let one more process write on behalf of the holder. Recorded in the log at once."""

    @abstractmethod
    def fence_writers(self, grants: Collection[WriterGrant]) -> None:
        """End writers. Their later transactions raise `Fenced`. May be repeated.

        Returns when their last transactions are decided and, if they are committed, readable.
        """

    @abstractmethod
    def member_token(self) -> bytes:
        """Return a proof of the lease, with which writers commit offsets. It may change.

        `Fenced` if the lease is lost.
        """


class Writer(ABC):
    """Transactions of one process on behalf of the holder of a lease. One thread uses it."""

    grant: WriterGrant
    #: How long to wait after a commit if there is time. A transaction that begins earlier is valid,
    #: but takes longer.
    settle_s: float = 0.0

    @abstractmethod
    def transaction(self) -> Transaction:
        """Begin a transaction. Its commit raises `Fenced` once the writer or the lease is fenced.

        Offsets of the group with the name of the lease are committed with the holder's token. When
        the commit returns, it is decided; the records may become readable a moment later.
        """

    @abstractmethod
    def close(self) -> None:
        """Release the resources. The grant stays valid until it is fenced."""


class TailReader(ABC):
    """Follows partitions, each from its own position. One thread uses it, any may `wake` it."""

    @abstractmethod
    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        """Follow more partitions, from these offsets on, or move to other offsets.

        `UnknownTopic`, here or in `poll`, if a partition does not exist.
        """

    @abstractmethod
    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop following partitions, and drop what was fetched of them.

        Partitions that are not followed are ignored, here and in `pause` and `resume`.
        """

    @abstractmethod
    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these partitions until `resume`. Nothing fetched is lost."""

    @abstractmethod
    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Return records of these partitions again."""

    @abstractmethod
    def poll(self, timeout: float, max_records: int) -> list[PartitionColumns]:
        """Return the next records, about `max_records` at most; each item of one partition.

        Waits for at most `timeout` seconds until a record arrives, a partition turns out to be at
        its end, or `wake` is called. `OffsetOutOfRange` if retention has removed a position.
        """

    @abstractmethod
    def position(self, partition: TopicPartition) -> int:
        """Return the offset after the last returned record and the offsets without a record."""

    @abstractmethod
    def is_at_end(self, partition: TopicPartition) -> bool:
        """Return whether there was no further record when the partition was last fetched."""

    @abstractmethod
    def end(self, partition: TopicPartition) -> int:
        """Return the end of the partition when it was last fetched, without a request.

        The position if that is not known yet.
        """

    @abstractmethod
    def wake(self) -> None:
        """Make the current or the next `poll` return at once."""

    @abstractmethod
    def close(self) -> None:
        """Stop following all partitions."""


class Candidate(ABC):
    """Waits for a lease and monitors its current holder."""

    #: The holder's description at the last attempt; None if it was free or the holder is unknown.
    holder: str | None = None
    #: Whether the holder has renewed the lease since the first attempt, as far as the log tells.
    holder_is_alive: bool = False

    @abstractmethod
    def try_acquire(self) -> Lease | None:
        """Return the lease if it is free or its holder did not renew within the timeout.

        Call it repeatedly. It measures the time without a renewal between its calls, with the
        monotonic clock of this process.
        """


class Member(ABC):
    """A process's membership in a group."""

    group: str
    member_id: str

    @abstractmethod
    def heartbeat(
        self, owned: Collection[TopicPartition], *, wait_s: float | None = None
    ) -> Assignment:
        """Send a sign of life with the partitions in progress, and return the assignment.

        Partitions in `owned` that are not in the assignment are revoked: finish them, commit, and
        leave them out of the next heartbeat; only then does another member get them. The other
        partitions of the assignment belong to the member from now on. Heartbeats also remove
        members without a heartbeat within their session timeout. `Fenced`: this member was
        removed and has lost all its partitions.

        The first assignment may depend on heartbeats of other members. `wait_s` limits the wait for
        it; the assignment is then empty. A thread with several members needs such a limit.
        """

    @abstractmethod
    def needs_heartbeat(self) -> bool:
        """Return whether the group has changed since the last heartbeat. Cheap."""

    @abstractmethod
    def leave(self) -> None:
        """Leave the group and give up all partitions at once."""


class Log(ABC):
    """A log, opened by `penstock.log.open_log`. As a context manager it closes itself."""

    #: The argument for `open_log`, in any process.
    address: str
    #: Unique for each log, also for two logs that had the same address at different times.
    id: str
    #: Those of its scheme.
    capabilities: LogCapabilities

    # Topics

    @abstractmethod
    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None, *,
        replication_factor: int = -1,
    ) -> TopicDescription:
        """Create a topic. `TopicExists`, or `InvalidTopic` for an illegal name or setting.

        `replication_factor` is the number of brokers that store it; -1: the default of the log. A
        log without brokers ignores it.
        """

    @abstractmethod
    def topics(self) -> list[TopicDescription]:
        """Return all topics, ordered by name."""

    @abstractmethod
    def topic(self, name: str) -> TopicDescription:
        """Return one topic. `UnknownTopic` if it does not exist."""

    @abstractmethod
    def alter_topic(self, name: str, config: Mapping[str, object | None]) -> TopicDescription:
        """Change settings. None resets a setting to its default."""

    @abstractmethod
    def add_partitions(self, name: str, partitions: int) -> TopicDescription:
        """Increase the number of partitions. `InvalidTopic` if it would decrease."""

    @abstractmethod
    def delete_topic(self, name: str) -> None:
        """Delete a topic, its records, and the offsets committed for it."""

    @abstractmethod
    def delete_records(self, topic: str, partition: int, before: int) -> int:
        """Delete the records below an offset. Returns the new start of the partition."""

    # Records

    @abstractmethod
    def append(self, topic: str, partition: int, records: Records) -> AppendResult:
        """Append to one partition."""

    @abstractmethod
    def append_many(
        self, appends: Iterable[Append], *, together: bool = True
    ) -> list[AppendResult]:
        """Append to several partitions atomically.

        `together=False` gives up atomicity: appends may fail alone (`PartlyAppended`), and the
        process may end in between. On Kafka that saves a transaction.
        """

    @abstractmethod
    def transaction(self, lease: Lease | None = None) -> Transaction:
        """Begin a transaction. With a lease, its commit raises `Fenced` once the lease is lost."""

    @abstractmethod
    def stage_records(
        self, records: RecordColumns | pa.RecordBatch | pa.Table
    ) -> list[StagedRecords]:
        """Store records invisibly. A later append refers to them.

        Returns one or several parts, to be appended in this order. `clean` deletes parts that
        were not used for a while.
        """

    @abstractmethod
    def drop_staged(self, staged: Iterable[StagedRecords]) -> None:
        """Delete staged records. Parts that no longer exist are ignored."""

    @abstractmethod
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
        """Read the records from `start` up to, but not including, `end` (None: the current end).

        Returns at most `max_records` and at most `max_bytes` of record sizes, but at least one
        record. `OffsetOutOfRange`, here or in a step, if `start` is not within the partition.
        """

    @abstractmethod
    def offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, PartitionOffsets]:
        """Return the offsets of partitions; in the embedded log all from one snapshot."""

    def settled_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_s: float
    ) -> dict[TopicPartition, PartitionOffsets]:
        """Return the offsets of partitions at a moment without an open transaction in them.

        Up to these ends, a transaction is visible in all of the partitions or in none. `LogBusy`
        if there is no such moment within the timeout. The default suits a log whose `offsets` are
        from one snapshot.
        """
        return self.offsets(partitions)

    def is_readable(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Whether readers see everything before these offsets, which are committed.

        Partitions that no longer exist, or were created again, do not count. The default suits a
        log whose commits are readable at once.
        """
        return True

    @abstractmethod
    def offset_for_time(
        self, topic: str, partition: int, timestamp: int
    ) -> OffsetAndTimestamp | None:
        """Return the first record with this timestamp or a later one, or None."""

    def prefetch(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], *, timeout_s: float = 0.05
    ) -> dict[TopicPartition, LogBatch]:
        """Return the whole ranges (start, end) that one consumer can fetch in time.

        The caller reads the missing ranges with `read`. The default returns nothing: it suits a
        log that every process can read fast.
        """
        return {}

    @abstractmethod
    def wait_for_change(self, timeout: float) -> bool:
        """Wait for a commit by any process since the last call, or since the log was opened.

        Returns False after `timeout` seconds without one. May return True spuriously. Only one
        thread may wait at a time; others may `wake` it. On Kafka only records count, and only in
        the partitions that this handle has read or asked for; with none, in all partitions.
        """

    @abstractmethod
    def wake(self) -> None:
        """Make the current or the next `wait_for_change` return True at once."""

    # Groups

    @abstractmethod
    def commit_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset | int],
        member: Member | None = None,
    ) -> None:
        """Commit offsets of a group. `Fenced` if a given member does not own the partitions."""

    @abstractmethod
    def committed(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets of the given partitions, or of all."""

    @abstractmethod
    def groups(self) -> list[str]:
        """Return the names of all groups with members or committed offsets."""

    @abstractmethod
    def group(self, name: str) -> GroupDescription:
        """Describe a group. An unknown group is empty."""

    @abstractmethod
    def delete_group(self, name: str) -> None:
        """Delete a group and its offsets. `GroupNotEmpty` while it has live members."""

    @abstractmethod
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
        """Join a group. A topic that starts with `^` is a pattern.

        The first heartbeat returns partitions. A given `member_id` replaces, and fences, the
        member with this id. Strategies: "range", "roundrobin", "sticky".
        """

    # Leases

    @abstractmethod
    def candidate(self, name: str, *, holder: str = "", timeout_ms: int = 6_000) -> Candidate:
        """Return a candidate for a lease. `holder` is a readable description of this process."""

    @abstractmethod
    def take_lease(self, name: str, *, holder: str = "") -> Lease:
        """Take the lease at once and fence its current holder."""

    # Continuous reading and writing

    @abstractmethod
    def open_writer(self, grant: WriterGrant, token: Callable[[], bytes]) -> Writer:
        """Open a writer. `token` returns the current `Lease.member_token`, from any process.

        Initializes the writer, so that the first transaction is fast.
        """

    @abstractmethod
    def tail(self) -> TailReader:
        """Return a reader that follows partitions. It follows none at first."""

    # Maintenance

    @abstractmethod
    def clean(self, topics: Iterable[str] | None = None, *, force: bool = False) -> CleanReport:
        """Apply retention and compaction, merge small batches, delete unused staged records.

        Safe while other processes read, write and clean. `force` compacts partitions below
        `min.cleanable.dirty.ratio` too.
        """

    def verify(self, topic: str, partition: int) -> VerifyReport:
        """Check all records of a partition.

        The default reads them, which suits a log whose readers check everything. It stops at the
        first damage.
        """
        where = TopicPartition(topic, partition)
        bounds = self.offsets([where])[where]
        report = VerifyReport()
        reader = self.read(topic, partition, bounds.start, bounds.end)
        try:
            for batch in reader:
                report.records += len(batch)
        except LogDamaged as error:
            damaged = error.offsets or (reader.position, bounds.end - 1)
            report.damaged.append(DamagedRange(*damaged, str(error)))
        return report

    def verify_metadata(self) -> list[str]:
        """Return the problems outside of the records: one line each."""
        return []

    def drop_damaged(self, topics: Collection[str]) -> None:
        """Give up the damaged records of topics. Their offsets stay, without records."""
        raise LogError(
            f"Damaged records of '{self.address}' cannot be dropped. Let the brokers copy the "
            "partition from an intact replica."
        )

    @abstractmethod
    def close(self) -> None:
        """Close the log. Has no effect on a closed log."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
