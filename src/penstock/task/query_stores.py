"""Opens the stores of a task for queries: typed stores over committed rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.config import StreamsConfig
from penstock.record import TaskId
from penstock.stores.api.suppliers import KeyValueSupplier
from penstock.stores.bytes.store import OpenBytesStore
from penstock.stores.cache.record_cache import RecordCache
from penstock.task.result import TaskState
from penstock.task.runtime import Environment, Runtime
from penstock.topology.nodes import StoreSpec


def open_query_store(
    config: StreamsConfig, spec: StoreSpec, task_id: TaskId, open_bytes: OpenBytesStore,
    source_topic: str | None = None,
) -> Any:
    """Open a typed store over committed rows, without cache and changelog.

    `source_topic`: the topic that serves as the changelog; the serdes belong to it.
    """
    builder: Any = spec.resolve(config)
    supplier = getattr(builder, "supplier", None)
    if isinstance(supplier, KeyValueSupplier) and supplier.max_entries is not None:
        # A query must not change the order of use.
        builder = replace(builder, supplier=replace(supplier, max_entries=None))
    runtime = Runtime(
        config, task_id, Environment(cache=RecordCache(0)), TaskState(),
        source_changelogs={} if source_topic is None else {spec.name: source_topic},
    )
    store = builder.build(open_bytes) if getattr(builder, "keeps_rows", False) else builder.build()
    store.init(runtime)
    return store


def query_kind(config: StreamsConfig, spec: StoreSpec) -> str:
    """Return the kind of a store: that of its `StoreBuilder`, or "buffer" for internal buffers."""
    return getattr(spec.resolve(config), "kind", "buffer")
