"""The stores of a task in the form that a replica needs."""

from __future__ import annotations

from functools import partial
from typing import Any

from penstock.record import TaskId
from penstock.stores.bytes.store import OpenBytesStore
from penstock.stores.cache.record_cache import RecordCache
from penstock.stores.replica.layouts import layout_of
from penstock.stores.replica.protocol import ReplicaStore
from penstock.task.blueprint import Blueprint, StorePlan
from penstock.task.reprocessed_store import ReprocessedStore
from penstock.task.result import TaskState
from penstock.task.runtime import Environment, Runtime


def replica_stores(blueprint: Blueprint, task_id: TaskId) -> tuple[ReplicaStore, ...]:
    """All stores of a task, in the order of the blueprint."""
    return tuple(_replica_store(blueprint, task_id, plan) for plan in blueprint.stores)


def _replica_store(blueprint: Blueprint, task_id: TaskId, plan: StorePlan) -> ReplicaStore:
    builder: Any = plan.spec.resolve(blueprint.config)
    keeps_rows = getattr(builder, "keeps_rows", False)
    is_lru = getattr(getattr(builder, "supplier", None), "max_entries", None) is not None
    return ReplicaStore(
        plan.name, plan.restored_from is not None,
        partial(_build, blueprint, task_id, plan) if keeps_rows else None,
        restores_from_changelog=not is_lru,
        layout=layout_of(builder, _serde_names(builder, blueprint)) if keeps_rows else None,
    )


def _serde_names(builder: Any, blueprint: Blueprint) -> tuple[str, str]:
    config = blueprint.config
    key = builder.key_serde or config.default_key_serde
    value = builder.value_serde or config.default_value_serde
    return getattr(key, "name", ""), getattr(value, "name", "")


def _build(
    blueprint: Blueprint, task_id: TaskId, plan: StorePlan, open_bytes: OpenBytesStore
) -> Any:
    """Open the store over the given rows, in a task without changelogs."""
    if plan.feed is not None:
        return ReprocessedStore(blueprint, task_id, plan, open_bytes)
    environment = Environment(cache=RecordCache(0))
    runtime = Runtime(blueprint.config, task_id, environment, TaskState())
    builder: Any = plan.spec.resolve(blueprint.config)
    store = builder.build(open_bytes)
    store.init(runtime)
    return store
