"""The stores of global tables in a worker, at the offsets of the plan."""

from __future__ import annotations

from functools import partial
from typing import Any

from penstock.engine.failpoints import failpoint
from penstock.engine.packaging.bundle import Bundle
from penstock.engine.plan.batch_plan import BatchPlan
from penstock.engine.worker.changelogs import LogChangelogs
from penstock.engine.worker.outcome import RestoredStore
from penstock.log.base import Log
from penstock.log.types import TopicPartition
from penstock.stores.bytes.store import OpenBytesStore
from penstock.stores.cache.record_cache import RecordCache
from penstock.stores.replica.global_replica import (
    GLOBAL_DIRECTORY,
    GlobalReplica,
    position_name,
)
from penstock.task.drops import DropLog
from penstock.task.global_state import GlobalState


class GlobalTables:
    """The stores of all global tables, which tasks read.

    One worker of a host updates them before a batch. The stores of a batch stay open from
    `stores` to `release`.
    """

    def __init__(self, log: Log, bundle: Bundle) -> None:
        self._log = log
        self._bundle = bundle
        self._replica: GlobalReplica | None = None
        #: Epoch and number of the plan that the stores belong to; None if none are open.
        self._plan: tuple[int, int] | None = None
        self._stores: dict[str, Any] = {}
        #: Position name -> partition, as of the last plan.
        self._topics: dict[str, TopicPartition] = {}
        #: Reports of the replica that are not taken yet.
        self._restored: tuple[RestoredStore, ...] = ()
        self._dropped = 0
        #: Stores are opened for each update.
        self._drop_log = DropLog()
        #: Topic -> its global store.
        self._store_of = {
            store.topic: name for name, store in bundle.topology.global_stores.items()
        }

    def stores(self, plan: BatchPlan) -> dict[str, Any]:
        """Return the stores at the offsets of the plan."""
        if not self._bundle.graph.global_topics:
            return {}
        if self._plan != (plan.epoch, plan.number):
            self._topics = {
                position_name(topic, partition): TopicPartition(topic, partition)
                for topic, partition in plan.global_positions
            }
            positions = {
                position_name(topic, partition): offset
                for (topic, partition), offset in plan.global_positions.items()
            }
            self._stores = self._open_replica().stores_at(
                positions, LogChangelogs(self._log, self._topics), plan.epoch, failpoint
            )
            self._plan = (plan.epoch, plan.number)
        return self._stores

    def take_restored(self) -> tuple[RestoredStore, ...]:
        """Return the restores of this worker since the last call. The other workers did not do
        them."""
        self._take_updates()
        restored, self._restored = self._restored, ()
        return restored

    def take_dropped(self) -> int:
        """Return the number of records that this worker has dropped since the last call."""
        self._take_updates()
        dropped, self._dropped = self._dropped, 0
        return dropped

    def _take_updates(self) -> None:
        if self._replica is None:
            return
        restores, dropped = self._replica.take_updates()
        self._dropped += dropped
        for name, start, end, records in restores:
            at = self._topics[name]
            store = RestoredStore(self._store_of[at.topic], *at, start, end, records)
            self._restored = (*self._restored, store)

    def _open_replica(self) -> GlobalReplica:
        if self._replica is None:
            graph = self._bundle.graph
            # The ids distinguish a topic from a later one of the same name with other offsets.
            topics = [self._log.topic(topic).id for topic in sorted(graph.global_topics)]
            self._replica = GlobalReplica(
                self._bundle.directory / GLOBAL_DIRECTORY,
                "/".join((self._log.id, *topics, graph.global_layout)),
                partial(_build_state, self._bundle, self._drop_log, None),
                make_readers=partial(
                    _build_state, self._bundle, self._drop_log, RecordCache(0)
                ),
            )
        return self._replica

    def log_drops(self) -> None:
        """Log the number of dropped records that no line has reported yet."""
        self._drop_log.log_counts(all_now=True)

    def release(self) -> None:
        """Release the stores at the end of a batch."""
        if self._replica is not None:
            self._replica.release()
        self._plan = None
        self._stores = {}

    def close_files(self) -> None:
        """Close the files. The next call of `stores` opens them again."""
        self.release()
        if self._replica is not None:
            self._replica.close_files()

    def close(self) -> None:
        """Close the stores for good."""
        if self._replica is not None:
            self._replica.close()
        self._replica = self._plan = None
        self._stores = {}


def _build_state(
    bundle: Bundle, drop_log: DropLog, cache: RecordCache | None, open_bytes: OpenBytesStore
) -> GlobalState:
    return GlobalState(bundle.topology, bundle.config, cache, open_bytes, drop_log)
