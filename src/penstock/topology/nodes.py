"""The nodes of a topology: what will run. Frozen; put together and checked by `Topology`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.config import StreamsConfig
from penstock.processors.base import Operator
from penstock.record import RecordContext
from penstock.serdes.builtin import Serde
from penstock.stores.api.builder import StoreBuilder
from penstock.topology.default_serdes import Deferred

#: Chooses partitions: (topic, key, value, number of partitions) -> one, several, none at all
#: (the record is dropped), or None for the default by the key's bytes.
Partitioner = Callable[[str, Any, Any, int], "int | Iterable[int] | None"]
#: Chooses the topic a record is written to.
TopicNameExtractor = Callable[[Any, Any, RecordContext], str]


@dataclass(frozen=True, eq=False)
class SourceNode:
    """Reads topics. A serde of None is the configuration's default."""

    name: str
    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    key: Serde[Any] | Deferred | None = None
    value: Serde[Any] | Deferred | None = None
    timestamp: Callable[[Any, int], int] | None = None
    offset_reset: Any = None
    parents: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class ProcessorNode:
    """Runs an operator for every record of its parents."""

    name: str
    operator: Operator | Deferred
    parents: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class SinkNode:
    """Writes records to a topic, fixed or chosen for each record."""

    name: str
    topic: str | TopicNameExtractor
    parents: tuple[str, ...]
    key: Serde[Any] | Deferred | None = None
    value: Serde[Any] | Deferred | None = None
    partitioner: Partitioner | None = None


Node = SourceNode | ProcessorNode | SinkNode


class StoreSpec(Protocol):
    """A store of the topology before the configuration is known."""

    @property
    def name(self) -> str: ...

    @property
    def logging_enabled(self) -> bool: ...

    @property
    def log_config(self) -> Mapping[str, str]: ...

    @property
    def history_retention_ms(self) -> int | None:
        """How far back a versioned store answers; None if it is not versioned."""
        ...

    def without_logging(self) -> StoreSpec:
        """The same store without a changelog of its own."""
        ...

    def resolve(self, config: StreamsConfig) -> StoreBuilder:
        """The builder of the store under this configuration."""
        ...


@dataclass(frozen=True, eq=False)
class UserStoreSpec:
    """A store whose builder the user gave."""

    builder: StoreBuilder

    @property
    def name(self) -> str:
        return self.builder.name

    @property
    def logging_enabled(self) -> bool:
        return self.builder.logging_enabled

    @property
    def log_config(self) -> Mapping[str, str]:
        return self.builder.log_config

    @property
    def history_retention_ms(self) -> int | None:
        supplier = getattr(self.builder, "supplier", None)
        return getattr(supplier, "history_retention_ms", None)

    def without_logging(self) -> UserStoreSpec:
        return UserStoreSpec(self.builder.with_logging_disabled())

    def resolve(self, config: StreamsConfig) -> StoreBuilder:
        return self.builder


@dataclass(frozen=True)
class InternalTopic:
    """A topic the topology makes for itself; its name gets the application id in front."""

    name: str
    partitions: int | None = None


@dataclass(frozen=True, eq=False)
class GlobalStore:
    """A store that every task may read, fed from a topic by a processor of its own."""

    store: StoreSpec
    source: SourceNode
    processor: ProcessorNode
    topic: str = field(default="")
