"""`Streams`: a topology that runs.

    with Streams(topology, StreamsConfig(application_id="orders", log="orders.db")) as streams:
        streams.run_until_caught_up()

What an application knows is in its log. An instance may be killed at any time; the next one, here
or elsewhere, goes on from the last batch that was committed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from penstock.config import StreamsConfig
from penstock.engine.exception_handler import UncaughtExceptionHandler
from penstock.engine.lease import lease_timeout_ms
from penstock.engine.lifecycle import LifeCycle, RefusedTransition, State, StateListener
from penstock.engine.observe.metadata import (
    TaskMetadata,
    ThreadMetadata,
    describe_tasks,
    format_tasks,
)
from penstock.engine.observe.metrics import MetricName, Metrics, Value
from penstock.engine.observe.printer import Printer, write_to_stdout
from penstock.engine.observe.restore import (
    RestoreMonitor,
    RestoreNotifier,
    StateRestoreListener,
    restore_targets,
)
from penstock.engine.standby import update_listener
from penstock.engine.standby.standby import Standby
from penstock.engine.standby.update_listener import StandbyUpdateListener, SuspendReason
from penstock.engine.standby.warmup import WarmCompute
from penstock.engine.stream_thread import StreamThread, ThreadCallbacks, thread_name
from penstock.errors import ConfigException, StreamsException
from penstock.log import open_log
from penstock.log.base import Lease, Log
from penstock.stores.replica.generations import clean_up
from penstock.topology.topology import Topology

if TYPE_CHECKING:
    from penstock.engine.compute import Compute, ComputeFactory
    from penstock.engine.layout.execution_graph import ExecutionGraph
    from penstock.engine.loop import BatchReport, Engine
    from penstock.engine.spark import SparkBackend, SparkCompute

log = logging.getLogger(__name__)

#: The master that is no Spark: everything runs in this process.
INLINE = "inline"
#: The setting that says how many tasks of a stage run at the same time; without it, Spark's cores.
PARALLELISM = "penstock.parallelism"


class Streams:
    """One instance of an application. Others with the same application id stand by for it.

    `spark`: a `SparkSession` to work in; without one, penstock makes its own on `master` (default:
    this machine, with `num_stream_threads` cores). The master "inline" is this process, without
    Spark: for tests, and to try things out. `compute` takes the place of both.

    `on_batch` is called after every batch, `on_standby` when another instance is found to run the
    application, `out` with the lines of print steps.
    """

    def __init__(
        self, topology: Topology, config: StreamsConfig | Mapping[str, Any], *,
        spark: Any = None, master: str | None = None,
        compute: ComputeFactory | None = None,
        on_batch: Callable[[BatchReport], object] | None = None,
        on_standby: Callable[[str], object] = lambda holder: None,
        out: Callable[[list[str]], object] = write_to_stdout,
    ) -> None:
        if not isinstance(topology, Topology):
            raise TypeError(
                f"Streams takes a Topology, not {type(topology).__name__}. "
                "StreamsBuilder.build() makes one."
            )
        if isinstance(config, Mapping):
            config = StreamsConfig.from_properties(config)
        if config.log is None:
            raise ConfigException(
                f"Application '{config.application_id}' has no log. Give log= the path of a file, "
                "or kafka://host:port."
            )
        lease_timeout_ms(config)
        self.topology = topology
        self.config = config
        self._spark = spark
        self._master = master
        self._compute = compute
        self._on_batch = on_batch
        self._on_standby = on_standby
        self._life = LifeCycle(config.application_id)
        self._standby = Standby()
        self._hooks = ThreadCallbacks(
            on_batch=self._batch_done, on_standby=self._stand_by, on_look=self._standby.check,
            on_end=self._end,
        )
        self._place: SparkBackend | None = None
        self._printer = Printer(out)
        self._restores = RestoreNotifier(StateRestoreListener())
        self._watch: RestoreMonitor | None = None
        self._thread: StreamThread | None = None
        self._source: Log | None = None
        self._paused = False
        self._metrics = Metrics(config, thread_name(config))
        # Two threads may start or end the application at once; one of them does it. The state
        # listener, which is called meanwhile, may end it, too.
        self._starting = threading.RLock()
        self._opening = threading.Lock()

    def set_state_listener(self, listener: StateListener | None) -> None:
        """Called with the new state and the old one, at every change."""
        self._only_before_start("set_state_listener")
        self._life.listener = listener

    def set_uncaught_exception_handler(self, handler: UncaughtExceptionHandler) -> None:
        """Asked when a batch has failed; without one the instance ends in ERROR."""
        self._only_before_start("set_uncaught_exception_handler")
        if not callable(handler):
            raise TypeError(
                "An uncaught exception handler is a function of the exception, not "
                f"{handler!r}."
            )
        self._hooks.uncaught = handler

    def set_global_state_restore_listener(self, listener: StateRestoreListener) -> None:
        """Hears of every store that is filled from its changelog."""
        self._only_before_start("set_global_state_restore_listener")
        self._restores = RestoreNotifier(listener)

    def set_standby_update_listener(self, listener: StandbyUpdateListener) -> None:
        """Hears of every store that is kept up to date while this instance stands by, which it
        does for `num_standby_replicas` of at least 1."""
        self._only_before_start("set_standby_update_listener")
        self._standby.updates = update_listener.StandbyUpdateNotifier(listener)

    def clean_up(self) -> None:
        """Remove the rows that this machine keeps of the application; they can be had again.

        Nothing of the log is touched. Before the start, or after the end.
        """
        if not (self.state is State.CREATED or self.state.has_ended):
            raise RefusedTransition(
                f"Application '{self.config.application_id}' is {self.state.value}: its state "
                "cannot be removed. Call clean_up() before start() or after close()."
            )
        clean_up(Path(self.config.state_dir), self.config.application_id)

    def _only_before_start(self, what: str) -> None:
        if self.state is not State.CREATED:
            raise RefusedTransition(
                f"{what}() must be called before start(). Application "
                f"'{self.config.application_id}' is {self.state.value}.\n{self._life.story()}"
            )

    def start(self) -> None:
        """Begin to run, or to stand by; returns at once. An instance starts once."""
        with self._starting:
            if self.state is not State.CREATED:
                raise RefusedTransition(
                    f"Application '{self.config.application_id}' cannot be started: it is "
                    f"{self.state.value}. Make a new Streams to start again.\n{self._life.story()}"
                )
            assert self.config.log is not None
            connection = self.config.connection_settings()
            self._source = source = open_log(self.config.log, connection=connection)
            self._thread = thread = StreamThread(
                self.config, source, self._life, self._open_engine, self._hooks
            )
            if self._paused:
                thread.pause()
            self._life.to(State.REBALANCING)
            thread.start()

    def close(
        self, timeout: timedelta | float | None = None, *, leave_group: bool = True
    ) -> bool:
        """Finish the running batch and end; answers whether it has ended within the timeout.

        Without a timeout it waits as long as it takes; 0 does not wait at all. When a timeout has
        passed, the running batch is given up, as if it had never begun (its Spark job is
        cancelled), and the instance ends soon after. With `leave_group` false another instance
        takes over only after `session.timeout.ms`, as if this one had died: for a restart that is
        quicker than that.
        """
        with self._starting:
            if self.state is State.CREATED:
                self._life.to(State.PENDING_SHUTDOWN)
                self._life.to(State.NOT_RUNNING)
            thread = self._thread
        if thread is None:
            return True
        self._life.try_to(State.PENDING_SHUTDOWN)
        thread.end(leave_group=leave_group)
        seconds = _seconds(timeout)
        if thread.join(seconds):
            return True
        if seconds and not thread.is_this_thread:
            thread.cancel()
        return False

    def pause(self) -> None:
        """Run no more batches until `resume`; the instance keeps its place."""
        self._paused = True
        if self._thread is not None:
            self._thread.pause()

    def resume(self) -> None:
        """Go on after `pause`."""
        self._paused = False
        if self._thread is not None:
            self._thread.resume()

    @property
    def is_paused(self) -> bool:
        """Whether `pause` was called, and `resume` not since."""
        return self._paused

    def add_stream_thread(self) -> str | None:
        """Let one more task of a stage run at the same time, from the next batch on.

        Spark still has the cores that it was started with. Answers the name of the thread, None if
        the application does not run.
        """
        return self._change_threads(+1)

    def remove_stream_thread(self) -> str | None:
        """Let one task less run at the same time; one always remains.

        Answers the name of the thread that is no more, None if there is none to remove.
        """
        return self._change_threads(-1)

    def _change_threads(self, change: int) -> str | None:
        thread = self._thread
        if thread is None or not self.state.is_running_or_rebalancing:
            return None
        if self._compute is None and self._master != INLINE:
            self._open_place()
        threads = self.stream_threads
        if threads + change < 1:
            return None
        self.config = self.config.with_(
            num_stream_threads=threads + change,
            extra={**self.config.extra, PARALLELISM: str(threads + change)},
        )
        thread.reopen()
        return thread_name(self.config, max(threads, threads + change))

    @property
    def stream_threads(self) -> int:
        """How many tasks of a stage may run at the same time."""
        place = self._place
        if place is not None:
            return place.parallelism(self.config)
        return int(self.config.extra.get(PARALLELISM, self.config.num_stream_threads))

    def run_until_caught_up(self, timeout: timedelta | float | None = None) -> None:
        """Wait until all that is in the source topics now has been processed; starts if need be.

        Raises what ended the application, if it failed; `TimeoutError` if the time has passed,
        also because another instance runs the application.
        """
        if self.state is State.CREATED:
            self.start()
        thread = self._thread
        if thread is None:
            raise RefusedTransition(f"Nothing runs any more.\n{self._life.story()}")
        if not self.is_caught_up(timeout):
            if self.state.has_ended:
                raise RefusedTransition(
                    f"Application '{self.config.application_id}' was closed before it had caught "
                    f"up.\n{self._life.story()}"
                )
            instead = f" {thread.waits_for} runs it." if thread.waits_for else ""
            raise TimeoutError(
                f"Application '{self.config.application_id}' has not caught up in time.{instead}"
            )

    def is_caught_up(self, timeout: timedelta | float | None) -> bool:
        """Whether all that is in the source topics now has been processed, or is within the time.

        Raises what ended the application, if it failed.
        """
        thread = self._thread
        answer = thread is not None and thread.wait_until_caught_up(_seconds(timeout))
        self._raise_failure()
        return answer

    def wait(self, timeout: timedelta | float | None = None) -> bool:
        """Wait until the application has ended; raises what ended it, if it failed.

        False if the time has passed.
        """
        ended = self._life.wait_until(lambda state: state.has_ended, _seconds(timeout))
        if ended:
            self._raise_failure()
        return ended

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
        if error is None:
            self._raise_failure()

    def _raise_failure(self) -> None:
        failure = self.failure
        if failure is not None:
            raise failure

    @property
    def state(self) -> State:
        """Where the instance is in its life."""
        return self._life.state

    @property
    def failure(self) -> BaseException | None:
        """What ended the application, if it did not end well."""
        return None if self._thread is None else self._thread.failure

    @property
    def waits_for(self) -> str | None:
        """The instance that runs the application while this one stands by; None otherwise."""
        return None if self._thread is None else self._thread.waits_for

    def metrics(self) -> dict[MetricName, Value]:
        """What was counted and measured so far, under Kafka's names."""
        thread = self._thread
        return self._metrics.snapshot({
            "state": self.state.value,
            "alive-stream-threads":
                self.stream_threads if thread is not None and thread.is_alive else 0,
            "failed-stream-threads": 0 if thread is None else thread.replaced,
            "topology-description": str(self.topology.describe()),
        })

    def lag(self) -> int | None:
        """How many records of source topics are still to be read; None while standing by."""
        engine = self._engine
        return None if engine is None else sum(engine.planner.lag().values())

    def metadata_for_local_threads(self) -> frozenset[ThreadMetadata]:
        """The thread of this instance, and the tasks that it runs."""
        thread, engine = self._thread, self._engine
        if thread is None:
            return frozenset()
        tasks = () if engine is None else describe_tasks(engine.graph, engine.planner)
        state = "RUNNING" if engine is not None else "PARTITIONS_ASSIGNED"
        followed = self._standby.tasks
        return frozenset((ThreadMetadata(
            thread.name, state if thread.is_alive else "DEAD", frozenset(tasks),
            frozenset(TaskMetadata(task_id, reads) for task_id, reads in followed.items()),
        ),))

    def __str__(self) -> str:
        """The application with its topology, its tasks, and where they stand."""
        engine = self._engine
        head = f"Application '{self.config.application_id}' on {self.config.log}: "
        head += self.state.value + (" (paused)" if self.is_paused else "")
        if self.waits_for:
            head += f", stands by for {self.waits_for}"
        parts = [head, str(self.topology.describe()).rstrip("\n")]
        if engine is not None:
            parts += ["Tasks:", format_tasks(engine.graph, engine.planner)]
        return "\n".join(parts)

    @property
    def _engine(self) -> Engine | None:
        return None if self._thread is None else cast("Engine | None", self._thread.engine)

    def _open_engine(self, source: Log, lease: Lease) -> Engine:
        from penstock.engine.loop import Engine  # noqa: PLC0415  (brings pyarrow)

        self._stop_watch()
        self._standby.stop_following(SuspendReason.PROMOTED)
        self._printer.open_files(self.topology)
        engine = Engine(
            self.topology, self.config, source, lease, self._compute or self._start_compute
        )
        # Nobody gets ready any more, and so nobody begins to follow.
        self._standby.stop_following(SuspendReason.PROMOTED)
        try:
            if self._place is not None and self._place.is_local:
                self._watch = RestoreMonitor(
                    Path(self.config.state_dir) / self.config.application_id, self._restores,
                    restore_targets(source, engine.graph, engine.planner.offsets),
                )
        except BaseException:
            engine.close()
            raise
        return engine

    def _stop_watch(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()
        self._restores.given_up()

    def _start_compute(
        self, topology: Topology, config: StreamsConfig, graph: ExecutionGraph, source: Log
    ) -> Compute:
        if self._master == INLINE:
            from penstock.engine.inline import start_inline  # noqa: PLC0415  (brings pyarrow)

            return start_inline(topology, config, graph, source)
        ready = self._standby.take(graph, config)
        return ready or self._compute_in_spark(topology, config, graph, source)

    def _compute_in_spark(
        self, topology: Topology, config: StreamsConfig, graph: ExecutionGraph, source: Log
    ) -> SparkCompute:
        from penstock.engine.spark import compute_on  # noqa: PLC0415  (brings Spark)

        return compute_on(self._open_place(), topology, config, graph, source)

    def _open_place(self) -> SparkBackend:
        """Where jobs run: opened once, kept for the life of the instance, or of Spark's JVM."""
        from penstock.engine.spark import open_backend  # noqa: PLC0415  (brings Spark)

        with self._opening:
            if self._place is not None and self._place.is_lost:
                self._place.close()
                self._place = None
            if self._place is None:
                self._place = open_backend(self.config, spark=self._spark, master=self._master)
            return self._place

    def _stand_by(self, holder: str) -> None:
        self._on_standby(holder)
        if self._compute is not None or self._master == INLINE:
            self._follow()
        else:
            self._standby.get_ready(self._get_ready)

    def _follow(self) -> None:
        self._standby.follow(self.topology, self.config, lambda: self._paused)

    def _get_ready(self) -> WarmCompute | None:
        """Called in another thread than everything else here."""
        from penstock.engine.layout.execution_graph import build_graph_for_log  # noqa: PLC0415  (brings pyarrow)

        assert self._source is not None
        if self._open_place().is_local:
            self._follow()
        try:
            graph = build_graph_for_log(self._source, self.topology, self.config)
        except StreamsException as early:
            log.debug("Workers cannot be made ready yet: %s", early)
            return None
        config = self.config
        compute = self._compute_in_spark(self.topology, config, graph, self._source)
        compute.warm_up()
        return WarmCompute(graph, config, compute)

    def _end(self) -> None:
        self._stop_watch()
        self._standby.close()
        if self._place is not None:
            self._place.close()
        self._printer.close()

    def _batch_done(self, report: BatchReport) -> None:
        self._metrics.record(report)
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()
        self._restores.done(report.restored)
        self._printer.show(report.printed)
        if self._on_batch is not None:
            try:
                self._on_batch(report)
            except Exception:
                log.exception("on_batch failed; the application goes on.")


def _seconds(timeout: timedelta | float | None) -> float | None:
    if isinstance(timeout, timedelta):
        return timeout.total_seconds()
    return timeout
