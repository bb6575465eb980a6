"""The instances of an application and the stores that they hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from penstock.log.types import TopicPartition

#: Returns the partition of a key: (topic, key, value, number of partitions).
StreamPartitioner = Callable[[str, Any, Any, int], int]


@dataclass(frozen=True, slots=True, order=True)
class HostInfo:
    """The address of an instance: its `application.server`.

    Example:
        >>> HostInfo.build_from_endpoint("10.0.0.7:8080")
        HostInfo(host='10.0.0.7', port=8080)

    Kafka: HostInfo
    """

    host: str
    port: int

    @staticmethod
    def build_from_endpoint(endpoint: str) -> HostInfo:
        """Return the address in a text `host:port`.

        Args:
            endpoint: The text.

        Kafka: HostInfo#buildFromEndpoint
        """
        host, _, port = endpoint.rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(f"An endpoint must be host:port, not {endpoint!r}.")
        return HostInfo(host.removeprefix("[").removesuffix("]"), int(port))

    @staticmethod
    def unavailable() -> HostInfo:
        """Return the address of an instance that is not known.

        Kafka: HostInfo#unavailable
        """
        return HostInfo("unavailable", -1)


@dataclass(frozen=True, slots=True)
class StreamsMetadata:
    """An instance, and the stores and partitions that it serves.

    The active instance serves everything. All others are standbys for everything.

    Kafka: StreamsMetadata
    """

    host_info: HostInfo
    state_store_names: frozenset[str] = frozenset()
    topic_partitions: frozenset[TopicPartition] = frozenset()
    standby_state_store_names: frozenset[str] = frozenset()
    standby_topic_partitions: frozenset[TopicPartition] = frozenset()
    #: The process of the instance, for messages.
    name: str = field(default="", compare=False)
    #: Whether the instance runs the tasks. The others are standbys.
    is_active: bool = field(default=False, compare=False)

    @property
    def host(self) -> str:
        """The host of the instance."""
        return self.host_info.host

    @property
    def port(self) -> int:
        """The port of the instance."""
        return self.host_info.port


@dataclass(frozen=True, slots=True)
class KeyQueryMetadata:
    """The instances that serve a key.

    Kafka: KeyQueryMetadata
    """

    #: The instance that runs the task of the key; `HostInfo.unavailable()` if none does.
    active_host: HostInfo
    standby_hosts: frozenset[HostInfo]
    partition: int
    #: The result while no instance is known.
    NOT_AVAILABLE: ClassVar[KeyQueryMetadata]


KeyQueryMetadata.NOT_AVAILABLE = KeyQueryMetadata(HostInfo.unavailable(), frozenset(), -1)


@dataclass(frozen=True, slots=True)
class LagInfo:
    """How far a store of this host is behind its changelog.

    Kafka: LagInfo
    """

    current_offset_position: int
    end_offset_position: int

    @property
    def offset_lag(self) -> int:
        """The number of offsets that the store has not applied yet."""
        return max(0, self.end_offset_position - self.current_offset_position)
