"""`Streams`: runs a topology.

    with Streams(topology, StreamsConfig(application_id="orders", log="orders.db")) as streams:
        streams.run_until_caught_up()

The log holds the whole state of an application. An instance may be killed at any time. The next
one, on this host or another, resumes from the last committed batch.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from penstock.config import StreamsConfig
from penstock.engine.compute_provider import ComputeProvider
from penstock.engine.exception_handler import UncaughtExceptionHandler
from penstock.engine.instance import Instance
from penstock.engine.layout.log_warnings import log_warnings
from penstock.engine.lease import lease_timeout_ms
from penstock.engine.lifecycle import IllegalTransition, LifeCycle, State, StateListener
from penstock.engine.observe.batch_observers import BatchObservers
from penstock.engine.observe.metadata import ThreadMetadata
from penstock.engine.observe.metrics import OTLP_ENDPOINT, Metrics, Value
from penstock.engine.observe.restore import StateRestoreListener
from penstock.engine.observe.status import InstanceStatus
from penstock.engine.standby.update_listener import StandbyUpdateListener
from penstock.engine.stdout import write_to_stdout
from penstock.engine.stream_thread import StreamThread, thread_name
from penstock.errors import ConfigException
from penstock.log import open_log
from penstock.metrics import MetricName
from penstock.queries.methods import MetadataMethods
from penstock.queries.service import StoreQueries
from penstock.stores.replica.generations import clean_up
from penstock.topology.build_settings import check_build_settings
from penstock.topology.serde_check import check_serdes
from penstock.topology.topology import Topology

if TYPE_CHECKING:
    from penstock.engine.batch_report import BatchReport
    from penstock.engine.compute import ComputeFactory
    from penstock.queries.instance_run import InstanceQueries
    from penstock.queries.metadata_service import InstanceMetadata

log = logging.getLogger(__name__)


class Streams(MetadataMethods):
    """One instance of an application. Other instances with the same application id are standbys.

    It is also a context manager, which starts and closes it.

    Args:
        topology: The topology to run.
        config: A `StreamsConfig`, or settings under Kafka's names.
        spark: The `SparkSession` to use. Without it, penstock starts Spark on `master`.
        master: Spark's master; the default is this machine, with `num_stream_threads` cores.
            "inline" runs everything in this process, without Spark or Java.
        compute: Runs the batches instead of Spark; not in continuous mode.
        on_batch: Called with the report of every batch.
        on_standby: Called with the name of the instance that runs the application, if this one is
            a standby.
        out: Called with the lines of print operators.

    Raises:
        ConfigException: A setting is missing or invalid.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from penstock import StreamsBuilder
        >>> from penstock.clients import AdminClient, NewTopic
        >>> builder = StreamsBuilder()
        >>> builder.stream("words", key=str, value=str).map_values(len).to("lengths")
        >>> with TemporaryDirectory() as directory:
        ...     log = f"{directory}/words.db"
        ...     config = StreamsConfig(application_id="words", log=log, state_dir=directory)
        ...     with AdminClient(log=log) as admin:
        ...         topics = admin.create_topics([NewTopic("words"), NewTopic("lengths")])
        ...         _ = [created.result() for created in topics.values()]
        ...     with Streams(builder.build(), config, master="inline") as streams:
        ...         streams.run_until_caught_up(60)
        ...         streams.state.value
        'RUNNING'

    Kafka: KafkaStreams
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
                "Create one with StreamsBuilder.build()."
            )
        if isinstance(config, Mapping):
            config = StreamsConfig.from_properties(config)
        if config.log is None:
            raise ConfigException(
                f"Application '{config.application_id}' has no log. Set log= to the path of a "
                "file, or to kafka://host:port."
            )
        if compute is not None:
            if config.execution == "continuous":
                raise ConfigException(
                    "compute= runs batches, and execution is 'continuous'. Use execution='batch'."
                )
            config = config.with_(execution="batch")
        lease_timeout_ms(config)
        check_build_settings(topology, config)
        check_serdes(topology, config)
        self.topology = topology
        self._lifecycle = LifeCycle(config.application_id)
        self._instance = Instance(
            topology, config, self._lifecycle,
            compute=ComputeProvider(spark=spark, master=master, factory=compute),
            observers=BatchObservers(Metrics(config, thread_name(config)), out, on_batch),
            on_standby=on_standby,
        )
        self._status = InstanceStatus(self._instance)
        self._queries: InstanceQueries | None = None
        # Only one of several threads starts or closes the instance. Reentrant, because the state
        # listener is called with the lock held and may close the instance.
        self._starting = threading.RLock()

    @property
    def config(self) -> StreamsConfig:
        """The configuration. `add_stream_thread` and `remove_stream_thread` change it."""
        return self._instance.config

    # ---- before the start --------------------------------------------------------------------

    def set_state_listener(self, listener: StateListener | None) -> None:
        """Set a function that is called with the new state and the old one at every change.

        Args:
            listener: A function (new state, old state); None for none.

        Kafka: KafkaStreams#setStateListener
        """
        self._check_not_started("set_state_listener")
        self._lifecycle.listener = listener

    def set_uncaught_exception_handler(self, handler: UncaughtExceptionHandler) -> None:
        """Set the handler of failed batches. Without one, a failure ends the instance in ERROR.

        Args:
            handler: A function of the exception that returns a `StreamThreadExceptionResponse`.

        Kafka: KafkaStreams#setUncaughtExceptionHandler
        """
        self._check_not_started("set_uncaught_exception_handler")
        if not callable(handler):
            raise TypeError(
                "An uncaught exception handler is a function of the exception, not "
                f"{handler!r}."
            )
        self._instance.callbacks.exception_handler = handler

    def set_global_state_restore_listener(self, listener: StateRestoreListener) -> None:
        """Set the listener for stores that are restored from their changelogs.

        Args:
            listener: Its methods are called at the start, for the progress and at the end.

        Kafka: KafkaStreams#setGlobalStateRestoreListener
        """
        self._check_not_started("set_global_state_restore_listener")
        self._instance.observers.set_restore_listener(listener)

    def set_standby_update_listener(self, listener: StandbyUpdateListener) -> None:
        """Set the listener for stores that this instance updates while it is a standby.

        A standby updates stores if `num_standby_replicas` is at least 1, or if it serves queries.

        Args:
            listener: Its methods are called at the start, for the progress and at the end.

        Kafka: KafkaStreams#setStandbyUpdateListener
        """
        self._check_not_started("set_standby_update_listener")
        self._instance.standby.set_listener(listener)

    def clean_up(self) -> None:
        """Delete the application's local state on this machine. It can be restored from the log.

        Call it before `start` or after `close`.

        Kafka: KafkaStreams#cleanUp
        """
        if not (self.state is State.CREATED or self.state.has_ended):
            raise IllegalTransition(
                f"Application '{self.config.application_id}' is {self.state.value}: its local "
                "state cannot be deleted. Call clean_up() before start() or after close()."
            )
        clean_up(Path(self.config.state_dir), self.config.application_id)

    def _check_not_started(self, method: str) -> None:
        if self.state is not State.CREATED:
            raise IllegalTransition(
                f"{method}() must be called before start(). Application "
                f"'{self.config.application_id}' is {self.state.value}.\n"
                f"{self._lifecycle.history()}"
            )

    # ---- life cycle --------------------------------------------------------------------------

    def start(self) -> None:
        """Start to run the application, or to wait as a standby. Returns at once.

        An instance can be started once.

        Kafka: KafkaStreams#start
        """
        with self._starting:
            if self.state is not State.CREATED:
                raise IllegalTransition(
                    f"Application '{self.config.application_id}' cannot be started: it is "
                    f"{self.state.value}. Create a new Streams to start again.\n"
                    f"{self._lifecycle.history()}"
                )
            config = self.config
            assert config.log is not None
            for line in (*config.warnings(), *log_warnings(self.topology, config)):
                log.warning("%s", line)
            instance = self._instance
            self._start_exporter()
            instance.log = open_log(config.log, connection=config.connection_settings())
            instance.compute.open_early(config)
            thread = StreamThread(
                config, instance.log, self._lifecycle, instance.open_engine, instance.callbacks
            )
            instance.thread = thread
            if self.is_paused:
                thread.pause()
            self._lifecycle.transition_to(State.REBALANCING)
            thread.start()
            instance.start_heartbeats()

    def _start_exporter(self) -> None:
        """Export metrics and traces, if the configuration has a collector."""
        if OTLP_ENDPOINT not in self.config.extra:
            return
        # This brings the packages of OpenTelemetry.
        from penstock.engine.observe.otlp import OtlpExporter  # noqa: PLC0415

        exporter = OtlpExporter(self.config, self.metrics)
        self._instance.observers.trace_batch = exporter.add_batch
        self._instance.observers.trace_restore = exporter.add_restore
        self._instance.observers.trace_failure = exporter.add_failure
        self._instance.on_close.append(exporter.close)
        exporter.start()

    def close(
        self, timeout: timedelta | float | None = None, *, leave_group: bool = True
    ) -> bool:
        """Finish the running batch and stop. Return whether the instance ended within the timeout.

        Without a timeout, `close` waits until the instance has ended. With 0 it does not wait.
        When a timeout expires, the running batch is cancelled together with its Spark job, and the
        instance ends soon after; nothing of the batch is committed. With `leave_group=False`,
        another instance takes over only after `session.timeout.ms`. Use it for a restart that takes
        less time than that. Kafka's client always leaves the group; there it has no effect.

        Args:
            timeout: How long to wait; None waits without a limit.
            leave_group: False lets another instance take over only after `session.timeout.ms`.

        Returns:
            Whether the instance ended within the timeout.

        Kafka: KafkaStreams#close, CloseOptions
        """
        with self._starting:
            if self.state is State.CREATED:
                self._lifecycle.transition_to(State.PENDING_SHUTDOWN)
                self._lifecycle.transition_to(State.NOT_RUNNING)
            thread = self._thread
        if thread is None:
            return True
        self._lifecycle.try_transition_to(State.PENDING_SHUTDOWN)
        source = self._instance.log
        if not leave_group and source is not None and source.capabilities.is_remote:
            log.warning(
                "close(leave_group=False) has no effect: the client of the log leaves the group."
            )
        thread.stop(leave_group=leave_group)
        seconds = _seconds(timeout)
        if thread.join(seconds):
            return True
        if seconds and not thread.is_current:
            thread.cancel()
        return False

    def pause(self) -> None:
        """Run no more batches until `resume`. The instance keeps the lease.

        Kafka: KafkaStreams#pause
        """
        self._instance.is_paused = True
        if self._thread is not None:
            self._thread.pause()

    def resume(self) -> None:
        """Run batches again after `pause`.

        Kafka: KafkaStreams#resume
        """
        self._instance.is_paused = False
        if self._thread is not None:
            self._thread.resume()

    @property
    def is_paused(self) -> bool:
        """Whether the instance is paused."""
        return self._instance.is_paused

    def run_until_caught_up(self, timeout: timedelta | float | None = None) -> None:
        """Wait until the current content of the source topics is processed. Start if necessary.

        Raise the error that ended the application, if it failed. Raise `TimeoutError` when the
        timeout expires, for example because another instance runs the application.

        Args:
            timeout: How long to wait; None waits without a limit.
        """
        if self.state is State.CREATED:
            self.start()
        if self._thread is None:
            raise IllegalTransition(
                f"Application '{self.config.application_id}' has ended.\n"
                f"{self._lifecycle.history()}"
            )
        if not self.is_caught_up(timeout):
            if self.state.has_ended:
                raise IllegalTransition(
                    f"Application '{self.config.application_id}' was closed before it had caught "
                    f"up.\n{self._lifecycle.history()}"
                )
            holder = self.waits_for
            raise TimeoutError(
                f"Application '{self.config.application_id}' did not catch up in time."
                + (f" It is run by {holder}." if holder else "")
            )

    def is_caught_up(self, timeout: timedelta | float | None) -> bool:
        """Return whether the current content of the source topics is processed within the timeout.

        Raise the error that ended the application, if it failed.

        Args:
            timeout: How long to wait; None waits without a limit.
        """
        thread = self._thread
        is_done = thread is not None and thread.wait_until_caught_up(_seconds(timeout))
        self._raise_failure()
        return is_done

    def wait(self, timeout: timedelta | float | None = None) -> bool:
        """Wait until the application has ended. Return False if the timeout expires first.

        Raise the error that ended the application, if it failed.

        Args:
            timeout: How long to wait; None waits without a limit.

        Returns:
            Whether the application ended within the timeout.
        """
        ended = self._lifecycle.wait_until(lambda state: state.has_ended, _seconds(timeout))
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

    # ---- threads -----------------------------------------------------------------------------

    @property
    def stream_threads(self) -> int:
        """How many tasks of a stage can run at the same time."""
        return self._instance.parallelism

    def add_stream_thread(self) -> str | None:
        """Let one more task of a stage run at the same time, from the next batch on.

        The number of Spark's cores does not change. Return the name of the new thread, or None if
        the application is not running.

        Returns:
            The name of the thread; None if the application is not running.

        Kafka: KafkaStreams#addStreamThread
        """
        return self._change_threads(+1)

    def remove_stream_thread(self) -> str | None:
        """Let one task less run at the same time. One thread always remains.

        Return the name of the removed thread, or None if no thread can be removed.

        Returns:
            The name of the thread; None if none was removed.

        Kafka: KafkaStreams#removeStreamThread
        """
        return self._change_threads(-1)

    def _change_threads(self, change: int) -> str | None:
        thread = self._thread
        if thread is None or not self.state.is_running_or_rebalancing:
            return None
        number = self._instance.change_parallelism(change)
        if number is None:
            return None
        thread.reopen()
        return thread_name(self.config, number)

    # ---- stores as data of Spark --------------------------------------------------------------

    def table(self, store: str, *, spark: Any = None) -> Any:
        """Return the rows of a store as a Spark DataFrame, at one commit.

        The rows are read from the log, so the application need not be running. Keys and values are
        decoded with the serdes of the topology.

        Args:
            store: The name of the store.
            spark: The `SparkSession`; by default that of this instance, or the active one.

        Returns:
            A `pyspark.sql.DataFrame` that does not change while the application continues.
        """
        from penstock.engine.spark import sources  # noqa: PLC0415  (brings Spark)

        return sources.table(
            self.topology, self.config, store, spark or self._instance.compute.spark
        )

    def create_views(self, spark: Any = None) -> list[str]:
        """Create a temporary view of Spark SQL for each store that has a name of the user.

        All views show the same commit. Call it again for a newer one.

        Args:
            spark: The `SparkSession`; by default that of this instance, or the active one.

        Returns:
            The names of the views, which are the names of the stores.
        """
        from penstock.engine.spark import sources  # noqa: PLC0415  (brings Spark)

        return sources.create_views(
            self.topology, self.config, spark or self._instance.compute.spark
        )

    # ---- status ------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The state of the instance."""
        return self._lifecycle.state

    @property
    def failure(self) -> BaseException | None:
        """The error that ended the application, or None."""
        return self._status.failure

    @property
    def waits_for(self) -> str | None:
        """The instance that runs the application while this one is a standby, otherwise None."""
        return self._status.waits_for

    def metrics(self) -> dict[MetricName, Value]:
        """Return all metrics, under Kafka's names.

        Kafka: KafkaStreams#metrics
        """
        return self._status.metrics()

    def lag(self) -> int | None:
        """Return the number of unread records in the source topics; None for a standby."""
        return self._status.lag()

    def metadata_for_local_threads(self) -> frozenset[ThreadMetadata]:
        """Return the thread of this instance and its tasks.

        Kafka: KafkaStreams#metadataForLocalThreads
        """
        return self._status.threads()

    def __str__(self) -> str:
        """Return the state, the topology and the tasks with their positions."""
        return self._status.describe()

    @property
    def _store_queries(self) -> StoreQueries:
        return self._open_queries().stores

    def _serve_queries(self) -> None:
        self._instance.serves_queries = True

    @property
    def _instance_metadata(self) -> InstanceMetadata:
        return self._open_queries().metadata

    def _open_queries(self) -> InstanceQueries:
        if self._queries is None:
            from penstock.queries.instance_run import InstanceQueries  # noqa: PLC0415  (pyarrow)

            with self._starting:
                if self._queries is None:
                    self._queries = InstanceQueries(self._instance)
        return self._queries

    @property
    def _thread(self) -> StreamThread | None:
        return self._instance.thread


def _seconds(timeout: timedelta | float | None) -> float | None:
    if isinstance(timeout, timedelta):
        return timeout.total_seconds()
    return timeout
