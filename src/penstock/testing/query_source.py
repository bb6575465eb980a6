"""The stores of a test driver as a `StoreSource`: queries see what is committed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from penstock.config import StreamsConfig
from penstock.queries.catalog import describe_stores
from penstock.queries.position import Position
from penstock.queries.source import StoreInfo, UnfollowedReader, look_up
from penstock.record import TaskId
from penstock.task.query_stores import open_query_store
from penstock.testing.task_runner import TaskRunner
from penstock.topology.topology import Topology


class _CommittedStore:
    """A session of the driver: a store over its committed rows."""

    def __init__(self, store: Any, position: Position) -> None:
        self.store = store
        self.position = position
        self.changelog_offset: int | None = None


class _DriverReader(UnfollowedReader):
    """One partition of a store of the driver."""

    def __init__(self, source: DriverSource, store: str, task_id: TaskId | None) -> None:
        self._source = source
        self._store = store
        self._task_id = task_id
        self.partition = -1 if task_id is None else task_id.partition

    is_current = True
    lookup = look_up

    def key_serializer(self) -> Callable[[Any], bytes]:
        """Return the function that serializes the keys of the store."""
        serialize: Callable[[Any], bytes] = self.acquire().store.serialize_key
        return serialize

    def position(self, session: _CommittedStore) -> Position:
        """Return the committed input of the task."""
        return session.position

    def acquire(self) -> _CommittedStore:
        """Open the store over the rows of the last commit."""
        if self._task_id is None:
            return _CommittedStore(self._source.global_store(self._store), Position())
        return self._source.open(self._store, self._task_id)

    def release(self, session: _CommittedStore) -> None:
        """Nothing to release."""


class DriverSource:
    """The stores of the driver's tasks. A driver is always active."""

    is_active = True
    thread_state = "RUNNING"

    def __init__(self, topology: Topology, config: StreamsConfig, runner: TaskRunner) -> None:
        self._topology = topology
        self._config = config
        self._runner = runner
        groups = Counter(spec.task_id.subtopology for spec in runner.layout.tasks)
        # Kafka's driver has one task for all sub-topologies.
        is_single = len(runner.layout.tasks) == 1
        tasks = {group.id: 1 if is_single else groups[group.id] for group in topology.groups()}
        self.stores: dict[str, StoreInfo] = describe_stores(topology, config, tasks)

    def check_running(self, *, stopped: bool) -> None:
        """Nothing to check: a driver runs as long as it exists."""

    def reader(self, store: str, partition: int, *, stale: bool) -> _DriverReader:
        """Return the reader of a partition."""
        if self.stores[store].is_global:
            return _DriverReader(self, store, None)
        task_id = next(
            spec.task_id for spec in self._runner.layout.tasks
            if spec.task_id.partition == partition
            and any(plan.name == store for plan in spec.blueprint.stores)
        )
        return _DriverReader(self, store, task_id)

    def global_store(self, name: str) -> Any:
        """Return a global store."""
        assert self._runner.global_state is not None
        return self._runner.global_state.stores[name]

    def open(self, name: str, task_id: TaskId) -> _CommittedStore:
        """Open a store over its committed rows; a custom store as it is."""
        runner = self._runner
        spec = self._topology.stores[name]
        position = Position()
        for (topic, partition), offset in runner.committed_offsets(task_id).items():
            if offset > 0:
                position.with_component(topic, partition, offset - 1)
        if not getattr(spec.resolve(self._config), "keeps_rows", False):
            return _CommittedStore(runner.tasks[task_id].runtime.stores[name], position)
        store = open_query_store(
            self._config, spec, task_id, partial(runner.committed_rows, task_id)
        )
        store.set_clocks(runner.committed_clocks(task_id, name))
        return _CommittedStore(store, position)
