"""`Follower`: an instance that stands by keeps rows of its own, so that it takes over sooner.

Changelogs are followed into the replicas of this host, up to what is committed. Nothing depends on
it: whoever takes over catches up what is missing, or restores what is not there. What only a commit
tells, and not a changelog (the order in an LRU map, rows that are not logged), is left to that.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from penstock.config import StreamsConfig
from penstock.engine.layout.execution_graph import ExecutionGraph, build_graph_for_log
from penstock.engine.layout.internal_topics import tasks_topic
from penstock.engine.standby.update_listener import StandbyUpdateNotifier, SuspendReason
from penstock.engine.worker.changelogs import LogChangelogs
from penstock.engine.worker.replica_pool import replica_identity
from penstock.errors import StreamsException
from penstock.log import open_log
from penstock.log.base import Log
from penstock.log.errors import LogError, UnknownTopic
from penstock.log.types import TopicPartition
from penstock.record import TaskId
from penstock.stores.replica.protocol import ChangelogBatch, ReplicaAhead, ReplicaTarget
from penstock.stores.replica.task_replica import TaskReplica
from penstock.task.blueprint import Blueprint
from penstock.task.replica_stores import replica_stores
from penstock.topology.topology import Topology

log = logging.getLogger(__name__)

#: Between two looks at the changelogs.
LOOK_EVERY_S = 0.25
#: Between two looks at whether topics have come or grown.
SHAPE_EVERY_S = 60.0
#: After trouble; by then it may be over.
PAUSE_S = 5.0


class _Enough(Exception):
    """The follower is to end: what is read now is not written."""


class _Followed(NamedTuple):
    """A task of which this host keeps rows."""

    replica: TaskReplica
    #: Store -> the partition that it is restored from.
    places: dict[str, TopicPartition]


class Follower:
    """Follows the changelogs of an application, in a thread of its own, until it is closed."""

    def __init__(
        self, topology: Topology, config: StreamsConfig, updates: StandbyUpdateNotifier,
        is_paused: Callable[[], bool] = lambda: False,
    ) -> None:
        self._topology = topology
        self._config = config
        self._updates = updates
        self._is_paused = is_paused
        self._log: Log
        self._life = ""
        self._graph: ExecutionGraph | None = None
        self._shape_at = 0.0
        self._tasks: dict[TaskId, _Followed] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-standby", daemon=True)
        self._thread.start()

    @property
    def tasks(self) -> dict[TaskId, frozenset[TopicPartition]]:
        """The tasks of which rows are kept -> what they read from the log."""
        graph = self._graph
        if graph is None:
            return {}
        return {
            task_id: frozenset(
                TopicPartition(topic, task_id.partition) for topic in graph.log_topics(task_id)
            )
            for task_id in tuple(self._tasks)
        }

    def close(self, reason: SuspendReason) -> None:
        """Follow no longer; waits until nothing is written any more."""
        self._ended.set()
        self._thread.join()
        self._updates.ended(reason)

    # ---- the thread --------------------------------------------------------------------------

    def _run(self) -> None:
        address, connection = self._config.log, self._config.connection_settings()
        assert address is not None
        while not self._ended.is_set():
            try:
                with open_log(address, connection=connection) as self._log:
                    self._follow_until_ended()
            except _Enough:
                log.debug("What was read last is not written: this instance takes over, or ends.")
            except (LogError, StreamsException, OSError) as trouble:
                log.warning("This instance stands by, but its rows grow old: %s", trouble)
                self._ended.wait(PAUSE_S)
            finally:
                self._let_go()

    def _follow_until_ended(self) -> None:
        while not self._ended.is_set():
            try:
                if not self._is_paused():
                    self._follow()
            except UnknownTopic:
                # The application has never run here, or is being reset.
                self._let_go()
            self._ended.wait(LOOK_EVERY_S)

    def _follow(self) -> None:
        # The topic is made anew with every life of the application.
        life = self._log.topic(tasks_topic(self._config.application_id)).id
        if life != self._life or self._shape_has_changed():
            self._let_go()
            self._open(life)
        targets = self._targets()
        for task_id, task in self._tasks.items():
            wanted = {
                store: targets[at] for store, at in task.places.items() if at in targets
            }
            if len(wanted) == len(task.places):
                self._catch_up(task_id, task, wanted)

    def _shape_has_changed(self) -> bool:
        if time.monotonic() < self._shape_at + SHAPE_EVERY_S:
            return False
        self._shape_at = time.monotonic()
        return build_graph_for_log(self._log, self._topology, self._config) != self._graph

    def _targets(self) -> dict[TopicPartition, int]:
        """Partition -> how far it counts: changelogs to their ends, of which only what is committed
        is seen; source topics as far as they were consumed."""
        assert self._graph is not None
        places = {at for task in self._tasks.values() for at in task.places.values()}
        changelogs = {at for at in places if at.topic in self._graph.changelogs}
        committed = self._log.committed(self._config.application_id, places - changelogs)
        return {
            **{at: bounds.end for at, bounds in self._log.offsets(changelogs).items()},
            **{at: each.offset for at, each in committed.items()},
        }

    def _catch_up(self, task_id: TaskId, task: _Followed, wanted: dict[str, int]) -> None:
        before = task.replica.positions()
        if all(before.get(store) == target for store, target in wanted.items()):
            return
        for store, at in task.places.items():
            self._updates.began(at, store, before.get(store, 0))
        changelogs = _Counting(LogChangelogs(self._log, task.places))
        try:
            task.replica.catch_up(ReplicaTarget(wanted), changelogs, self._check_ended)
        except ReplicaAhead:
            # Workers of this very host have gone on meanwhile.
            return
        for store, target in wanted.items():
            if before.get(store) != target:
                self._updates.loaded(
                    task.places[store], store, task_id, target, changelogs.records[store], target
                )

    def _check_ended(self, step: str) -> None:
        if self._ended.is_set():
            raise _Enough

    # ---- replicas ----------------------------------------------------------------------------

    def _open(self, life: str) -> None:
        self._graph = graph = build_graph_for_log(self._log, self._topology, self._config)
        self._shape_at = time.monotonic()
        directory = Path(self._config.state_dir).absolute() / self._config.application_id
        for task_id in graph.tasks:
            blueprint = Blueprint.of(self._topology, self._config, [task_id.subtopology])
            stores = tuple(
                store for store in replica_stores(blueprint, task_id)
                if store.logged and store.restores_from_changelog
            )
            if stores:
                replica = TaskReplica.open(
                    directory / str(task_id), replica_identity(self._log, graph, task_id, life),
                    stores,
                )
                restored = graph.restore_partitions(task_id)
                self._tasks[task_id] = _Followed(
                    replica, {store.name: restored[store.name] for store in stores}
                )
        self._life = life

    def _let_go(self) -> None:
        for task in self._tasks.values():
            task.replica.close()
        self._tasks = {}
        self._life = ""


class _Counting:
    """Satisfies `Changelogs`; knows how many records of each store were read."""

    def __init__(self, changelogs: LogChangelogs) -> None:
        self._changelogs = changelogs
        self.start = changelogs.start
        self.records: Counter[str] = Counter()

    def read(
        self, store: str, start: int, end: int, since: int | None = None
    ) -> Iterator[ChangelogBatch]:
        """See `LogChangelogs.read`."""
        for batch in self._changelogs.read(store, start, end, since):
            self.records[store] += len(batch)
            yield batch
