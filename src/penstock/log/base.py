"""The contract of a log: what the engine, the clients and the command line build on.

A log keeps **topics** of numbered **partitions**. A partition is a sequence of records, each with
an **offset**; it goes from `start` (the oldest offset that may be read) to `end` (the next to be
given). Both are stored, and neither ever goes back.

*Append.* Records of one append, or of one transaction, appear together, in all their partitions,
or not at all; a process that is killed leaves nothing visible behind. When the call returns the
records are there for every process. Offsets of a partition ascend in the order of the appends. The
embedded log leaves no gaps when it appends; compaction does, and so do Kafka's transaction
markers: the position to go on from is `RangeReader.position`, never an offset plus one. On Kafka an
append to one partition is no transaction: a process that is killed in the midst of it may leave
the first of its records, and others may write in between.

*Read.* A reader sees committed records only. `read` goes through a range in steps of bounded size,
each an Arrow record batch with the columns of `COLUMNS`, so a reader's memory does not depend on
the size of the topic. It may be overtaken: by retention, then the next step raises
`OffsetOutOfRange`; by compaction, then it gets the records that are left.

*Tombstones.* A compacted topic forgets a tombstone after `delete.retention.ms`. Whoever builds
state from a topic must not miss one: if `tombstones_removed_to` is larger than the position the
state stands at, and larger than it was when the state was empty, the state has to be built again
from the start. Every batch tells it as it was when the batch was read. Kafka does not tell: there
it is always 0, and state that nobody kept for longer than `delete.retention.ms` is to be thrown
away.

*Time.* Timestamps are epoch milliseconds, not negative. Without one a record gets the log's clock
(on Kafka: that of who appends); with `message.timestamp.type=LogAppendTime` it always does.

*Sizes.* A record's size is the bytes of its key, its value and its headers' names and values
(`record_size`). Above the topic's `max.message.bytes` it is refused with `RecordTooLarge`. (Kafka
counts the overhead of its own format too, some 80 bytes and a few for each header.) A compacted
topic refuses records without a key.

*Groups.* A group is a name under which offsets are committed, each with a text. It may have
**members**, among which the log divides the partitions of the topics they subscribe to: no
partition is given to a member while another may still be working on it (see `Member.heartbeat`).
On Kafka the brokers do: changes take a moment to arrive, offsets without a member are taken only
while the group has none, and a member with an id of its own keeps its place, after it has left, for
its session timeout.

*Leases.* A lease is a name with one holder. Its epoch grows with every holder; a transaction that
carries a lease is refused with `Fenced` once a later epoch exists. A holder's death is noticed by
those who want the lease (`Candidate`), each on its own monotonic clock; no two clocks are
compared. On Kafka the group coordinator notices it, after six seconds at the least; and a holder
that does not renew for its own timeout gives the lease up. A lease is wanted or taken at once
there, not both under one name.

*Threads and processes.* A `Log` may be used by many threads; it does not travel to another
process, its `address` does. After a fork the child may go on with its copy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from penstock.log.types import (
    COLUMNS as COLUMNS,
)
from penstock.log.types import (
    Append as Append,
)
from penstock.log.types import (
    AppendResult as AppendResult,
)
from penstock.log.types import (
    Assignment as Assignment,
)
from penstock.log.types import (
    CleanReport as CleanReport,
)
from penstock.log.types import (
    Columns as Columns,
)
from penstock.log.types import (
    CommittedOffset as CommittedOffset,
)
from penstock.log.types import (
    GroupDescription as GroupDescription,
)
from penstock.log.types import (
    LogBatch as LogBatch,
)
from penstock.log.types import (
    MemberDescription as MemberDescription,
)
from penstock.log.types import (
    OffsetAndTimestamp as OffsetAndTimestamp,
)
from penstock.log.types import (
    PartitionOffsets as PartitionOffsets,
)
from penstock.log.types import (
    Records as Records,
)
from penstock.log.types import (
    StagedRecords as StagedRecords,
)
from penstock.log.types import (
    TopicDescription as TopicDescription,
)
from penstock.log.types import (
    TopicPartition as TopicPartition,
)
from penstock.log.types import (
    record_size as record_size,
)

if TYPE_CHECKING:
    import pyarrow as pa


class RangeReader(ABC, Iterator[LogBatch]):
    """A range that is being read, step by step; nothing is held open between the steps."""

    #: Where to read on after what was taken so far. Moves over offsets that hold no record, so
    #: after the last step of a range without limits it is the end of the range.
    position: int

    def __iter__(self) -> Self:
        return self


class Transaction(ABC):
    """Appends and offsets that become visible together when the `with` block ends.

    If the block raises, or `abort` is called, nothing has happened. Nothing is locked before the
    end of the block; what it collects beyond some megabytes waits in the log, out of sight.
    """

    #: Filled by the commit: one for every append, in order.
    appended: list[AppendResult]

    @abstractmethod
    def append(self, topic: str, partition: int, records: Records) -> None:
        """Add records to the end of a partition. May refuse them now or at the commit."""

    @abstractmethod
    def commit_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset | int],
        member: Member | None = None,
    ) -> None:
        """Set where the group goes on. With a member: `Fenced` unless it owns the partitions."""

    @abstractmethod
    def commit(self) -> list[AppendResult]:
        """Make it visible; the end of the `with` block calls it. Answers `appended`."""

    @abstractmethod
    def abort(self) -> None:
        """Forget everything. Does nothing after a commit."""

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
    """A lease that was taken. It is the holder's until another takes it."""

    name: str
    epoch: int

    @abstractmethod
    def renew(self) -> None:
        """Show that the holder lives; `Fenced` if it has lost the lease."""

    @abstractmethod
    def settle(self) -> None:
        """Wait until all that was begun under the lease is decided, and can be read.

        To be called before anything is concluded from the log after an `OutcomeUnknown`.
        """

    @abstractmethod
    def release(self) -> None:
        """Give the lease up, so that the next one need not wait. Does nothing if it is lost."""


