"""The log on Kafka, composed of its parts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
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
from penstock.log.kafka.append_context import AppendContext
from penstock.log.kafka.appends import KafkaAppender
from penstock.log.kafka.client.connection import Connection
from penstock.log.kafka.client.pool import ClientPool
from penstock.log.kafka.client.settings import ClientSettings, KafkaOptions, parse_servers
from penstock.log.kafka.lease_records import LeaseRecords
from penstock.log.kafka.leases import KafkaLeases
from penstock.log.kafka.members import KafkaMembers
from penstock.log.kafka.offsets import KafkaGroupOffsets
from penstock.log.kafka.ranges import KafkaRanges
from penstock.log.kafka.scheme import KAFKA, PREFIX
from penstock.log.kafka.staging import StagingDirectory
from penstock.log.kafka.tail import KafkaTailReader
from penstock.log.kafka.topics import KafkaTopics
from penstock.log.kafka.transactions import KafkaTransaction
from penstock.log.kafka.writers import KafkaWriter
from penstock.log.types import (
    Append,
    AppendResult,
    CleanReport,
    CommittedOffset,
    GroupDescription,
    LogBatch,
    OffsetAndTimestamp,
    PartitionOffsets,
    Records,
    StagedRecords,
    TopicDescription,
    TopicPartition,
    WriterGrant,
)
from penstock.record import RecordColumns

if TYPE_CHECKING:
    import pyarrow as pa


class KafkaLog(Log):
    """A log on a Kafka cluster. All parts share the `Connection`, which owns the clients."""

    capabilities = KAFKA.capabilities

    def __init__(self, address: str, options: KafkaOptions | None = None) -> None:
        servers = parse_servers(address)
        self.address = f"{PREFIX}{servers}"
        settings = ClientSettings(servers, options or KafkaOptions())
        self._connection = connection = Connection(settings)
        self._clients = clients = ClientPool(connection)
        self._staging = StagingDirectory(settings.staging_directory())
        self._ranges = KafkaRanges(connection, clients)
        self._topics = KafkaTopics(connection, clients, self._ranges)
        self._context = AppendContext(connection, clients, self._ranges, self._staging)
        self._appends = KafkaAppender(self._context)
        self._offsets = KafkaGroupOffsets(connection, clients)
        self._members = KafkaMembers(connection)
        records = LeaseRecords(connection, self._ranges, self._topics, self._appends)
        self._leases = KafkaLeases(connection, records)
        try:
            self.id = self._cluster_id()
        except BaseException:
            connection.close()
            raise

    def _cluster_id(self) -> str:
        def send() -> Any:
            return self._connection.admin.describe_cluster(
                request_timeout=self._connection.request_timeout
            )

        described: Any = self._connection.request(send, "Reading the cluster id failed")
        return str(described.cluster_id)

    # Topics

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None, *,
        replication_factor: int = -1,
    ) -> TopicDescription:
        """See `Log.create_topic`."""
        return self._topics.create(name, partitions, config or {}, replication_factor)

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
        return self._appends.append(topic, partition, records)

    def append_many(
        self, appends: Iterable[Append], *, together: bool = True
    ) -> list[AppendResult]:
        """See `Log.append_many`. A transaction only if there are several partitions."""
        listed = list(appends)
        if together and len({(append.topic, append.partition) for append in listed}) > 1:
            with self.transaction() as transaction:
                for append in listed:
                    transaction.append(*append)
            return transaction.appended
        return self._appends.append_each(listed)

    def transaction(self, lease: Lease | None = None) -> Transaction:
        """See `Log.transaction`."""
        self._connection.check_open()
        return KafkaTransaction(self._context, lease)

    def stage_records(
        self, records: RecordColumns | pa.RecordBatch | pa.Table
    ) -> list[StagedRecords]:
        """See `Log.stage_records`."""
        return self._appends.stage(records)

    def drop_staged(self, staged: Iterable[StagedRecords]) -> None:
        """See `Log.drop_staged`."""
        self._staging.drop(staged)

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

    def settled_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_s: float
    ) -> dict[TopicPartition, PartitionOffsets]:
        """See `Log.settled_offsets`."""
        return self._ranges.settled_offsets(partitions, timeout_s)

    def is_readable(self, ends: Mapping[TopicPartition, int]) -> bool:
        """See `Log.is_readable`."""
        return self._ranges.is_readable(ends)

    def offset_for_time(
        self, topic: str, partition: int, timestamp: int
    ) -> OffsetAndTimestamp | None:
        """See `Log.offset_for_time`."""
        return self._ranges.offset_for_time(topic, partition, timestamp)

    def prefetch(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], *, timeout_s: float = 0.05
    ) -> dict[TopicPartition, LogBatch]:
        """See `Log.prefetch`."""
        return self._ranges.prefetch(ranges, timeout_s)

    def wait_for_change(self, timeout: float) -> bool:
        """See `Log.wait_for_change`."""
        self._connection.check_open()
        return self._ranges.wait_for_change(timeout)

    def wake(self) -> None:
        """See `Log.wake`."""
        self._connection.changed.set()

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
        """See `Log.open_writer`."""
        self._connection.check_open()
        return KafkaWriter(self._context, grant, token, self._leases.records.is_fenced)

    def tail(self) -> TailReader:
        """See `Log.tail`."""
        self._connection.check_open()
        return KafkaTailReader(self._connection, self._clients, self._ranges)

    # Maintenance

    def clean(self, topics: Iterable[str] | None = None, *, force: bool = False) -> CleanReport:
        """See `Log.clean`. Brokers clean topics themselves; this deletes unused staged records."""
        for topic in topics or ():
            self.topic(topic)
        unused_ms = self._connection.settings.options.unused_blob_ms
        deleted, size = self._staging.delete_unused(unused_ms)
        return CleanReport(blobs_swept=deleted, bytes_freed=size)

    def close(self) -> None:
        """See `Log.close`."""
        self._connection.close()

    def __repr__(self) -> str:
        return f"KafkaLog('{self.address}')"


def open_kafka(address: str, options: Mapping[str, Any]) -> KafkaLog:
    """Connect to a cluster. `options` are those of `KafkaOptions` and librdkafka's settings."""
    return KafkaLog(address, KafkaOptions.of(options))
