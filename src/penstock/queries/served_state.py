"""`ServedState`: the stores of an application as a server shows them, read from replicas."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from penstock.config import StreamsConfig
from penstock.errors import StreamsRebalancingException
from penstock.queries.changes import ChangelogSource, StoreChanges
from penstock.queries.metadata import HostInfo, StreamsMetadata
from penstock.queries.metadata_service import InstanceMetadata
from penstock.queries.replicas import ReplicaSource
from penstock.queries.service import StoreQueries
from penstock.queries.source import StoreInfo
from penstock.queries.state_reader import (
    Host,
    InstanceInfo,
    KeyLocation,
    PartitionLag,
    ServedStore,
    kind_for_clients,
)
from penstock.queries.store_types import detailed_type
from penstock.topology.default_serdes import DefaultSerdes
from penstock.topology.topology import Topology


class ServedState(ABC):
    """The part of `StateReader` that instances and query nodes share. Any thread may call it.

    Views of stores are created once. They stay valid, because their readers notice new commits.
    """

    def __init__(self, topology: Topology, config: StreamsConfig) -> None:
        self.topology = topology
        self.config = config
        self._views: dict[tuple[str, int | None], Any] = {}
        #: The stores, and the description of the source that they were made from.
        self._served: tuple[Mapping[str, StoreInfo] | None, dict[str, ServedStore]] = (None, {})

    @property
    @abstractmethod
    def _source(self) -> ReplicaSource: ...

    @property
    @abstractmethod
    def is_known_ready(self) -> bool:
        """Whether `not_ready_reason` returns None at once, without access to the log."""

    @abstractmethod
    def not_ready_reason(self) -> str | None:
        """Return why the stores cannot be queried yet, or None if they can."""

    @property
    def _metadata(self) -> InstanceMetadata:
        return InstanceMetadata(self._source, self.config.application_id)

    def stores(self) -> Mapping[str, ServedStore]:
        """Return the stores that can be queried, by name."""
        source = self._source
        infos, served = self._served
        if source.stores is not infos:
            source.check_running(stopped=False)
            infos = source.stores
            found = {name: self._describe(info) for name, info in infos.items()}
            served = {name: each for name, each in found.items() if each is not None}
            self._served = (infos, served)
        return served

    def store(self, name: str, partition: int | None = None) -> Any:
        """Return a read-only store whose values have their timestamps and headers."""
        reason = self.not_ready_reason()
        if reason is not None:
            raise StreamsRebalancingException(f"Store '{name}' cannot be queried now. {reason}")
        view = self._views.get((name, partition))
        if view is None:
            source = self._source
            kind = source.stores[name].kind
            view = StoreQueries(source).store(name, detailed_type(kind), partition, stale=True)
            self._views[name, partition] = view
        return view

    def lags(self) -> Mapping[str, Mapping[int, PartitionLag]]:
        """Return store -> partition -> the position of its replica and the committed end.

        A global store has the partitions of its topic.
        """
        found = {
            store: {
                number: PartitionLag(lag.current_offset_position, lag.end_offset_position)
                for number, lag in partitions.items()
            }
            for store, partitions in self._metadata.lags().items()
        }
        for store, number, position, end in self._source.global_progress():
            found.setdefault(store, {})[number] = PartitionLag(position, end)
        return found

    def missing_changes(self) -> int:
        """Return the number of changes that the replicas of this host do not have."""
        return sum(
            lag.offset_lag for partitions in self._metadata.lags().values()
            for lag in partitions.values()
        )

    def instances(self) -> list[InstanceInfo]:
        """Return the instances that are alive, the active one first."""
        return [_instance_info(each) for each in self._metadata.instances()]

    def locate(self, store: str, key: Any) -> KeyLocation:
        """Return the partition of a key, and the instances with an address that serve it."""
        found = self._metadata.of_key(store, key, None, None)
        unavailable = HostInfo.unavailable()
        return KeyLocation(
            found.partition,
            None if found.active_host == unavailable else _host(found.active_host),
            tuple(_host(each) for each in sorted(found.standby_hosts)),
        )

    def changes(self, store: str) -> StoreChanges:
        """Return the reader of the committed changes of a store. Raises `NoChangelog`."""
        return self._source.with_log(lambda log, graph: StoreChanges(
            log, ChangelogSource.of(store, self.topology, self.config, graph)
        ))

    def _describe(self, info: StoreInfo) -> ServedStore | None:
        name, config = info.name, self.config
        kind = kind_for_clients(info.kind)
        spec = (
            self.topology.global_stores[name].store if info.is_global
            else self.topology.stores[name]
        )
        builder: Any = spec.resolve(config)
        if kind is None or getattr(builder, "supplier", None) is None:
            return None
        topic = self.topology.source_changelogs.get(
            name, f"{config.application_id}-{name}-changelog"
        )
        defaults = DefaultSerdes(config)
        return ServedStore(
            name, kind, tuple(range(info.partitions)), info.is_global,
            defaults.key(builder.key_serde).for_store(topic, True),
            defaults.value(builder.value_serde).for_store(topic, False),
            getattr(builder.supplier, "window_size_ms", 0),
        )


def _host(info: HostInfo) -> Host:
    return Host(info.host, info.port)


def _instance_info(found: StreamsMetadata) -> InstanceInfo:
    def names(partitions: Any) -> tuple[str, ...]:
        return tuple(f"{topic}-{number}" for topic, number in sorted(partitions))

    return InstanceInfo(
        _host(found.host_info), tuple(sorted(found.state_store_names)),
        names(found.topic_partitions), tuple(sorted(found.standby_state_store_names)),
        names(found.standby_topic_partitions), found.name, found.is_active,
    )
