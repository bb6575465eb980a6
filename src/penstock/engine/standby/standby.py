"""What an instance does while another one runs the application: it gets ready, and keeps rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from penstock.config import StreamsConfig
from penstock.engine.standby.update_listener import (
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
    """Nothing here is needed to take over; it makes it quicker."""

    def __init__(self) -> None:
        #: Who hears of rows; set before the start.
        self.updates = StandbyUpdateNotifier(StandbyUpdateListener())
        self._readiness: WarmUp | None = None
        self._follower: Follower | None = None

    def get_ready(self, how: Callable[[], WarmCompute | None]) -> None:
        """Have something that computes, unless it is there or on its way; `how` is called in a
        thread of its own."""
        if self._readiness is None:
            self._readiness = WarmUp(how)

    def follow(
        self, topology: Topology, config: StreamsConfig, is_paused: Callable[[], bool]
    ) -> None:
        """Keep rows on this host, if that is wanted."""
        from penstock.engine.standby.follower import Follower  # noqa: PLC0415  (brings pyarrow)

        if config.num_standby_replicas and self._follower is None:
            self._follower = Follower(topology, config, self.updates, is_paused)

    @property
    def tasks(self) -> Mapping[TaskId, frozenset[TopicPartition]]:
        """The tasks of which rows are kept -> what they read from the log."""
        follower = self._follower
        return {} if follower is None else follower.tasks

    def check(self) -> None:
        """Raise what would keep the instance from ever running."""
        if self._readiness is not None:
            self._readiness.check()

    def take(self, graph: ExecutionGraph, config: StreamsConfig) -> Compute | None:
        """The instance runs the application: what is ready to compute, if it was made for this."""
        readiness, self._readiness = self._readiness, None
        return None if readiness is None else readiness.take(graph, config)

    def stop_following(self, reason: SuspendReason) -> None:
        """Keep rows no longer."""
        follower, self._follower = self._follower, None
        if follower is not None:
            follower.close(reason)

    def close(self) -> None:
        """The instance ends."""
        if self._readiness is not None:
            self._readiness.close()
        self.stop_following(SuspendReason.MIGRATED)
