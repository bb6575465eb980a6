"""`InstanceMetadata`: which instance serves which store and key, and how far the local ones are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from penstock.engine.instances import InstanceRecord, read_instances
from penstock.engine.layout.execution_graph import ExecutionGraph
from penstock.log.types import TopicPartition
from penstock.partitioning import partition_of
from penstock.queries.catalog import unknown_store
from penstock.queries.metadata import (
    HostInfo,
    KeyQueryMetadata,
    LagInfo,
    StreamPartitioner,
    StreamsMetadata,
)
from penstock.queries.replicas import ReplicaSource
from penstock.serdes.arguments import given_serde, is_type
from penstock.serdes.base import Serde, SerdeOrType


class InstanceMetadata:
    """Reads the instances of an application from the log. Any thread may call it."""

    def __init__(self, source: ReplicaSource, application_id: str) -> None:
        self._source = source
        self._application_id = application_id

    def instances(self) -> list[StreamsMetadata]:
        """Return all instances that are alive, the active one first."""
        self._source.check_running(stopped=False)

        def read(log: Any, graph: ExecutionGraph) -> list[StreamsMetadata]:
            stores = frozenset(self._source.stores)
            shared = frozenset(
                name for name, info in self._source.stores.items() if info.is_global
            )
            partitions = frozenset(_source_partitions(graph))
            return [
                _describe(record, stores, shared, partitions)
                for record in read_instances(log, self._application_id)
            ]

        return self._source.with_log(read)

    def instances_with(self, store: str) -> list[StreamsMetadata]:
        """Return the instances that serve a store, the active one first."""
        self._check_store(store)
        return [
            each for each in self.instances()
            if store in each.state_store_names | each.standby_state_store_names
        ]

    def of_key(
        self, store: str, key: Any, serializer: SerdeOrType[Any] | Callable[[Any], bytes] | None,
        partitioner: StreamPartitioner | None,
    ) -> KeyQueryMetadata:
        """Return the instances that serve a key."""
        self._check_store(store)
        instances = self.instances()
        info = self._source.stores[store]
        if info.is_global:
            hosts = [each.host_info for each in instances]
            if not hosts:
                return KeyQueryMetadata.NOT_AVAILABLE
            return KeyQueryMetadata(hosts[0], frozenset(hosts[1:]), -1)
        if partitioner is not None:
            partition = self._chosen(partitioner, store, key, info.partitions)
        else:
            partition = partition_of(self._serialize(store, key, serializer), info.partitions)
        active = [each.host_info for each in instances if store in each.state_store_names]
        standby = {each.host_info for each in instances} - set(active)
        return KeyQueryMetadata(
            active[0] if active else HostInfo.unavailable(), frozenset(standby), partition
        )

    def lags(self) -> dict[str, dict[int, LagInfo]]:
        """Return store -> partition -> how far the replica of this host is behind."""
        self._source.check_running(stopped=False)
        found: dict[str, dict[int, LagInfo]] = {}
        for store, partition, current, end in self._source.progress():
            found.setdefault(store, {})[partition] = LagInfo(current, end)
        return found

    def _chosen(
        self, partitioner: StreamPartitioner, store: str, key: Any, partitions: int
    ) -> int:
        """The partition that a partitioner chooses in the topic that the store is fed from."""
        task_id = self._source.task_of(store, 0)

        def largest_source(log: Any, graph: ExecutionGraph) -> str:
            topics = [topic for _, topic in graph.queues(task_id)]
            return max(topics, key=lambda topic: graph.partitions[topic])

        topic = self._source.with_log(largest_source)
        chosen: object = partitioner(topic, key, None, partitions)
        if not isinstance(chosen, int) or not 0 <= chosen < partitions:
            raise ValueError(
                f"The partitioner must return one of the {partitions} partitions of topic "
                f"'{topic}', a number from 0 to {partitions - 1}, not {chosen!r}."
            )
        return chosen

    def _serialize(
        self, store: str, key: Any, serializer: SerdeOrType[Any] | Callable[[Any], bytes] | None
    ) -> bytes:
        if serializer is None:
            return self._source.key_serializer(store)(key)
        if isinstance(serializer, Serde) or is_type(serializer):
            serde = given_serde(serializer, "serializer", where="query_metadata_for_key()")
            assert serde is not None
            return serde.serialize(key)
        serialized: bytes = serializer(key)
        return serialized

    def _check_store(self, store: str) -> None:
        if store not in self._source.stores:
            raise unknown_store(store, self._source.stores)


def _describe(
    record: InstanceRecord, stores: frozenset[str], shared: frozenset[str],
    partitions: frozenset[TopicPartition],
) -> StreamsMetadata:
    host = HostInfo(record.host, record.port)
    if record.is_active:
        return StreamsMetadata(host, stores, partitions, name=record.name, is_active=True)
    return StreamsMetadata(
        host, shared, frozenset(), stores - shared, partitions, name=record.name
    )


def _source_partitions(graph: ExecutionGraph) -> Iterable[TopicPartition]:
    for task_id in graph.tasks:
        for topic in graph.log_topics(task_id):
            yield TopicPartition(topic, task_id.partition)
