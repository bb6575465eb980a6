"""Global tables in a worker: at exactly the offsets that a plan names."""

from __future__ import annotations

from functools import partial
from typing import Any

from penstock.engine.failpoints import failpoint
from penstock.engine.packaging.bundle import Bundle
from penstock.engine.plan.batch_plan import BatchPlan
from penstock.engine.worker.changelogs import LogChangelogs
from penstock.log.base import Log
from penstock.log.types import TopicPartition
from penstock.stores.bytes.store import OpenBytesStore
from penstock.stores.replica.global_replica import GlobalReplica
from penstock.task.global_state import GlobalState


class GlobalTables:
    """The stores of all global tables: read by tasks, fed before a batch, by one worker of a host.

    What a batch may read is held from `stores` to `release`.
    """

    def __init__(self, log: Log, bundle: Bundle) -> None:
        self._log = log
        self._bundle = bundle
        self._replica: GlobalReplica | None = None
        #: Which plan the stores were last brought to; None: nothing is held.
        self._held: tuple[int, int] | None = None
        self._stores: dict[str, Any] = {}

    def stores(self, plan: BatchPlan) -> dict[str, Any]:
        """The stores as the plan wants them."""
        if not self._bundle.graph.global_topics:
            return {}
        if self._held != (plan.epoch, plan.number):
            topics = {
                f"{topic}-{partition}": TopicPartition(topic, partition)
                for topic, partition in plan.global_positions
            }
            positions = {
                f"{topic}-{partition}": offset
                for (topic, partition), offset in plan.global_positions.items()
            }
            self._stores = self._opened().stores_at(
                positions, LogChangelogs(self._log, topics), plan.epoch, failpoint
            )
            self._held = (plan.epoch, plan.number)
        return self._stores

    def _opened(self) -> GlobalReplica:
        if self._replica is None:
            # Offsets of a topic that was made again mean something else.
            graph = self._bundle.graph
            topics = [self._log.topic(topic).id for topic in sorted(graph.global_topics)]
            self._replica = GlobalReplica(
                self._bundle.directory / "global",
                "/".join((self._log.id, *topics, graph.global_layout)),
                partial(_state, self._bundle),
            )
        return self._replica

    def release(self) -> None:
        """The batch has been computed here."""
        if self._replica is not None:
            self._replica.release()
        self._held = None
        self._stores = {}

    def let_go(self) -> None:
        """Close the files, until a batch asks for them."""
        self.release()
        if self._replica is not None:
            self._replica.close_files()

    def close(self) -> None:
        """Let go of everything."""
        if self._replica is not None:
            self._replica.close()
        self._replica = self._held = None
        self._stores = {}


def _state(bundle: Bundle, open_bytes: OpenBytesStore) -> GlobalState:
    return GlobalState(bundle.topology, bundle.config, open_bytes=open_bytes)
