"""Stores that are filled from their changelogs, and who wants to hear of it.

Stores are filled by workers, before the first batch of an instance. What was filled they tell with
the outcome of the batch; until then `RestoreMonitor` looks at the replicas of this host.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import StreamsException
from penstock.log.base import Log
from penstock.log.types import TopicPartition
from penstock.record import TaskId
from penstock.stores.bytes.lmdb.environment import MAP_SIZE, LmdbEnvironment
from penstock.stores.replica.generations import Generations
from penstock.stores.replica.state import META, require_state

if TYPE_CHECKING:
    from penstock.engine.layout.execution_graph import ExecutionGraph
    from penstock.engine.worker.outcome import RestoredStore

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.1
#: Store -> the partition it is filled from, from where, and up to.
_Places = Mapping[str, tuple[TopicPartition, int, int]]


class StateRestoreListener:
    """Hears of restores; any of the methods may be overridden.

    They are called by threads of penstock's own, one at a time, in the process of the application.
    `partition` is that of the changelog, or of the source topic that serves as one.
    """

    def on_restore_start(
        self, partition: TopicPartition, store: str, starting_offset: int, ending_offset: int
    ) -> None:
        """A store begins to be filled."""

    def on_batch_restored(
        self, partition: TopicPartition, store: str, batch_end_offset: int, restored: int
    ) -> None:
        """So many more records are in it."""

    def on_restore_end(self, partition: TopicPartition, store: str, total: int) -> None:
        """The store is as it was when its task was last committed."""

    def on_restore_suspended(self, partition: TopicPartition, store: str, total: int) -> None:
        """The batch ended before the store was filled."""


@dataclass
class _Progress:
    """One store that is being filled."""

    position: int
    end: int
    told: int = 0


class RestoreNotifier:
    """Tells a listener of every restore: once of its beginning, and once of its end.

    The end is told when the batch is over, with what the worker has counted; what `moved` says
    before is by offsets, of which a compacted changelog has more than records. So is the end of a
    store that was filled by a run of the batch that came to nothing: what it counted is not known.
    """

    def __init__(self, listener: StateRestoreListener) -> None:
        self._listener = listener
        self._lock = threading.Lock()
        self._running: dict[tuple[TopicPartition, str], _Progress] = {}

    def began(self, partition: TopicPartition, store: str, start: int, end: int) -> None:
        """A store begins to be filled."""
        with self._lock:
            self._running[partition, store] = _Progress(start, end)
            self._tell("on_restore_start", partition, store, start, end)

    def moved(self, partition: TopicPartition, store: str, position: int) -> None:
        """A store that is being filled has come so far."""
        with self._lock:
            progress = self._running.get((partition, store))
            if progress is not None and position > progress.position:
                restored, progress.position = position - progress.position, position
                progress.told += restored
                self._tell("on_batch_restored", partition, store, position, restored)

    def done(self, restored: Iterable[RestoredStore]) -> None:
        """A batch is committed; these stores were filled before it. Now no store lacks anything."""
        for each in restored:
            partition = TopicPartition(each.topic, each.partition)
            if (partition, each.store) not in self._running:
                if not each.records:
                    continue
                self.began(partition, each.store, each.start, each.end)
            with self._lock:
                progress = self._running.pop((partition, each.store))
                left = max(0, each.records - progress.told)
                if left:
                    self._tell("on_batch_restored", partition, each.store, each.end, left)
                self._tell("on_restore_end", partition, each.store, each.records)
        with self._lock:
            for (partition, store), progress in self._running.items():
                left = max(0, progress.end - progress.position)
                if left:
                    self._tell("on_batch_restored", partition, store, progress.end, left)
                self._tell("on_restore_end", partition, store, progress.told + left)
            self._running.clear()

    def given_up(self) -> None:
        """No batch is running: what was not filled will have to be filled later."""
        with self._lock:
            for (partition, store), progress in self._running.items():
                self._tell("on_restore_suspended", partition, store, progress.told)
            self._running.clear()

    def _tell(self, what: str, *facts: object) -> None:
        try:
            getattr(self._listener, what)(*facts)
        except Exception:
            log.exception("The restore listener failed; the application goes on.")


class RestoreMonitor:
    """Looks at the replicas of this host while the first batch fills them."""

    def __init__(
        self, directory: Path, restores: RestoreNotifier,
        wanted: Mapping[TaskId, _Places],
    ) -> None:
        """`wanted`: by task, as of `restore_targets`."""
        self._restores = restores
        self._ended = threading.Event()
        self._wanted: list[tuple[ReplicaProbe, _Places]] = []
        for task_id, stores in wanted.items():
            look = ReplicaProbe(directory / str(task_id))
            empty = _empty(look.positions(), stores)
            if empty:
                self._wanted.append((look, empty))
            else:
                look.close()
        self._thread = threading.Thread(
            target=self._watch, name="penstock-restore-watch", daemon=True
        )
        if self._wanted:
            self._thread.start()

    def _watch(self) -> None:
        for _, stores in self._wanted:
            for store, (partition, start, end) in stores.items():
                self._restores.began(partition, store, start, end)
        while not self._ended.wait(LOOK_EVERY_S):
            for look, stores in self._wanted:
                positions = look.positions()
                for store, (partition, _, end) in stores.items():
                    self._restores.moved(partition, store, min(end, positions.get(store, 0)))

    def close(self) -> None:
        """Look no more."""
        self._ended.set()
        if self._wanted:
            self._thread.join()
        for look, _ in self._wanted:
            look.close()


def _empty(positions: Mapping[str, int], stores: _Places) -> _Places:
    """The stores that have to be filled from nothing."""
    return {
        store: place for store, place in stores.items()
        if store not in positions and place[1] < place[2]
    }


class ReplicaProbe:
    """Looks at the replica of one task again and again; has its files open in between.

    To open them anew for every look would mean to wait for whoever writes, every time.
    """

    def __init__(self, directory: Path) -> None:
        self._generations = Generations(directory)
        #: The generation that was looked at last.
        self._open: tuple[str, LmdbEnvironment] | None = None

    def positions(self) -> dict[str, int]:
        """Where the stores stand; empty if nothing is there, or nothing that anybody would use."""
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
        """Let go of the files."""
        if self._open is not None:
            self._open[1].close()
            self._open = None


def replica_positions(directory: Path) -> dict[str, int]:
    """Where the stores of a task stand on this host, by one look."""
    with closing(ReplicaProbe(directory)) as look:
        return look.positions()


def restore_targets(
    source: Log, graph: ExecutionGraph, offsets: Mapping[TopicPartition, int]
) -> dict[TaskId, dict[str, tuple[TopicPartition, int, int]]]:
    """What `RestoreMonitor` takes, as it stands between two batches."""
    places = {task_id: graph.restore_partitions(task_id) for task_id in graph.tasks}
    bounds = source.offsets({at for stores in places.values() for at in stores.values()})
    return {
        task_id: {
            store: (at, bounds[at].start, offsets.get(at, bounds[at].end))
            for store, at in stores.items()
        }
        for task_id, stores in places.items()
    }
