"""The nodes and stores of a topology. Frozen; `Topology` connects and checks them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

from penstock.config import StreamsConfig
from penstock.errors import TopologyException
from penstock.processors.base import Operator
from penstock.record import RecordContext
from penstock.serdes.builtin import Serde
from penstock.stores.api.builder import StoreBuilder
from penstock.topology.default_serdes import Deferred, InferredSerde

#: A function of (topic, key, value, number of partitions). It returns a partition, several of
#: them, an empty iterable (the record is dropped), or None for the default: the hash of the key.
Partitioner = Callable[[str, Any, Any, int], "int | Iterable[int] | None"]
#: A function of (key, value, context) that returns the topic of a record.
TopicNameExtractor = Callable[[Any, Any, RecordContext], str]
#: The purpose of a store in its step: the rows of a table; the subscriptions of a foreign-key join;
#: the buffer of `suppress`, or of a stream-table join with grace; both sides and the unmatched
#: records of a stream-stream join; a store that the user adds for processors. Stored in the log.
StoreRole = Literal[
    "rows", "subscriptions", "suppress", "grace", "this", "other", "shared", "processor"
]


@dataclass(frozen=True, eq=False)
class SourceNode:
    """Reads topics. A serde of None is the default of the configuration."""

    name: str
    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    key: Serde[Any] | Deferred | InferredSerde | None = None
    value: Serde[Any] | Deferred | InferredSerde | None = None
    timestamp: Callable[[Any, int], int] | None = None
    offset_reset: Any = None
    parents: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class ProcessorNode:
    """Runs an operator for each record of its parents."""

    name: str
    operator: Operator | Deferred
    parents: tuple[str, ...]
    #: The kind of step, whatever its name and its functions. Part of the identity of stores.
    kind: str = "processor"


@dataclass(frozen=True, eq=False)
class SinkNode:
    """Writes records to a fixed topic, or to one chosen for each record."""

    name: str
    topic: str | TopicNameExtractor
    parents: tuple[str, ...]
    key: Serde[Any] | Deferred | InferredSerde | None = None
    value: Serde[Any] | Deferred | InferredSerde | None = None
    partitioner: Partitioner | None = None


Node = SourceNode | ProcessorNode | SinkNode


class StoreSpec(Protocol):
    """A store of a topology, before the configuration is known."""

    @property
    def name(self) -> str: ...

    @property
    def role(self) -> StoreRole:
        """The purpose of the store in its step."""
        ...

    @property
    def logging_enabled(self) -> bool: ...

    @property
    def log_config(self) -> Mapping[str, str]: ...

    @property
    def history_retention_ms(self) -> int | None:
        """The history retention of a versioned store; None if it is not versioned."""
        ...

    def without_logging(self) -> StoreSpec:
        """Return the same store without a changelog."""
        ...

    def resolve(self, config: StreamsConfig) -> StoreBuilder:
        """Return the builder of the store for this configuration."""
        ...


@dataclass(frozen=True, eq=False)
class UserStoreSpec:
    """A store given by the user as a `StoreBuilder`."""

    builder: StoreBuilder
    role: ClassVar[StoreRole] = "processor"

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
    """A repartition or foreign-key topic; the application id is prepended to its name."""

    name: str
    partitions: int | None = None


@dataclass(frozen=True)
class StoreFeed:
    """The names of the source and the processor that fill a read-only store."""

    source: str
    processor: str


def check_reprocessable(builder: StoreBuilder) -> None:
    """Raise unless a store of this kind has the same rows after a restore by its processor."""
    kind = None
    if not getattr(builder, "keeps_rows", False):
        kind = "a custom store"
    elif getattr(getattr(builder, "supplier", None), "max_entries", None) is not None:
        kind = "an LRU map"
    if kind is not None:
        raise TopologyException(
            f"Store {builder.name} cannot be read-only, because it is {kind}, which a restore from "
            "its topic does not reproduce. Use another key-value store, a window store or a "
            "session store, or connect it with add_state_store()."
        )


@dataclass(frozen=True, eq=False)
class GlobalStore:
    """A store that every task can read; a processor updates it from a topic."""

    store: StoreSpec
    source: SourceNode
    processor: ProcessorNode
    topic: str = field(default="")