class Candidate(ABC):
    """One who wants a lease, and watches its holder meanwhile."""

    #: What the holder told of itself, as of the last try; None if nobody held it, or none can say.
    holder: str | None = None

    @abstractmethod
    def try_acquire(self) -> Lease | None:
        """The lease, if it is free or its holder gave no sign for the timeout; else None.

        To be called again and again: what counts is the time between two calls in which the
        holder did not renew, on this process's monotonic clock.
        """


class Member(ABC):
    """A process's place in a group."""

    group: str
    member_id: str

    @abstractmethod
    def heartbeat(self, owned: Collection[TopicPartition]) -> Assignment:
        """Show that the member lives and which partitions it works on; answers what it should.

        Partitions in `owned` that are not in the answer are to be given up: finish with them,
        commit, and leave them out of the next heartbeat; only then does another member get them.
        The others of the answer are the member's own from now on. Members that gave no sign for
        their session timeout are thrown out by the heartbeats of the rest. `Fenced`: this one was;
        all its partitions are lost.
        """

    @abstractmethod
    def needs_heartbeat(self) -> bool:
        """Whether the group has changed since the last heartbeat. Cheap."""

    @abstractmethod
    def leave(self) -> None:
        """Give up the place and all partitions at once."""


class Log(ABC):
    """A log. Opened by `penstock.log.open_log`; a context manager that closes it."""

    #: What `open_log` takes, in any process.
    address: str
    #: Differs between any two logs, even at the same address.
    id: str
    #: Whether it is elsewhere, so that several processes write to it faster than one.
    is_remote: bool = False

    # Topics

    @abstractmethod
    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None
    ) -> TopicDescription:
        """A new topic; `TopicExists` if it is there, `InvalidTopic` if it cannot be."""

    @abstractmethod
    def topics(self) -> list[TopicDescription]:
        """All topics, by name."""

    @abstractmethod
    def topic(self, name: str) -> TopicDescription:
        """One topic; `UnknownTopic` if it is not there."""

    @abstractmethod
    def alter_topic(self, name: str, config: Mapping[str, object | None]) -> TopicDescription:
        """Change settings; None puts one back to its default."""

    @abstractmethod
    def add_partitions(self, name: str, partitions: int) -> TopicDescription:
        """Let the topic have that many partitions; fewer than now is `InvalidTopic`."""

    @abstractmethod
    def delete_topic(self, name: str) -> None:
        """Remove the topic, its records, and the offsets that groups committed for it."""

    @abstractmethod
    def delete_records(self, topic: str, partition: int, before: int) -> int:
        """Move the start up to `before`; answers the new start."""

    # Records

    @abstractmethod
    def append(self, topic: str, partition: int, records: Records) -> AppendResult:
        """Append to one partition."""

    @abstractmethod
    def append_many(
        self, appends: Iterable[Append], *, together: bool = True
    ) -> list[AppendResult]:
        """Append to many partitions at once: all or nothing.

        `together=False`: the caller does not mind if only some of them appear, should the process
        or the connection die meanwhile. On Kafka that saves a transaction.
        """

    @abstractmethod
    def transaction(self, lease: Lease | None = None) -> Transaction:
        """A new transaction. With a lease, its commit is `Fenced` once the lease has moved on."""

    @abstractmethod
    def stage_records(self, records: Columns | pa.RecordBatch | pa.Table) -> list[StagedRecords]:
        """Put records aside, out of sight, to be appended later by naming them.

        Answers one blob or, if there is much, several, to be appended in this order. Blobs that
        nobody uses are swept in time.
        """

    @abstractmethod
    def drop_staged(self, blobs: Iterable[StagedRecords]) -> None:
        """Remove what was put aside and is not wanted. What is gone already is gone."""

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
        """Records from `start` up to, without, `end` (None: the end as it stands now).

        At most `max_records`, and at most `max_bytes` of record sizes, but always at least one
        record. `OffsetOutOfRange` if `start` is not within the partition, at once or in a step.
        """

    @abstractmethod
    def offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, PartitionOffsets]:
        """Start, end and `tombstones_removed_to`; in the embedded log all as of one moment."""

    @abstractmethod
    def offset_for_time(
        self, topic: str, partition: int, timestamp: int
    ) -> OffsetAndTimestamp | None:
        """The first record that is not older than the time; None if there is none."""

    def prefetch(
        self, ranges: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, LogBatch]:
        """Whole ranges (start, end) that can be had together and at once, for who hands them on.

        Those that are not in the answer are to be read. A log from which every process reads
        quickly by itself has no need of this, and answers nothing.
        """
        return {}

    @abstractmethod
    def wait_for_change(self, timeout: float) -> bool:
        """Wait until anything was committed since the last call (or the opening), by anyone.

        False if the seconds have passed and nothing was. May be True for nothing. One thread
        waits at a time; others may `wake` it. On Kafka 'anything' are records of the partitions
        that this handle was asked about (`offsets`, `read`), or of all while it was asked about
        none.
        """

    @abstractmethod
    def wake(self) -> None:
        """Let a `wait_for_change` in another thread, or the next one, answer True at once."""

    # Groups

    @abstractmethod
    def commit_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset | int],
        member: Member | None = None,
    ) -> None:
        """Set where the group goes on. With a member: `Fenced` unless it owns the partitions."""

    @abstractmethod
    def committed(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """What was committed; partitions without a commit are not in it. None: all there are."""

    @abstractmethod
    def groups(self) -> list[str]:
        """The names of all groups that have members or offsets."""

    @abstractmethod
    def group(self, name: str) -> GroupDescription:
        """One group; one that nobody has heard of is empty, not an error."""

    @abstractmethod
    def delete_group(self, name: str) -> None:
        """Forget the group and its offsets; `GroupNotEmpty` while it has live members."""

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
        """A place in the group. A topic that begins with `^` is a pattern.

        The partitions come with the first heartbeat. A `member_id` of one's own takes the place of
        the member that had it, who is fenced. Strategies: "range", "roundrobin", "sticky".
        """

    # Leases

    @abstractmethod
    def candidate(self, name: str, *, holder: str = "", timeout_ms: int = 6_000) -> Candidate:
        """One who wants the lease; `holder` is a text for people."""

    @abstractmethod
    def take_lease(self, name: str, *, holder: str = "") -> Lease:
        """Take the lease at once, whoever holds it: that one is fenced."""

    # Keeping house

    @abstractmethod
    def clean(self, topics: Iterable[str] | None = None, *, force: bool = False) -> CleanReport:
        """Retention, compaction, merging of small batches, sweeping of unused blobs.

        Safe while others read, write and clean. `force` compacts also what is hardly worth it.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of the log. Calling it again does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
