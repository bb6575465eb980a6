"""`ReplicaSource`: the stores of a running application, read from the replicas of this host.

In continuous mode the lanes write their commits to the replicas at once. In batch mode a replica is
written when its task runs again, so a query first brings it to the last commit. The same happens
where no task runs: on a standby, in a query node, and in the driver of a cluster.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from penstock.config import StreamsConfig
from penstock.engine.layout.execution_graph import ExecutionGraph
from penstock.engine.standby.followed_replicas import FollowedReplicas
from penstock.engine.worker.changelogs import LogChangelogs
from penstock.engine.worker.replica_pool import replica_identity
from penstock.errors import StreamsRebalancingException
from penstock.log import open_log
from penstock.log.base import Log
from penstock.log.errors import OffsetOutOfRange, UnknownTopic
from penstock.log.types import TopicPartition
from penstock.queries.catalog import describe_stores, store_groups
from penstock.queries.replica_reader import Inputs, ReplicaReader, StoreChangelogs
from penstock.queries.run_view import RunState, RunView
from penstock.queries.source import StoreInfo
from penstock.record import TaskId
from penstock.stores.bytes.store import open_in_memory
from penstock.stores.cache.record_cache import RecordCache
from penstock.stores.replica.databases import bytes_store_names
from penstock.stores.replica.global_replica import (
    GLOBAL_DIRECTORY,
    GlobalReplica,
    position_name,
)
from penstock.stores.replica.protocol import ReplicaAhead, ReplicaStore
from penstock.stores.replica.store_reader import StoreReader, read_replica_state
from penstock.task.global_state import GLOBAL_TASK, GlobalState
from penstock.task.query_stores import open_query_store
from penstock.topology.topology import Topology

T = TypeVar("T")

#: How long a `RunState` is used again.
VALID_S = 0.01
#: How long a query waits until the log shows the last commit.
COMMIT_TIMEOUT_S = 10.0


class CommittedReplica(NamedTuple):
    """A replica that is at the last commit."""

    inputs: Inputs
    #: The log, the incarnation of the application and the layout that the rows belong to.
    identity: str
    changelogs: StoreChangelogs
    #: The clocks of the store at the last commit, if this instance has made it.
    clocks: Mapping[str, int] = {}


class ReplicaSource:
    """The stores of an application on this host. Any thread may call it.

    Invariants:
    - `_log` and `_replicas` are used under `_updating`.
    - A reader returns rows of the last commit at the time of the call, and never older ones than
      before.
    """

    def __init__(self, topology: Topology, config: StreamsConfig, run: RunView) -> None:
        self._topology = topology
        self._config = config
        self._run = run
        self._groups = store_groups(topology)
        self._updating = threading.Lock()
        self._log: Log | None = None
        self._replicas: FollowedReplicas | None = None
        self._global: GlobalReplica | None = None
        self._stores: dict[str, StoreInfo] = describe_stores(topology, config, {})
        self._has_graph = False
        #: Store -> a store without rows, which serializes keys.
        self._key_stores: dict[str, Any] = {}
        #: Task -> its committed offsets at the catch-up before the last one.
        self._earlier_offsets: dict[TaskId, dict[TopicPartition, int]] = {}
        #: (store, partition, whether stale data is allowed) -> its reader.
        self._readers: dict[tuple[str, int, bool], ReplicaReader] = {}
        #: The last known state, and when it must be read again (monotonic).
        self.state = RunState(False, None)
        self.valid_until = 0.0
        self.commits = run.commits

    # ---- StoreSource -------------------------------------------------------------------------

    @property
    def stores(self) -> Mapping[str, StoreInfo]:
        """All stores of the topology, by name."""
        return self._stores

    @property
    def is_active(self) -> bool:
        """Whether this instance runs the tasks."""
        return self._run.state().is_active

    @property
    def thread_state(self) -> str:
        """The state of the instance."""
        return self._run.state().name

    def check_running(self, *, stopped: bool) -> None:
        """Raise unless the application has started and not ended."""
        self._run.check_running(stopped)
        if not self._has_graph:
            self._open_graph()

    def reader(self, store: str, partition: int, *, stale: bool) -> ReplicaReader:
        """Return the reader of a partition."""
        found = self._readers.get((store, partition, stale))
        if found is None:
            found = self._readers[store, partition, stale] = ReplicaReader(
                self, store, partition, stale
            )
        found.check()
        return found

    def close(self) -> None:
        """Close all files. Later queries fail."""
        self.valid_until = 0.0
        for reader in list(self._readers.values()):
            reader.close()
        with self._updating:
            if self._replicas is not None:
                self._replicas.close()
            if self._global is not None:
                self._global.close()
            if self._log is not None:
                self._log.close()
            self._replicas = self._global = self._log = None

    # ---- for readers -------------------------------------------------------------------------

    def current_state(self) -> RunState:
        """The state of the instance, not older than `VALID_S`."""
        now = time.monotonic()
        if now >= self.valid_until:
            self._run.check_running(False)
            self.state = self._run.state()
            self.valid_until = now + VALID_S
        return self.state

    def task_of(self, store: str, partition: int) -> TaskId:
        """The task that holds a partition of a store."""
        return TaskId(self._groups[store], partition)

    def catch_up(self, store: str, partition: int) -> CommittedReplica:
        """Bring the replica with this partition to the last commit."""
        with self._updating:
            source, replicas = self._open_log()
            try:
                replicas.refresh()
            except UnknownTopic:
                raise self._not_restored(store) from None
            assert replicas.graph is not None
            if partition < 0:
                self._catch_up_global(source, replicas)
                return CommittedReplica(
                    Inputs(), self._global_identity(source, replicas.graph),
                    self._changelogs(replicas.graph, store, None),
                )
            task_id = self.task_of(store, partition)
            inputs = self._inputs(source, replicas, task_id)
            # A task may have no store that a changelog can restore.
            if task_id in replicas.tasks:
                targets = self._committed(replicas, task_id)
                if targets is not None:
                    replicas.catch_up(task_id, targets)
            identity = replica_identity(source, replicas.graph, task_id, replicas.incarnation)
            return CommittedReplica(
                inputs, identity, self._changelogs(replicas.graph, store, task_id),
                self._clocks(store, task_id),
            )

    def _changelogs(
        self, graph: ExecutionGraph, store: str, task_id: TaskId | None
    ) -> StoreChangelogs:
        """The changelogs of a partition of a store; `task_id` is None for a global store."""
        topics = graph.global_topics | {
            topic for each in graph.subtopologies.values() for topic in each.restore_topics.values()
        }
        if task_id is None:
            topic = self._topology.global_stores[store].topic
            partitions = {
                position_name(*at): TopicPartition(*at)
                for at in graph.global_partitions if at[0] == topic
            }
        else:
            restored = graph.restore_partitions(task_id)
            partitions = {store: restored[store]} if store in restored else {}
        return StoreChangelogs(partitions, frozenset(topics))

    def is_vacant(self, at: TopicPartition, start: int, end: int) -> bool:
        """Return whether the log has these offsets, and no records at them: on Kafka, the end of a
        transaction takes an offset, too."""
        def read(source: Log, graph: ExecutionGraph) -> bool:
            if not source.capabilities.is_remote or end > source.offsets([at])[at].end:
                return False
            try:
                return not any(
                    batch.columns().keys
                    for batch in source.read(*at, start, end, max_records=1)
                )
            except OffsetOutOfRange:
                return False

        return self.with_log(read)

    def _clocks(self, store: str, task_id: TaskId) -> Mapping[str, int]:
        """The clocks of a store at the last commit. A changelog does not contain all of them: a
        deletion may have moved the stream time."""
        record = self._run.known_record(task_id)
        return {} if record is None else record.state.store_clocks.get(store, {})

    def _inputs(self, source: Log, replicas: FollowedReplicas, task_id: TaskId) -> Inputs:
        """The committed input of a task. Read before the positions of its changelogs, so that the
        changelogs contain its effect."""
        graph = replicas.graph
        assert graph is not None
        partitions = [
            TopicPartition(topic, task_id.partition) for topic in graph.log_topics(task_id)
        ]
        shuffled = graph.shuffled_inputs(task_id.subtopology)
        partitions += [
            TopicPartition(topic, number) for topic in shuffled
            for number in range(graph.partitions[topic])
        ]
        offsets = self._run.known_offsets()
        if offsets is None:
            committed = source.committed(self._config.application_id, partitions)
            offsets = {at: each.offset for at, each in committed.items()}
            if source.capabilities.is_remote:
                # A broker shows the offsets of a transaction before it shows all its records.
                offsets = self._earlier_offsets.get(task_id, {})
                self._earlier_offsets[task_id] = {
                    at: each.offset for at, each in committed.items()
                }
        return Inputs({at: offsets[at] for at in partitions if at in offsets}, shuffled)

    def _committed(
        self, replicas: FollowedReplicas, task_id: TaskId
    ) -> dict[str, int] | None:
        """The committed positions of a task. Waits until the log shows those that are known."""
        record = self._run.known_record(task_id)
        known = {} if record is None else record.positions
        deadline = time.monotonic() + COMMIT_TIMEOUT_S
        while True:
            targets = replicas.committed_positions([task_id]).get(task_id)
            if targets is None or all(
                targets[store] >= known.get(store, 0) for store in targets
            ):
                return targets
            if time.monotonic() >= deadline:
                raise StreamsRebalancingException(
                    f"The log does not show the last commit of task {task_id} yet. Query again "
                    "later."
                )
            time.sleep(0.005)

    def _catch_up_global(self, source: Log, replicas: FollowedReplicas) -> None:
        """Bring the global stores to the ends of their topics."""
        graph = replicas.graph
        assert graph is not None
        if self._global is None:
            config, topology = self._config, self._topology
            self._global = GlobalReplica(
                self._directory / GLOBAL_DIRECTORY, self._global_identity(source, graph),
                lambda open_bytes: GlobalState(topology, config, None, open_bytes=open_bytes),
                make_readers=lambda open_bytes: GlobalState(
                    topology, config, RecordCache(0), open_bytes=open_bytes
                ),
            )
        ends = source.offsets(graph.global_partitions)
        topics = {position_name(*at): TopicPartition(*at) for at in ends}
        try:
            self._global.stores_at(
                {position_name(*at): bounds.end for at, bounds in ends.items()},
                LogChangelogs(source, topics),
            )
        except ReplicaAhead:
            # A worker of this host has read more in the meantime.
            return
        finally:
            self._global.release()

    def store_reader(
        self, store: str, partition: int, identity: str, changelogs: StoreChangelogs
    ) -> StoreReader:
        """Open the files of a partition for reading."""
        topic: str | None
        if partition < 0:
            spec, task_id = self._topology.global_stores[store].store, GLOBAL_TASK
            directory = self._directory / GLOBAL_DIRECTORY
            topic = self._topology.global_stores[store].topic
        else:
            spec, task_id = self._topology.stores[store], self.task_of(store, partition)
            directory = self._directory / str(task_id)
            topic = self._topology.source_changelogs.get(store)
        config = self._config

        def build(open_bytes: Any) -> Any:
            return open_query_store(config, spec, task_id, open_bytes, topic)

        keeps_rows = getattr(spec.resolve(config), "keeps_rows", False)
        names = bytes_store_names(ReplicaStore(store, True, build)) if keeps_rows else []
        return StoreReader(
            directory, store, names, build, keeps_rows=keeps_rows,
            is_expected=lambda state: state.log_id == identity,
            position_names=changelogs.partitions,
        )

    # ---- for metadata ------------------------------------------------------------------------

    def with_log(self, read: Callable[[Log, ExecutionGraph], T]) -> T:
        """Call a function with the log and the graph. One caller uses the log at a time."""
        with self._updating:
            source, replicas = self._open_log()
            replicas.refresh()
            assert replicas.graph is not None
            return read(source, replicas.graph)

    def key_serializer(self, store: str) -> Callable[[Any], bytes]:
        """Return the function that serializes the keys of a store."""
        opened = self._key_stores.get(store)
        if opened is None:
            spec = self._topology.stores[store]
            opened = self._key_stores[store] = open_query_store(
                self._config, spec, self.task_of(store, 0), open_in_memory,
                self._topology.source_changelogs.get(store),
            )
        serialize: Callable[[Any], bytes] = opened.serialize_key
        return serialize

    def progress(self) -> list[tuple[str, int, int, int]]:
        """Return (store, partition, position of the replica, end of the changelog)."""
        with self._updating:
            _, replicas = self._open_log()
            replicas.refresh()
            return [
                (store, task_id.partition, positions.get(store, 0), end)
                for task_id, ends in replicas.committed_positions().items()
                for positions in (replicas.tasks[task_id].replica.positions(),)
                for store, end in ends.items()
            ]

    def global_progress(self) -> list[tuple[str, int, int, int]]:
        """Return (global store, partition of its topic, position of the replica, end)."""
        with self._updating:
            source, replicas = self._open_log()
            replicas.refresh()
            assert replicas.graph is not None
            state = read_replica_state(self._directory / GLOBAL_DIRECTORY)
            is_current = state is not None and state.log_id == self._global_identity(
                source, replicas.graph
            )
            positions = state.positions if state is not None and is_current else {}
            ends = source.offsets(replicas.graph.global_partitions)
            return [
                (name, at.partition, positions.get(position_name(*at), 0), bounds.end)
                for name, store in self._topology.global_stores.items()
                for at, bounds in ends.items() if at.topic == store.topic
            ]

    # ---- internals ---------------------------------------------------------------------------

    @property
    def _directory(self) -> Path:
        return Path(self._config.state_dir).absolute() / self._config.application_id

    def _open_log(self) -> tuple[Log, FollowedReplicas]:
        if self._log is None or self._replicas is None:
            assert self._config.log is not None
            self._log = open_log(
                self._config.log, connection=self._config.connection_settings()
            )
            self._replicas = FollowedReplicas(self._log, self._topology, self._config)
        return self._log, self._replicas

    def _open_graph(self) -> None:
        """Find the partitions of the stores."""
        with self._updating:
            _, replicas = self._open_log()
            try:
                replicas.refresh()
            except UnknownTopic:
                raise StreamsRebalancingException(
                    f"Application '{self._config.application_id}' has never run on this log, or is "
                    "starting. Query again later."
                ) from None
            assert replicas.graph is not None
            tasks = {each.id: each.tasks for each in replicas.graph.subtopologies.values()}
            self._stores = describe_stores(self._topology, self._config, tasks)
            self._has_graph = True

    def _global_identity(self, source: Log, graph: ExecutionGraph) -> str:
        topics = [source.topic(topic).id for topic in sorted(graph.global_topics)]
        return "/".join((source.id, *topics, graph.global_layout))

    def _not_restored(self, store: str) -> StreamsRebalancingException:
        return StreamsRebalancingException(
            f"Store {store} cannot be queried now: application "
            f"'{self._config.application_id}' has not started on this log, or is being reset. "
            "Query again later."
        )
