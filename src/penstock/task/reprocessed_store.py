"""A read-only store, restored from its topic by its processor (P5).

Kafka Streams copies the records of the topic into the store instead, so that the rows differ after
a restart if the processor changes them (KAFKA-18972).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.processors.base import Forward, NodeContext
from penstock.record import PartitionColumns, Record, RecordMetadata, TaskId
from penstock.stores.bytes.store import OpenBytesStore
from penstock.stores.cache.record_cache import RecordCache
from penstock.task.assembly import assemble
from penstock.task.blueprint import Blueprint, StorePlan
from penstock.task.collector import Collector
from penstock.task.error_handling import ExceptionHandlers
from penstock.task.node import no_children
from penstock.task.punctuation import Schedule
from penstock.task.queue import QueueSource, RecordQueue
from penstock.task.result import TaskState
from penstock.task.runtime import Environment, Runtime
from penstock.timestamps import ConsumedRecord
from penstock.topology.nodes import ProcessorNode, SourceNode

_PARTITION_TIME = "partition_time"


class ReprocessedStore:
    """Restores one store by processing the records of its topic again.

    It has the methods of a store that a replica calls. The records were processed before: the
    handlers are not called again, forwarded records are discarded, and punctuators do not run.
    """

    def __init__(
        self, blueprint: Blueprint, task_id: TaskId, plan: StorePlan, open_bytes: OpenBytesStore
    ) -> None:
        self._blueprint = blueprint
        self._plan = plan
        environment = Environment(cache=RecordCache(0))
        self._runtime = Runtime(
            blueprint.config, task_id, environment, TaskState(),
            source_changelogs=blueprint.source_changelogs(),
        )
        self._runtime.punctuate = _ignore_punctuation
        builder: Any = plan.spec.resolve(blueprint.config)
        self._store = builder.build(open_bytes)
        self._store.init(self._runtime)
        self._runtime.stores[plan.name] = self._store
        self._queue: RecordQueue | None = None

    def resume_restore(
        self, restored: Mapping[str, int], committed: Mapping[str, int] | None
    ) -> None:
        """Continue a restore. `restored` is the result of `restored_clocks`."""
        clocks = dict(restored)
        partition_time = clocks.pop(_PARTITION_TIME, -1)
        self._store.set_clocks(clocks)
        self._queue = self._start()
        self._queue.partition_time = partition_time

    def restore_all(self, records: PartitionColumns) -> None:
        """Process records of the topic."""
        assert self._queue is not None
        self._queue.add(records)
        while self._queue.process_chunk():
            pass

    def advance(self) -> None:
        """Write the changes to the rows."""
        self._store.commit()
        self._store.advance()

    def restored_clocks(self) -> dict[str, int]:
        """State of the restore that the rows do not hold."""
        assert self._queue is not None
        return {**self._store.clocks(), _PARTITION_TIME: self._queue.partition_time}

    def close(self) -> None:
        """Close the processor and the store."""
        self._runtime.close()

    def _start(self) -> RecordQueue:
        """Attach the processor and return the queue of its records."""
        plan, runtime = self._plan, self._runtime
        assert plan.feed is not None
        assert plan.restored_from is not None
        blueprint = self._feeding_part(plan.feed.source, plan.feed.processor)
        collector = Collector(runtime.current, runtime.environment.partitions_of)
        handlers = _SilentHandlers(blueprint.config, runtime, collector.send_raw)
        forwards = assemble(blueprint, runtime, collector, handlers)
        for _, action in runtime.starts:
            action()
        runtime.starting = False
        (source,) = blueprint.sources
        topic = blueprint.topic(plan.restored_from)
        key, value = blueprint.serdes(source)
        return RecordQueue(
            topic, runtime.task_id.partition,
            QueueSource(
                source.name, (key.for_topic(topic, True), value.for_topic(topic, False)),
                source.timestamp or blueprint.config.timestamp_extractor(),
                forwards[source.name], handlers,
            ),
            runtime,
        )

    def _feeding_part(self, source: str, processor: str) -> Blueprint:
        """The source and the processor of the store, with children that discard all records."""
        nodes = {node.name: node for node in self._blueprint.nodes}
        source_node, processor_node = nodes[source], nodes[processor]
        assert isinstance(source_node, SourceNode)
        assert isinstance(processor_node, ProcessorNode)
        below = self._blueprint.children[processor]
        return replace(
            self._blueprint,
            nodes=(
                source_node, processor_node,
                *(ProcessorNode(name, _Discard(), (processor,)) for name in below),
            ),
            children={source: (processor,), processor: below, **dict.fromkeys(below, ())},
            stores=(self._plan,),
            connected={processor: (self._plan.name,), **dict.fromkeys(below, ())},
        )


class _SilentHandlers(ExceptionHandlers):
    """Skips the records that the handlers have skipped when the task processed them."""

    def not_deserialized(
        self, node: str, raw: ConsumedRecord, part: str, error: Exception,
        origin: RecordMetadata | None = None,
    ) -> None:
        """Skip the record."""

    def not_processed(
        self, node: str, error: Exception, record: Record[Any, Any] | None
    ) -> None:
        """Skip the record."""


@dataclass(frozen=True)
class _Discard:
    """Discards all records."""

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        return no_children


def _ignore_punctuation(schedule: Schedule, now: int) -> None:
    """Do not call the punctuator. It was called when the records were processed first."""
