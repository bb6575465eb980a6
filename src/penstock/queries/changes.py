"""The committed changes of a store, read from its changelog.

The log holds the changes, so a reader needs no memory for those that it has not read. A reader that
falls behind reads later. Compaction may then have removed changes that a later one of the same key
has replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Any, NamedTuple

from penstock.config import StreamsConfig
from penstock.engine.layout.execution_graph import ExecutionGraph
from penstock.errors import StreamsException
from penstock.log.base import Log
from penstock.log.errors import OffsetOutOfRange
from penstock.log.types import TopicPartition
from penstock.serdes.base import Serde
from penstock.task.blueprint import Blueprint, StorePlan
from penstock.topology.default_serdes import DefaultSerdes
from penstock.topology.topology import Topology
from penstock.windows import Window

_WINDOW_TAIL = Struct(">qI")
_SESSION_TAIL = Struct(">qq")


class NoChangelog(StreamsException):
    """The changes of a store cannot be read, because no topic holds them."""


class StoreChange(NamedTuple):
    """One change. `value` is None for a deletion."""

    partition: int
    offset: int
    key: Any
    #: The window of a window or session store, otherwise None.
    window: Window | None
    value: Any
    timestamp: int


class ReadChanges(NamedTuple):
    """Changes of one partition, and the offset to continue at."""

    changes: list[StoreChange]
    next_offset: int


@dataclass(frozen=True)
class ChangelogSource:
    """Where the changes of a store are, and how to read them."""

    store: str
    #: Partition of the store -> partition of the topic.
    partitions: Mapping[int, TopicPartition]
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    #: Splits the key of a changelog record into the serialized key and the window.
    split: Callable[[bytes], tuple[bytes, Window | None]]
    #: The group whose committed offsets bound the changes; None if the whole topic is committed.
    group: str | None

    @classmethod
    def of(
        cls, store: str, topology: Topology, config: StreamsConfig, graph: ExecutionGraph
    ) -> ChangelogSource:
        """Find the source of a store. Raises `NoChangelog` if it has none."""
        if store in topology.global_stores:
            return _of_global_store(store, topology, config, graph)
        for each in graph.subtopologies.values():
            plans = {plan.name: plan for plan in Blueprint.of(topology, config, [each.id]).stores}
            if store in plans:
                return _of_plan(plans[store], config, each.restore_topics.get(store), each.tasks)
        raise NoChangelog(f"Store '{store}' has no changes: it belongs to no task.")


def _of_plan(
    plan: StorePlan, config: StreamsConfig, topic: str | None, tasks: int
) -> ChangelogSource:
    if topic is None:
        raise NoChangelog(
            f"Store '{plan.name}' has no changelog, so its changes cannot be followed."
        )
    if plan.feed is not None:
        raise NoChangelog(
            f"Store '{plan.name}' has no changelog: a processor fills it from topic '{topic}'. "
            "Read the topic."
        )
    return _source(
        plan.name, plan.spec.resolve(config), config, topic,
        {number: TopicPartition(topic, number) for number in range(tasks)},
        None if plan.changelog is not None else config.application_id,
    )


def _of_global_store(
    store: str, topology: Topology, config: StreamsConfig, graph: ExecutionGraph
) -> ChangelogSource:
    found = topology.global_stores[store]
    return _source(
        store, found.store.resolve(config), config, found.topic,
        {
            number: TopicPartition(found.topic, number)
            for number in range(graph.partitions[found.topic])
        },
        None,
    )


def _source(
    store: str, builder: Any, config: StreamsConfig, topic: str,
    partitions: dict[int, TopicPartition], group: str | None,
) -> ChangelogSource:
    if getattr(builder, "supplier", None) is None:
        raise NoChangelog(f"Store '{store}' has a format of its own.")
    defaults = DefaultSerdes(config)
    kind: str = builder.kind
    split = _split_session if "session" in kind else _no_window
    if "window" in kind:
        size_ms = builder.supplier.window_size_ms

        def split(key: bytes) -> tuple[bytes, Window | None]:
            start: int = _WINDOW_TAIL.unpack_from(key, len(key) - _WINDOW_TAIL.size)[0]
            return key[: -_WINDOW_TAIL.size], Window(start, start + size_ms)

    return ChangelogSource(
        store, partitions, defaults.key(builder.key_serde).for_store(topic, True),
        defaults.value(builder.value_serde).for_store(topic, False), split, group,
    )


def _no_window(key: bytes) -> tuple[bytes, Window | None]:
    return key, None


def _split_session(key: bytes) -> tuple[bytes, Window | None]:
    end, start = _SESSION_TAIL.unpack_from(key, len(key) - _SESSION_TAIL.size)
    return key[: -_SESSION_TAIL.size], Window(start, end)


class StoreChanges:
    """Reads the changes of one store. Several threads may share it."""

    def __init__(self, log: Log, source: ChangelogSource) -> None:
        self._log = log
        self.source = source

    def ends(self) -> dict[int, int]:
        """Return the offset up to which each partition is committed."""
        partitions = self.source.partitions
        if self.source.group is None:
            bounds = self._log.offsets(partitions.values())
            return {number: bounds[at].end for number, at in partitions.items()}
        committed = self._log.committed(self.source.group, partitions.values())
        return {
            number: committed[at].offset if at in committed else 0
            for number, at in partitions.items()
        }

    def read(self, partition: int, start: int, end: int, max_records: int) -> ReadChanges:
        """Return the changes from `start` up to, but not including, `end`.

        If the log has removed records, reading continues with the oldest one that remains.
        """
        topic, number = self.source.partitions[partition]
        try:
            return self._read(partition, start, end, max_records)
        except OffsetOutOfRange:
            at = TopicPartition(topic, number)
            first = self._log.offsets([at])[at].start
            if first <= start:
                raise
            return self._read(partition, min(first, end), end, max_records)

    def _read(self, partition: int, start: int, end: int, max_records: int) -> ReadChanges:
        topic, number = self.source.partitions[partition]
        changes: list[StoreChange] = []
        if start >= end:
            return ReadChanges(changes, end)
        reader = self._log.read(topic, number, start, end, max_records=max_records)
        for batch in reader:
            columns = batch.columns()
            for key, value, offset, timestamp in zip(
                columns.keys, columns.values, columns.offsets, columns.timestamps, strict=True
            ):
                if key is not None:
                    changes.append(self._change(partition, offset, key, value, timestamp))
        return ReadChanges(changes, reader.position)

    def _change(
        self, partition: int, offset: int, key: bytes, value: bytes | None, timestamp: int
    ) -> StoreChange:
        source = self.source
        plain_key, window = source.split(key)
        return StoreChange(
            partition, offset, source.key_serde.deserialize(plain_key), window,
            None if value is None else source.value_serde.deserialize(value), timestamp,
        )
