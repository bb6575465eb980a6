"""`ComputeProvider`: starts what computes the batches of an instance: Spark, or this process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.config import StreamsConfig

if TYPE_CHECKING:
    from penstock.engine.compute import Compute, ComputeFactory
    from penstock.engine.continuous.lane_starter import LaneStarter, OnConnection, OnEnded
    from penstock.engine.layout.execution_graph import ExecutionGraph
    from penstock.engine.spark import ClusterMonitor, SparkBackend
    from penstock.engine.spark.job import SparkCompute
    from penstock.log.base import Log
    from penstock.topology.topology import Topology

log = logging.getLogger(__name__)

#: The master that runs all tasks in this process, without Spark.
INLINE = "inline"
#: The setting for the number of tasks of a stage that run at the same time. The default is the
#: number of Spark's cores.
PARALLELISM = "penstock.parallelism"


class ComputeProvider:
    """Knows where the tasks of an instance run.

    Invariants:
    - One Spark backend is open at most. It stays open until `close`, or until its JVM has ended.
    - Any thread may open the backend: the stream thread, the warm-up, or a caller of `Streams`.
    """

    def __init__(
        self, *, spark: Any = None, master: str | None = None,
        factory: ComputeFactory | None = None,
    ) -> None:
        #: The user's `SparkSession`, if one was given.
        self.spark = spark
        self._master = master
        self._factory = factory
        #: Called when the slots of the cluster have changed, and when Spark is lost.
        self.on_change: Callable[[], object] = lambda: None
        self._backend: SparkBackend | None = None
        self._monitor: ClusterMonitor | None = None
        self._opening = threading.Lock()
        #: The thread that opens the backend while the instance starts.
        self._early: threading.Thread | None = None
        #: Why it could not. Guarded by `_opening`.
        self._early_error: Exception | None = None
        self._is_closing = False

    @property
    def uses_spark(self) -> bool:
        """Whether tasks run in Spark."""
        return self._factory is None and self._master != INLINE

    @property
    def has_local_workers(self) -> bool:
        """Whether the tasks run on this host. False if it is not known, because Spark is closed."""
        if not self.uses_spark:
            return True
        backend = self._backend
        return backend is not None and backend.is_local

    def parallelism(self, config: StreamsConfig) -> int:
        """Return how many tasks of a stage run at the same time."""
        backend = self._backend
        if backend is not None:
            return backend.parallelism(config)
        return int(config.extra.get(PARALLELISM, config.num_stream_threads))

    def start(
        self, topology: Topology, config: StreamsConfig, graph: ExecutionGraph, source: Log
    ) -> Compute:
        """Start a `Compute` for an application."""
        if self._factory is not None:
            return self._factory(topology, config, graph, source)
        if self._master == INLINE:
            from penstock.engine.inline import start_inline  # noqa: PLC0415  (brings pyarrow)

            return start_inline(topology, config, graph, source)
        return self.start_spark(topology, config, graph, source)

    def start_lanes(
        self, topology: Topology, config: StreamsConfig, graph: ExecutionGraph, source: Log,
        on_connection: OnConnection, on_ended: OnEnded,
    ) -> LaneStarter:
        """Return what starts the lanes of an application in continuous mode."""
        if self._master == INLINE:
            # These bring pyarrow.
            from penstock.engine.continuous.lane_starter import InlineLanes  # noqa: PLC0415
            from penstock.engine.packaging.bundle import Bundle  # noqa: PLC0415
            from penstock.engine.packaging.pack import pack_bundle  # noqa: PLC0415

            bundle = Bundle(topology, config, graph, source.address, 1)
            return InlineLanes(pack_bundle(bundle), on_connection, on_ended)
        from penstock.engine.spark import lanes_on  # noqa: PLC0415  (brings Spark)

        backend = self.open_backend(config)
        return lanes_on(backend, topology, config, graph, source, on_connection, on_ended)

    def start_spark(
        self, topology: Topology, config: StreamsConfig, graph: ExecutionGraph, source: Log
    ) -> SparkCompute:
        """Start a `Compute` in the Spark backend."""
        from penstock.engine.spark import compute_on  # noqa: PLC0415  (brings Spark)

        backend = self.open_backend(config)
        compute = compute_on(backend, topology, config, graph, source)
        if backend.is_elastic:
            self._monitor_cluster(backend, config, compute.parallelism)
        return compute

    def _monitor_cluster(
        self, backend: SparkBackend, config: StreamsConfig, parallelism: int
    ) -> None:
        from penstock.engine.spark import ClusterMonitor  # noqa: PLC0415  (brings Spark)

        def count_lanes() -> int:
            return backend.count_slots() and backend.parallelism(config)

        if self._monitor is not None:
            self._monitor.close()
        self._monitor = ClusterMonitor(count_lanes, parallelism, self.on_change)

    def open_backend(self, config: StreamsConfig) -> SparkBackend:
        """Return the Spark backend. Open it first if there is none, or if its JVM has ended.

        Raise the error of `open_early`, if there was one.
        """
        with self._opening:
            error, self._early_error = self._early_error, None
            if error is not None:
                raise error
            return self._open_backend(config)

    def _open_backend(self, config: StreamsConfig) -> SparkBackend:
        from penstock.engine.spark import open_backend  # noqa: PLC0415  (brings Spark)

        if self._backend is not None and self._backend.is_lost:
            self._backend.close()
            self._backend = None
        if self._backend is None:
            self._backend = open_backend(config, spark=self.spark, master=self._master)
        return self._backend

    def open_early(self, config: StreamsConfig) -> None:
        """Start Spark and its Python workers in a separate thread, if tasks run in Spark.

        Starting them takes longer than everything else that an instance does before its first
        batch. `open_backend` waits for the backend, or raises why it cannot be opened.
        """
        if self.uses_spark and self._early is None:
            self._early = threading.Thread(
                target=self._open_early, args=(config,), name="penstock-spark-start", daemon=True
            )
            self._early.start()

    def _open_early(self, config: StreamsConfig) -> None:
        with self._opening:
            try:
                backend = self._open_backend(config)
            except Exception as error:
                self._early_error = error
                return
        try:
            if not self._is_closing:
                backend.warm_up_workers()
        except Exception:
            # The first batch starts them, and reports why that fails.
            log.debug("The workers were not warmed up.", exc_info=True)

    def close(self) -> None:
        """Close the Spark backend."""
        self._is_closing = True
        if self._early is not None:
            self._early.join()
        if self._monitor is not None:
            self._monitor.close()
        if self._backend is not None:
            self._backend.close()
