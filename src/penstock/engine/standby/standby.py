"""`Standby`: what an instance runs while another one holds the lease."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from penstock.config import StreamsConfig
from penstock.engine.standby.update_listener import (
    StandbyMeter,
    StandbyUpdateListener,
    StandbyUpdateNotifier,
    SuspendReason,
)
from penstock.engine.standby.warmup import WarmCompute, WarmUp
from penstock.log.types import TopicPartition
from penstock.record import TaskId
from penstock.topology.topology import Topology

if TYPE_CHECKING:
    from penstock.engine.compute import Compute
    from penstock.engine.layout.execution_graph import ExecutionGraph
    from penstock.engine.standby.follower import Follower


class Standby:
    """A warm-up and a follower, each started at most once. Both only make failover quicker."""

    def __init__(self, metrics: StandbyMeter | None = None) -> None:
        self._metrics = metrics
        self._notifier = StandbyUpdateNotifier(StandbyUpdateListener(), metrics)
        self._warm_up: WarmUp | None = None
        self._follower: Follower | None = None
        self._starting = threading.Lock()

    def set_listener(self, listener: StandbyUpdateListener) -> None:
        """Replace the listener. Called before the instance starts."""
        self._notifier = StandbyUpdateNotifier(listener, self._metrics)

    def start_warm_up(self, warm_up: Callable[[], WarmCompute | None]) -> None:
        """Call `warm_up` in a separate thread, unless that has been done."""
        if self._warm_up is None:
            self._warm_up = WarmUp(warm_up)

    def start_follower(
        self, topology: Topology, config: StreamsConfig, is_paused: Callable[[], bool]
    ) -> None:
        """Keep replicas up to date on this host, unless that is done. Any thread may call it."""
        from penstock.engine.standby.follower import Follower  # noqa: PLC0415  (brings pyarrow)

        with self._starting:
            if self._follower is None:
                self._follower = Follower(topology, config, self._notifier, is_paused)

    @property
    def tasks(self) -> Mapping[TaskId, frozenset[TopicPartition]]:
        """The tasks that the follower keeps up to date -> the partitions that they read."""
        follower = self._follower
        return {} if follower is None else follower.tasks

    def check(self) -> None:
        """Raise the error that the warm-up has found, if it prevents the instance from running."""
        if self._warm_up is not None:
            self._warm_up.check()

    def take_compute(self, graph: ExecutionGraph, config: StreamsConfig) -> Compute | None:
        """Return what the warm-up has started, if it fits this graph and configuration."""
        warm_up, self._warm_up = self._warm_up, None
        return None if warm_up is None else warm_up.take(graph, config)

    def stop_follower(self, reason: SuspendReason) -> None:
        """Stop the follower, if there is one."""
        follower, self._follower = self._follower, None
        if follower is not None:
            follower.close(reason)

    def close(self) -> None:
        """Stop the warm-up and the follower, because the instance ends."""
        if self._warm_up is not None:
            self._warm_up.close()
        self.stop_follower(SuspendReason.MIGRATED)
