"""The progress of stores that are restored from their changelogs, and its listener.

Workers restore the stores before the first batch of an instance, and report the result with the
outcome of that batch. Until then `RestoreMonitor` polls the replicas on this host. Lanes report the
progress of their tasks, and the result when they run a task.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import StreamsException
from penstock.log.base import Log
from penstock.log.types import TopicPartition
from penstock.stores.bytes.lmdb.environment import MAP_SIZE, LmdbEnvironment
from penstock.stores.replica.generations import Generations
from penstock.stores.replica.global_replica import GLOBAL_DIRECTORY, position_name
from penstock.stores.replica.state import META, require_state

if TYPE_CHECKING:
    from penstock.engine.layout.execution_graph import ExecutionGraph
    from penstock.engine.observe.metrics import Metrics
    from penstock.engine.worker.outcome import RestoredStore, RestoringStore
    from penstock.topology.topology import Topology

log = logging.getLogger(__name__)

POLL_INTERVAL_S = 0.1


class StateRestoreListener:
    """Receives the progress of restores. Override any of the methods.

    penstock's threads call them in the application's process, one at a time. `partition` is a
    partition of the changelog, or of the source topic that serves as one. A global store is
    restored from each partition of its topic, at every start: from the position of its rows on
    this host, or from the beginning.

    Example:
        >>> class Progress(StateRestoreListener):
        ...     def on_restore_end(self, partition, store, total):
        ...         print(f"{store}: {total} records restored")
    """

    def on_restore_start(
        self, partition: TopicPartition, store: str, starting_offset: int, ending_offset: int
    ) -> None:
        """The restore of a store starts.

        Args:
            partition: The partition of the changelog, or of the source topic that serves as one.
            store: The name of the store.
            starting_offset: The offset of the first record.
            ending_offset: The offset after the last record.

        Kafka: StateRestoreListener#onRestoreStart
        """

    def on_batch_restored(
        self, partition: TopicPartition, store: str, batch_end_offset: int, restored: int
    ) -> None:
        """A number of records was restored.

        Args:
            partition: The partition of the changelog, or of the source topic that serves as one.
            store: The name of the store.
            batch_end_offset: The offset of the last record of the batch.
            restored: The number of records.

        Kafka: StateRestoreListener#onBatchRestored
        """

    def on_restore_end(self, partition: TopicPartition, store: str, total: int) -> None:
        """The store is in the state of its task's last commit.

        Args:
            partition: The partition of the changelog, or of the source topic that serves as one.
            store: The name of the store.
            total: The number of restored records.

        Kafka: StateRestoreListener#onRestoreEnd
        """

    def on_restore_suspended(self, partition: TopicPartition, store: str, total: int) -> None:
        """The batch ended before the store was restored.

        Args:
            partition: The partition of the changelog, or of the source topic that serves as one.
            store: The name of the store.
            total: The number of restored records.

        Kafka: StateRestoreListener#onRestoreSuspended
        """


class RestoreRange(NamedTuple):
    """The offsets from which a store is restored."""

    store: str
    partition: TopicPartition
    start: int
    end: int


#: Position in a replica -> the restore that moves it. It is named after the store, or, in the
#: replica of global stores, after the partition.
ReplicaTargets = Mapping[str, RestoreRange]


@dataclass
class _RestoreProgress:
    """A store that is being restored."""

    #: Empty for a global store.
    task: str
    start: int
    position: int
    end: int
    #: Whether a lane reports the end of the restore.
    by_lane: bool
    reported: int = 0


class RestoreNotifier:
    """Calls a listener for every restore: once at its start, and once at its end.

    It updates the metrics of tasks as well. In batch mode `RestoreMonitor` reports the start and
    the progress. The end is reported when the batch is over, with the number of records that the
    worker counted. In continuous mode lanes report everything for the stores of tasks.
    Progress before that is measured in offsets, of which a compacted changelog has more than
    records. The same holds for a store that was restored in a failed attempt of the batch, because
    its count is not known.
    """

    def __init__(self, listener: StateRestoreListener, metrics: Metrics | None = None) -> None:
        self._listener = listener
        self._metrics = metrics
        self._lock = threading.Lock()
        self._running: dict[tuple[TopicPartition, str], _RestoreProgress] = {}

    def started(
        self, partition: TopicPartition, store: str, start: int, end: int, *, task: str = "",
        by_lane: bool = False,
    ) -> None:
        """The restore of a store has started. `task` is empty for a global store.

        `by_lane`: a lane reports its end.
        """
        with self._lock:
            progress = _RestoreProgress(task, start, start, end, by_lane)
            self._running[partition, store] = progress
            self._measure(partition, store, progress)
            self._notify("on_restore_start", partition, store, start, end)

    def progressed(self, partition: TopicPartition, store: str, position: int) -> None:
        """The restore of a store has reached a position."""
        with self._lock:
            progress = self._running.get((partition, store))
            if progress is not None and position > progress.position:
                restored, progress.position = position - progress.position, position
                progress.reported += restored
                self._measure(partition, store, progress)
                self._notify("on_batch_restored", partition, store, position, restored)

    def restoring(self, task: str, stores: Iterable[RestoringStore]) -> None:
        """A lane has reported how far the stores of a task are restored."""
        for store, topic, number, start, position, end in stores:
            partition = TopicPartition(topic, number)
            running = self._running.get((partition, store))
            if running is not None and position < running.position:
                # Another lane restores the task.
                self.stopped(task)
                running = None
            if running is None and start < end:
                self.started(partition, store, start, end, task=task, by_lane=True)
            self.progressed(partition, store, position)

    def restored(self, task: str, restored: Iterable[RestoredStore]) -> None:
        """A lane runs a task, after it has restored these stores completely.

        Lanes bring the global stores to the ends of their topics before they run a task.
        """
        for each in restored:
            self._end(each)
        with self._lock:
            for key in [key for key, each in self._running.items() if each.task in (task, "")]:
                self._end_uncounted(*key, self._running.pop(key))
        if self._metrics is not None:
            self._metrics.restores.complete(task)

    def stopped(self, task: str) -> None:
        """The lane that restored a task has ended, or has released it."""
        with self._lock:
            for key in [key for key, each in self._running.items() if each.task == task]:
                self._suspend(*key, self._running.pop(key))

    def completed(self, restored: Iterable[RestoredStore]) -> None:
        """A batch is committed. `restored`: the stores that its workers restored.

        No store is incomplete now, so all other restores have ended as well. Several hosts may
        have restored a global store; the first one is reported.
        """
        first: dict[tuple[TopicPartition, str], RestoredStore] = {}
        for each in restored:
            first.setdefault((TopicPartition(each.topic, each.partition), each.store), each)
        for each in first.values():
            self._end(each)
        with self._lock:
            for key in [key for key, each in self._running.items() if not each.by_lane]:
                self._end_uncounted(*key, self._running.pop(key))

    def _end(self, each: RestoredStore) -> None:
        """A worker has restored a store."""
        partition, store = TopicPartition(each.topic, each.partition), each.store
        task = "" if each.task_id is None else str(each.task_id)
        if task and self._metrics is not None:
            self._metrics.add_restore(task, each.records)
        if (partition, store) not in self._running:
            if not each.records:
                return
            self.started(partition, store, each.start, each.end, task=task)
        with self._lock:
            progress = self._running.pop((partition, store))
            progress.position = progress.end
            self._measure(partition, store, progress)
            remaining = max(0, each.records - progress.reported)
            if remaining:
                self._notify("on_batch_restored", partition, store, each.end, remaining)
            self._notify("on_restore_end", partition, store, each.records)

    def _end_uncounted(
        self, partition: TopicPartition, store: str, progress: _RestoreProgress
    ) -> None:
        """A restore has ended, but the number of its records is not known."""
        remaining = max(0, progress.end - progress.position)
        progress.position = progress.end
        self._measure(partition, store, progress)
        if remaining:
            self._notify("on_batch_restored", partition, store, progress.end, remaining)
        self._notify("on_restore_end", partition, store, progress.reported + remaining)

    def suspended(self) -> None:
        """No batch runs. Incomplete stores are restored later."""
        with self._lock:
            for key, progress in self._running.items():
                self._suspend(*key, progress)
            self._running.clear()

    def _suspend(self, partition: TopicPartition, store: str, progress: _RestoreProgress) -> None:
        if self._metrics is not None and progress.task:
            self._metrics.restores.stop(progress.task)
        self._notify("on_restore_suspended", partition, store, progress.reported)

    def _measure(self, partition: TopicPartition, store: str, progress: _RestoreProgress) -> None:
        if self._metrics is not None and progress.task:
            self._metrics.restores.update(
                progress.task, (partition, store), progress.start, progress.position, progress.end
            )

    def _notify(self, method: str, *arguments: object) -> None:
        try:
            getattr(self._listener, method)(*arguments)
        except Exception:
            log.exception("The restore listener failed; the application continues.")


class RestoreMonitor:
    """Polls the replicas of this host while the first batch restores them."""

    def __init__(
        self, directory: Path, notifier: RestoreNotifier, targets: Mapping[str, ReplicaTargets]
    ) -> None:
        """`targets`: by directory and position, see `restore_targets`."""
        self._notifier = notifier
        self._stopped = threading.Event()
        #: The replicas with stores that are restored.
        self._restoring: list[tuple[ReplicaProbe, ReplicaTargets]] = []
        for name, all_targets in targets.items():
            probe = ReplicaProbe(directory / name)
            restoring = (_remaining if name == GLOBAL_DIRECTORY else _empty_stores)(
                probe.positions(), all_targets
            )
            if restoring:
                self._restoring.append((probe, restoring))
                task = "" if name == GLOBAL_DIRECTORY else name
                for store, partition, start, end in restoring.values():
                    notifier.started(partition, store, start, end, task=task)
            else:
                probe.close()
        self._thread = threading.Thread(
            target=self._poll_until_stopped, name="penstock-restore-monitor", daemon=True
        )
        if self._restoring:
            self._thread.start()

    def _poll_until_stopped(self) -> None:
        while not self._stopped.wait(POLL_INTERVAL_S):
            for probe, targets in self._restoring:
                positions = probe.positions()
                for name, (store, partition, _, end) in targets.items():
                    self._notifier.progressed(partition, store, min(end, positions.get(name, 0)))

    def close(self) -> None:
        """Stop polling."""
        self._stopped.set()
        if self._restoring:
            self._thread.join()
        for probe, _ in self._restoring:
            probe.close()


def _empty_stores(positions: Mapping[str, int], targets: ReplicaTargets) -> ReplicaTargets:
    """The restores of stores that hold no rows yet."""
    return {
        name: target for name, target in targets.items()
        if name not in positions and target.start < target.end
    }


def _remaining(positions: Mapping[str, int], targets: ReplicaTargets) -> ReplicaTargets:
    """All restores, from the positions that the rows have reached."""
    return {
        name: target._replace(start=min(target.end, positions.get(name, target.start)))
        for name, target in targets.items()
    }


class ReplicaProbe:
    """Reads the positions of one task's replica.

    The files stay open between reads: opening them would wait for the writer each time.
    """

    def __init__(self, directory: Path) -> None:
        self._generations = Generations(directory)
        #: The name of the generation that was read last, and its open environment.
        self._open: tuple[str, LmdbEnvironment] | None = None

    def positions(self) -> dict[str, int]:
        """Return store -> position; empty if there is no usable replica."""
        name = self._generations.current()
        if self._open is not None and self._open[0] != name:
            self.close()
        if name is None or not self._generations.is_sound(name):
            return {}
        try:
            if self._open is None:
                self._open = (name, self._generations.open(name, MAP_SIZE))
            with self._open[1].reading([META]) as transaction:
                return require_state(transaction).positions
        except (OSError, StreamsException):
            return {}

    def close(self) -> None:
        """Close the files."""
        if self._open is not None:
            self._open[1].close()
            self._open = None


def replica_positions(directory: Path) -> dict[str, int]:
    """Return the positions of a task's replica on this host."""
    with closing(ReplicaProbe(directory)) as probe:
        return probe.positions()


def restore_targets(
    source: Log, graph: ExecutionGraph, offsets: Mapping[TopicPartition, int]
) -> dict[str, ReplicaTargets]:
    """Return the restores in the directory of each task, as of now, between two batches.

    `offsets`: the committed offsets of the source topics.
    """
    partitions = {task_id: graph.restore_partitions(task_id) for task_id in graph.tasks}
    bounds = source.offsets({at for stores in partitions.values() for at in stores.values()})
    return {
        str(task_id): {
            store: RestoreRange(store, at, bounds[at].start, offsets.get(at, bounds[at].end))
            for store, at in stores.items()
        }
        for task_id, stores in partitions.items()
    }


def global_restore_targets(
    source: Log, graph: ExecutionGraph, topology: Topology
) -> dict[str, ReplicaTargets]:
    """Return the restores of the global stores, as of now."""
    stores = {
        TopicPartition(each.topic, number): name
        for name, each in topology.global_stores.items()
        for number in range(graph.partitions[each.topic])
    }
    if not stores:
        return {}
    bounds = source.offsets(stores)
    return {
        GLOBAL_DIRECTORY: {
            position_name(*at): RestoreRange(store, at, bounds[at].start, bounds[at].end)
            for at, store in stores.items()
        }
    }
