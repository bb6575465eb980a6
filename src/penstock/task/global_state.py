"""Global tables and stores: updated from their topics, read by every task (J10)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.config import StreamsConfig
from penstock.errors import ProcessingFailedException, StreamsException
from penstock.handlers import ErrorHandlerContext, ProducedRecord, Response
from penstock.processors.base import Forward
from penstock.record import NO_HEADERS, PartitionColumns, TaskId, processing
from penstock.serdes.base import Serde
from penstock.serdes.headers import ReadOnlyHeaders
from penstock.stores.bytes.store import OpenBytesStore, open_in_memory
from penstock.stores.cache.record_cache import RecordCache
from penstock.task.assembly import assemble
from penstock.task.blueprint import Blueprint
from penstock.task.collector import Collector
from penstock.task.drops import DropLog
from penstock.task.error_handling import (
    PROCESSING_HANDLER,
    ExceptionHandlers,
    NodeFailed,
    end_sentence,
)
from penstock.task.queue import RawRecord
from penstock.task.result import TaskState
from penstock.task.runtime import Environment, Runtime
from penstock.timestamps import ConsumedRecord
from penstock.topology.topology import Topology

log = logging.getLogger(__name__)

#: The task id of global stores in contexts and metrics, as in Kafka Streams.
GLOBAL_TASK = TaskId(-1, -1)
GLOBAL_HANDLER_ENABLED = "processing.exception.handler.global.enabled"


class _GlobalSource(NamedTuple):
    """The source of one global store."""

    name: str
    store: str
    key: Serde[Any]
    value: Serde[Any]
    forward: Forward


class GlobalState:
    """The stores of all global tables of a topology, and their processors.

    The deserialization handler decides about records that cannot be deserialized, the processing
    handler about errors of a processor if `processing_exception_handler_global_enabled` is set.
    Otherwise these errors are raised. Timestamps are those of the records. Dead letters are not
    written.
    """

    def __init__(
        self, topology: Topology, config: StreamsConfig, cache: RecordCache | None = None,
        open_bytes: OpenBytesStore = open_in_memory, drop_log: DropLog | None = None,
    ) -> None:
        """`drop_log` logs dropped records, also after these stores are closed."""
        groups = [group.id for group in topology.groups() if group.is_global]
        blueprint = Blueprint.of(topology, config, groups)
        self.runtime = Runtime(
            config, GLOBAL_TASK, Environment(cache=cache), TaskState(),
            source_changelogs={
                name: store.topic for name, store in topology.global_stores.items()
            },
        )
        runtime = self.runtime
        for name, store in topology.global_stores.items():
            builder = store.store.resolve(config).with_logging_disabled()
            keeps_rows = getattr(builder, "keeps_rows", False)
            runtime.stores[name] = builder.build(open_bytes) if keeps_rows else builder.build()
            runtime.stores[name].init(runtime)
        self.stores = runtime.stores
        self._drop_log = drop_log or DropLog()
        collector = Collector(runtime.current, runtime.environment.partitions_of)
        self._handler_decides = config.processing_exception_handler_global_enabled
        self._handlers = ExceptionHandlers(
            config if self._handler_decides else config.with_(processing_exception_handler=_fail),
            runtime, self._skip_dead_letter,
        )
        forwards = assemble(blueprint, runtime, collector, self._handlers)
        for _, action in runtime.starts:
            action()
        runtime.starting = False
        record = ReadOnlyHeaders(runtime.current)
        #: Topic -> its source.
        self._sources: dict[str, _GlobalSource] = {}
        for name, store in topology.global_stores.items():
            key, value = blueprint.serdes(store.source)
            self._sources[store.topic] = _GlobalSource(
                store.source.name, name,
                key.for_topic(store.topic, True).with_headers_of(record),
                value.for_topic(store.topic, False).with_headers_of(record),
                forwards[store.source.name],
            )

    @property
    def topics(self) -> frozenset[str]:
        """The source topics of the global stores."""
        return frozenset(self._sources)

    @property
    def dropped(self) -> int:
        """The number of records that were dropped so far."""
        return self.runtime.dropped

    def update(self, record: RawRecord) -> None:
        """Process one record and commit it."""
        with processing(self.runtime.current):
            self._take(record)
        self.commit()

    def update_all(self, rows: PartitionColumns) -> None:
        """Process the records of one partition, without a commit."""
        topic, partition = rows.topic, rows.partition
        assert topic is not None
        headers = rows.headers or [NO_HEADERS] * len(rows)
        with processing(self.runtime.current):
            for offset, time, key, value, pairs in zip(
                rows.offsets, rows.timestamps, rows.keys, rows.values, headers, strict=True
            ):
                self._take(RawRecord(topic, partition, offset, time, key, value, pairs))

    def commit(self) -> None:
        """Commit the writes to the stores."""
        self._drop_log.add(GLOBAL_TASK, self.runtime.drop_notes.take())
        self._drop_log.log_counts()
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
        current = self.runtime.current
        current.rows, current.at, current.sent = record.columns(), 0, False
        current.timestamp, current.headers = record.timestamp, record.headers
        source = self._sources[record.topic]
        try:
            self._process(source, record)
        except NodeFailed as failure:
            raise self._failed(source, record, failure) from failure.cause

    def _process(self, source: _GlobalSource, record: RawRecord) -> None:
        part = "key"
        try:
            key = None if record.key is None else source.key.deserialize(record.key)
            part = "value"
            value = None if record.value is None else source.value.deserialize(record.value)
        except Exception as error:
            self._handlers.not_deserialized(source.name, ConsumedRecord(*record), part, error)
            return
        if record.timestamp < 0:
            raise StreamsException(
                f"A record of global topic {record.topic} has the invalid timestamp "
                f"{record.timestamp}. It is offset {record.offset} of partition {record.partition}."
            )
        source.forward(key, value, record.timestamp, record.headers)

    def _failed(
        self, source: _GlobalSource, record: RawRecord, failure: NodeFailed
    ) -> ProcessingFailedException:
        cause = end_sentence(f"{type(failure.cause).__name__}: {failure.cause}")
        setting = PROCESSING_HANDLER
        if not self._handler_decides:
            setting = f"{GLOBAL_HANDLER_ENABLED}=true and {setting}"
        return ProcessingFailedException(
            f"A record of global topic {record.topic}, partition {record.partition}, offset "
            f"{record.offset} cannot be processed: {cause} Store: {source.store}, processor: "
            f"{failure.node}, key: {failure.key!r}. To skip such records, set "
            f"{setting}=continue.",
            task_id=str(GLOBAL_TASK), processor=failure.node, topic=record.topic,
            partition=record.partition, offset=record.offset, key=failure.key,
            handler_setting=setting, store=source.store,
        )

    def _skip_dead_letter(self, record: ProducedRecord) -> tuple[Any, ...]:
        current = self.runtime.current
        log.warning(
            "A record is not written to the dead letter queue '%s', because it belongs to a global "
            "store: topic %s, partition %d, offset %d.",
            record.topic, current.topic, current.partition, current.offset,
        )
        return ()

    def close(self) -> None:
        """Close all processors, then all stores. Raises the first failure at the end."""
        self.runtime.close()


def _fail(context: ErrorHandlerContext, record: Any, exception: Exception) -> Response:
    """The handler of processors whose errors are not passed to the configured handler."""
    return Response.fail()
