"""Global tables and stores: updated from their topics, read by every task (J10)."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from penstock.config import StreamsConfig
from penstock.errors import StreamsException
from penstock.record import NO_HEADERS, PartitionColumns, TaskId
from penstock.stores.bytes.store import OpenBytesStore, open_in_memory
from penstock.stores.cache.record_cache import RecordCache
from penstock.task.assembly import assemble
from penstock.task.blueprint import Blueprint
from penstock.task.collector import Collector
from penstock.task.error_handling import ExceptionHandlers, NodeFailed
from penstock.task.queue import RawRecord
from penstock.task.result import TaskState
from penstock.task.runtime import Environment, Runtime
from penstock.topology.topology import Topology

log = logging.getLogger(__name__)

GLOBAL_TASK = TaskId(-1, -1)


class GlobalState:
    """The stores of all global tables of a topology, and their processors.

    A record that cannot be deserialized is skipped. Timestamps are those of the records. Errors of
    a processor are raised without calling a handler.
    """

    def __init__(
        self, topology: Topology, config: StreamsConfig, cache: RecordCache | None = None,
        open_bytes: OpenBytesStore = open_in_memory,
    ) -> None:
        groups = [group.id for group in topology.groups() if group.is_global]
        blueprint = Blueprint.of(topology, config, groups)
        self.runtime = Runtime(config, GLOBAL_TASK, Environment(cache=cache), TaskState(), {})
        runtime = self.runtime
        for name, store in topology.global_stores.items():
            builder = store.store.resolve(config).with_logging_disabled()
            keeps_rows = getattr(builder, "keeps_rows", False)
            runtime.stores[name] = builder.build(open_bytes) if keeps_rows else builder.build()
            runtime.stores[name].init(runtime)
        self.stores = runtime.stores
        collector = Collector(runtime.current, runtime.environment.partitions_of)
        failing = config.with_(processing_exception_handler="fail")
        handlers = ExceptionHandlers(
            failing, GLOBAL_TASK, runtime.current, collector.send_raw, runtime.drop
        )
        sources = assemble(blueprint, runtime, collector, handlers)
        for _, action in runtime.starts:
            action()
        runtime.starting = False
        self._sources = {
            source.topics[0]: (source.name, sources[source.name], blueprint.serdes(source))
            for source in blueprint.sources
        }

    @property
    def topics(self) -> frozenset[str]:
        """The source topics of the global stores."""
        return frozenset(self._sources)

    def update(self, record: RawRecord) -> None:
        """Process one record and commit it."""
        self._take(record)
        self.commit()

    def update_all(self, rows: PartitionColumns) -> None:
        """Process the records of one partition, without a commit."""
        topic, partition = rows.topic, rows.partition
        assert topic is not None
        headers = rows.headers or [NO_HEADERS] * len(rows)
        for offset, time, key, value, pairs in zip(
            rows.offsets, rows.timestamps, rows.keys, rows.values, headers, strict=True
        ):
            self._take(RawRecord(topic, partition, offset, time, key, value, pairs))

    def commit(self) -> None:
        """Commit the writes to the stores."""
        for store in self.stores.values():
            store.commit()
            store.advance()

    def clocks(self) -> dict[str, dict[str, int]]:
        """Store -> the times that it has observed."""
        return {
            name: dict(store.clocks()) for name, store in self.stores.items()
            if hasattr(store, "clocks")
        }

    def set_clocks(self, clocks: Mapping[str, Mapping[str, int]]) -> None:
        """Restore the times that `clocks` returned."""
        for name, known in clocks.items():
            if name in self.stores:
                self.stores[name].set_clocks(known)

    def _take(self, record: RawRecord) -> None:
        _, forward, (key_serde, value_serde) = self._sources[record.topic]
        try:
            key = None if record.key is None else key_serde.deserialize(record.key)
            value = None if record.value is None else value_serde.deserialize(record.value)
        except Exception as error:
            log.warning(
                "Skipping a record of global topic %s that cannot be deserialized: partition %d, "
                "offset %d: %s", record.topic, record.partition, record.offset, error,
            )
            self.runtime.drop("deserialization error")
            return
        if record.timestamp < 0:
            raise StreamsException(
                f"A record of global topic {record.topic} has the invalid timestamp "
                f"{record.timestamp}. It is offset {record.offset} of partition {record.partition}."
            )
        current = self.runtime.current
        current.rows, current.at, current.sent = record.columns(), 0, False
        current.timestamp, current.headers = record.timestamp, record.headers
        try:
            forward(key, value, record.timestamp, record.headers)
        except NodeFailed as failure:
            raise failure.cause from None

    def close(self) -> None:
        """Close processors and stores."""
        for action in self.runtime.closings:
            action()
        for store in self.stores.values():
            store.close()
