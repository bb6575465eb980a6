"""`SparkLanes`: runs the lanes of continuous mode, each as a Spark job of one long-lived task.

One job for each lane: the failures of a job are counted until it succeeds, so in a common job four
losses of one lane would end all of them, and a lane that waits for a slot would hold up the others.
Spark may repeat a task after its worker is lost. The repeated attempt returns at once: the driver
replaces the lane, with a grant of its own.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import TaskContext

from penstock.engine.compute_provider import PARALLELISM
from penstock.engine.continuous.channel import Endpoint
from penstock.engine.continuous.control_server import DRIVER_PORT, ControlServer
from penstock.engine.continuous.lane_handle import WorkerLost
from penstock.engine.continuous.lane_starter import OnConnection, OnEnded
from penstock.engine.packaging.bundle import Bundle
from penstock.engine.plan.batch_size import integer_setting
from penstock.engine.spark.backend import SparkBackend
from penstock.engine.spark.cluster import MONITOR_S
from penstock.engine.spark.errors import reason_of, text_of, translate_error
from penstock.engine.spark.lane_shares import LaneShares
from penstock.engine.spark.pyspark_internals import (
    JvmRdds,
    cancel_group_and_future_jobs,
    executors_of_group,
    is_stopped,
    leaving_executors,
    worker_settings,
)
from penstock.errors import StreamsException

if TYPE_CHECKING:
    from pyspark import Broadcast

log = logging.getLogger(__name__)

_shares = LaneShares()


@dataclass(frozen=True)
class LaneFunction:
    """The function of a lane's job. The driver pickles it once per lane."""

    serial: int
    endpoint: Endpoint
    bundle: Broadcast[bytes]

    def __call__(self, index: int, received: Iterator[bytes]) -> Iterator[bytes]:
        """Run the lane until it ends."""
        # Spark does not reuse a process with unread input.
        for _ in received:
            pass
        context = TaskContext.get()
        if context is not None and context.attemptNumber() > 0:
            return
        # This imports pyarrow, which only workers need.
        from penstock.engine.continuous.lane import run_lane  # noqa: PLC0415

        run_lane(self.bundle.value, self.endpoint.connect(), self.serial)
        yield from ()


class SparkLanes:
    """A `LaneStarter` on Spark. Each job has a thread that waits for its end."""

    def __init__(
        self, backend: SparkBackend, bundle: Bundle, packed: bytes, *,
        on_connection: OnConnection, on_ended: OnEnded,
    ) -> None:
        self._backend = backend
        self._context = backend.context
        self._application_id = bundle.config.application_id
        self._config = bundle.config
        self._slots = bundle.parallelism
        #: Whether the user has set the number of lanes.
        self._is_chosen = PARALLELISM in bundle.config.extra
        self._counted_at = self._looked_at = time.monotonic()
        setting = self._context.getConf().get("spark.decommission.enabled", "false")
        self._can_decommission = backend.is_elastic and setting == "true"
        self._leaving: frozenset[int] = frozenset()
        self._on_ended = on_ended
        self._packed = self._context.broadcast(packed)
        self._server = ControlServer(
            backend.control_hosts, on_connection, integer_setting(self._config, DRIVER_PORT, 0, 0)
        )
        self._rdds = JvmRdds(self._context)
        self._id = uuid.uuid4().hex
        self._threads: dict[int, threading.Thread] = {}
        _shares.join(self._context, self)

    @property
    def slots(self) -> int:
        """How many lanes may run at the same time: follows the executors of a cluster, and the
        number of continuous applications in the context."""
        if self._backend.is_elastic and time.monotonic() - self._counted_at > MONITOR_S:
            self._counted_at = time.monotonic()
            self._slots = self._backend.lane_slots(self._config)
        if self._is_chosen:
            return self._slots
        return _shares.share(self._context, self, self._slots)

    @property
    def leaving(self) -> frozenset[int]:
        """The serials of the lanes whose executor is being decommissioned."""
        if self._can_decommission and time.monotonic() - self._looked_at > MONITOR_S:
            self._looked_at = time.monotonic()
            self._leaving = self._find_leaving()
        return self._leaving

    def _find_leaving(self) -> frozenset[int]:
        try:
            executors = leaving_executors(self._context)
            return frozenset(
                # Other threads remove the lanes that end meanwhile.
                serial for serial in (list(self._threads) if executors else ())
                if executors & executors_of_group(self._context, self._group(serial))
            )
        except (Py4JError, OSError):
            # The loss of the JVM is reported elsewhere.
            log.debug("The executors are not known.", exc_info=True)
            return frozenset()

    def start(self, serial: int) -> None:
        """Submit the job of a lane."""
        self._backend.check()
        function = LaneFunction(serial, self._server.endpoint, self._packed)
        backend = self._backend
        with worker_settings(self._context, backend.python, backend.worker_environment):
            wrapped = self._rdds.wrap_function(function)
        rdd = self._rdds.map_partitions(self._rdds.empty(1), wrapped)
        thread = threading.Thread(
            target=self._run, args=(serial, rdd),
            name=f"penstock-lane-{serial}", daemon=True,
        )
        self._threads[serial] = thread
        thread.start()

    def _run(self, serial: int, rdd: object) -> None:
        error: Exception | None = None
        try:
            with self._backend.report_jvm_loss():
                self._context.setJobGroup(
                    self._group(serial), f"penstock {self._application_id} lane {serial}",
                    interruptOnCancel=True,
                )
                self._rdds.collect(rdd)
        except Exception as raised:
            error = raised
        self._threads.pop(serial, None)
        if error is not None and not isinstance(error, StreamsException):
            text = text_of(error)
            log.debug("The job of lane %d has failed: %s", serial, text)
            error = translate_error(text, self._backend.python) or WorkerLost(reason_of(text))
        self._on_ended(serial, error)

    def cancel(self, serial: int) -> None:
        """Cancel the job of a lane. Its process may run on for a few seconds."""
        try:
            cancel_group_and_future_jobs(self._context, self._group(serial))
        except (Py4JError, OSError) as error:
            if not self._backend.is_lost:
                # A JVM that is terminated stops Spark before it ends.
                raise translate_error(text_of(error), self._backend.python) or error from error

    def _group(self, serial: int) -> str:
        # A cancelled group never runs a job again, so its name must be unique.
        return f"penstock-{self._application_id}-{self._id}-{serial}"

    def close(self) -> None:
        """Cancel the jobs that still run, and release the resources."""
        _shares.leave(self._context, self)
        threads = dict(self._threads)
        for thread in threads.values():
            thread.join(5)
        try:
            for serial, thread in threads.items():
                if thread.is_alive():
                    self.cancel(serial)
                    thread.join(5)
            self._server.close()
            if not is_stopped(self._context):
                self._packed.destroy()
        except (Py4JError, OSError):
            log.debug("Spark ended before the application was closed.", exc_info=True)
