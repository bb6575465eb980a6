"""`Instance`: the parts of one running application instance, and how they work together.

`Streams` is the public face of an instance, and `StreamThread` drives it. When the thread acquires
the lease, the instance opens an engine. When another instance holds the lease, it warms up Spark
and keeps replicas up to date. When a batch is committed, it passes the report to the observers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.config import StreamsConfig
from penstock.engine.compute_provider import PARALLELISM, ComputeProvider
from penstock.engine.lifecycle import LifeCycle
from penstock.engine.observe.batch_observers import BatchObservers
from penstock.engine.observe.restore import global_restore_targets, restore_targets
from penstock.engine.standby.standby import Standby
from penstock.engine.standby.update_listener import SuspendReason
from penstock.engine.standby.warmup import WarmCompute
from penstock.engine.stream_thread import StreamThread, ThreadCallbacks
from penstock.errors import StreamsException
from penstock.log.base import Lease, Log
from penstock.topology.topology import Topology

if TYPE_CHECKING:
    from penstock.engine.batch_report import BatchReport
    from penstock.engine.compute import Compute
    from penstock.engine.continuous.engine import ContinuousEngine
    from penstock.engine.instances import Heartbeats
    from penstock.engine.layout.execution_graph import ExecutionGraph
    from penstock.engine.loop import Engine

log = logging.getLogger(__name__)


class Instance:
    """Opens engines and reacts to the events of the stream thread.

    Invariants:
    - An engine is open only while no follower writes to the replicas of this host.
    - `config` changes only in `change_parallelism`. The next engine uses the new one.
    """

    def __init__(
        self, topology: Topology, config: StreamsConfig, lifecycle: LifeCycle, *,
        compute: ComputeProvider, observers: BatchObservers,
        on_standby: Callable[[str], object],
    ) -> None:
        self.topology = topology
        self.config = config
        self.lifecycle = lifecycle
        self.compute = compute
        self.observers = observers
        self.standby = Standby(self.observers.metrics.standby)
        #: Written by `Streams`, read by the follower.
        self.is_paused = False
        #: The stream thread and its log. Set when the instance starts.
        self.thread: StreamThread | None = None
        self.log: Log | None = None
        self.heartbeats: Heartbeats | None = None
        #: Called when the instance has ended.
        self.on_close: list[Callable[[], object]] = []
        #: How many batches were committed. Written by the stream thread.
        self.commits = 0
        #: Whether a standby serves queries, so that it follows the changelogs. Only set to True.
        self.serves_queries = bool(config.application_server)
        self.callbacks = ThreadCallbacks(
            on_batch=self._batch_committed, on_failure=observers.batch_failed,
            on_standby=self._become_standby, before_attempt=self._before_attempt,
            on_end=self._close,
        )
        self._on_standby = on_standby
        compute.on_change = self._reopen_engine

    @property
    def parallelism(self) -> int:
        """How many tasks of a stage run at the same time."""
        return self.compute.parallelism(self.config)

    def change_parallelism(self, change: int) -> int | None:
        """Add or remove a thread. Return its number, or None if only one is left to remove."""
        if self.compute.uses_spark:
            self.compute.open_backend(self.config)
        before = self.parallelism
        after = before + change
        if after < 1:
            return None
        self.config = self.config.with_(
            num_stream_threads=after, extra={**self.config.extra, PARALLELISM: str(after)}
        )
        return max(before, after)

    # ---- with the lease ----------------------------------------------------------------------

    def open_engine(self, source: Log, lease: Lease) -> Engine | ContinuousEngine:
        """Open the engine that runs the application while this instance holds the lease."""
        self.observers.suspend_restores()
        self.standby.stop_follower(SuspendReason.PROMOTED)
        self.observers.open_files(self.topology)
        engine = self._create_engine(source, lease)
        # The warm-up may have started a follower until the engine took its result.
        self.standby.stop_follower(SuspendReason.PROMOTED)
        try:
            if self.compute.has_local_workers:
                targets = global_restore_targets(source, engine.graph, self.topology)
                # Lanes report the restores of their tasks themselves.
                if not self.config.is_continuous:
                    targets |= restore_targets(source, engine.graph, engine.planner.offsets)
                self.observers.monitor_restores(
                    Path(self.config.state_dir) / self.config.application_id, targets
                )
        except BaseException:
            engine.close()
            raise
        return engine

    def _create_engine(self, source: Log, lease: Lease) -> Engine | ContinuousEngine:
        # These bring pyarrow.
        from penstock.engine.continuous.engine import ContinuousEngine  # noqa: PLC0415
        from penstock.engine.loop import Engine  # noqa: PLC0415

        if self.config.is_continuous:
            return ContinuousEngine(
                self.topology, self.config, source, lease, self.compute.start_lanes,
                self.observers,
            )
        return Engine(self.topology, self.config, source, lease, self._start_compute)

    def _start_compute(
        self, topology: Topology, config: StreamsConfig, graph: ExecutionGraph, source: Log
    ) -> Compute:
        warm = self.standby.take_compute(graph, config)
        return warm or self.compute.start(topology, config, graph, source)

    def _reopen_engine(self) -> None:
        """Distribute the tasks again, or fail if Spark is lost. Any thread may call it."""
        if self.thread is not None:
            self.thread.reopen()

    def start_heartbeats(self) -> None:
        """Announce this instance to the others, if they can reach it."""
        if self.config.application_server:
            # This brings pyarrow.
            from penstock.engine.instances import Heartbeats  # noqa: PLC0415

            self.heartbeats = Heartbeats(self.config, self._is_active)

    def _is_active(self) -> bool:
        thread = self.thread
        return thread is not None and thread.engine is not None and thread.has_lease

    def _batch_committed(self, report: BatchReport) -> None:
        self.commits += 1
        self.observers.batch_committed(report)

    # ---- without the lease -------------------------------------------------------------------

    def _become_standby(self, holder: str) -> None:
        self._on_standby(holder)
        if self.compute.uses_spark:
            self.standby.start_warm_up(self._warm_up)
        else:
            self._start_follower()

    def _before_attempt(self) -> None:
        """Check the standby before each attempt to acquire the lease."""
        self.standby.check()
        if self.serves_queries and self.thread is not None and self.thread.waits_for is not None:
            # The server may have started after this instance became a standby.
            self._start_follower()

    def _start_follower(self) -> None:
        if self.config.num_standby_replicas or self.serves_queries:
            self.standby.start_follower(self.topology, self.config, lambda: self.is_paused)

    def _warm_up(self) -> WarmCompute | None:
        """Start Spark and its workers. Runs in the warm-up thread."""
        from penstock.engine.layout.execution_graph import (  # noqa: PLC0415  (brings pyarrow)
            build_graph_for_log,
        )

        assert self.log is not None
        config = self.config
        if self.compute.open_backend(config).is_local:
            self._start_follower()
        if config.is_continuous:
            return None
        try:
            graph = build_graph_for_log(self.log, self.topology, config)
        except StreamsException as error:
            log.debug("It is too early to warm up workers: %s", error)
            return None
        compute = self.compute.start_spark(self.topology, config, graph, self.log)
        compute.warm_up()
        return WarmCompute(graph, config, compute)

    # ---- at the end --------------------------------------------------------------------------

    def _close(self) -> None:
        for close in self.on_close:
            close()
        if self.heartbeats is not None:
            self.heartbeats.close()
        self.observers.suspend_restores()
        self.standby.close()
        self.compute.close()
        self.observers.close()
