"""`BatchObservers`: passes the report of each committed batch to metrics, listeners and output."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.engine.continuous.lane_observer import LaneObserver
from penstock.engine.observe.metrics import Metrics
from penstock.engine.observe.printer import Printer
from penstock.engine.observe.restore import (
    ReplicaTargets,
    RestoreMonitor,
    RestoreNotifier,
    StateRestoreListener,
)
from penstock.engine.observe.restore_log import RestoreLog
from penstock.record import TaskId
from penstock.topology.topology import Topology

if TYPE_CHECKING:
    from penstock.engine.batch_report import BatchReport
    from penstock.engine.continuous.lane_handle import LaneStatus
    from penstock.engine.continuous.messages import PartitionLag, TimeSpent
    from penstock.engine.worker.outcome import RestoredStore, RestoringStore

log = logging.getLogger(__name__)


class BatchObservers(LaneObserver):
    """The metrics, the restore listener, the printer and `on_batch` of an instance."""

    def __init__(
        self, metrics: Metrics, out: Callable[[list[str]], object],
        on_batch: Callable[[BatchReport], object] | None,
    ) -> None:
        self.metrics = metrics
        self._printer = Printer(out)
        self._on_batch = on_batch
        self._restores = RestoreNotifier(StateRestoreListener(), metrics)
        self._restore_log = RestoreLog()
        self._restore_monitor: RestoreMonitor | None = None
        #: Receives the report of each batch, for its trace. Set before the instance starts.
        self.trace_batch: Callable[[BatchReport], object] | None = None
        #: Receives the stores that a lane has restored, the seconds, and the lane.
        self.trace_restore: (
            Callable[[Sequence[RestoredStore], float, LaneStatus], object] | None
        ) = None
        #: Receives the failure of a batch, and when the batch began, in nanoseconds.
        self.trace_failure: Callable[[Exception, int], object] | None = None

    def set_restore_listener(self, listener: StateRestoreListener) -> None:
        """Replace the restore listener. Called before the instance starts."""
        self._restores = RestoreNotifier(listener, self.metrics)

    def open_files(self, topology: Topology) -> None:
        """Open the files of print operators."""
        self._printer.open_files(topology)

    def monitor_restores(self, directory: Path, targets: Mapping[str, ReplicaTargets]) -> None:
        """Poll the replicas in `directory` until the next batch is committed."""
        self._restore_monitor = RestoreMonitor(directory, self._restores, targets)

    def suspend_restores(self) -> None:
        """No batch runs. Incomplete restores are reported as suspended."""
        self._stop_monitor()
        self._restores.suspended()
        self.metrics.stop_reading()

    def batch_committed(self, report: BatchReport) -> None:
        """Pass on the report of a committed batch."""
        self.metrics.record(report)
        self._stop_monitor()
        self._restores.completed(report.restored)
        self._restore_log.add(report.restored, report.restore_seconds)
        self._printer.write(report.printed)
        self._call("on_batch", self._on_batch, report)
        self._call("The trace", self.trace_batch, report)

    def batch_failed(self, error: Exception, began_ns: int) -> None:
        """A batch, or a lane, has failed. `began_ns`: in nanoseconds since the epoch."""
        self._call("The trace", self.trace_failure, error, began_ns)

    def task_granted(self, task_id: TaskId) -> None:
        """A lane is asked to run a task."""
        self.metrics.task_granted(str(task_id))

    def task_released(self, task_id: TaskId) -> None:
        """A lane is asked to give up a task."""
        self.metrics.task_released(str(task_id))

    def task_restoring(self, task_id: TaskId, stores: Sequence[RestoringStore]) -> None:
        """A lane restores the stores of a task."""
        self._restores.restoring(str(task_id), stores)

    def task_restored(
        self, task_id: TaskId, restored: Sequence[RestoredStore], seconds: float, *,
        lane: LaneStatus, is_last: bool,
    ) -> None:
        """A lane runs a task, after it has restored these stores.

        `is_last`: no other restore runs.
        """
        self.metrics.task_started(str(task_id))
        self._restores.restored(str(task_id), restored)
        self._restore_log.add(restored, seconds, is_last=is_last)
        if any(each.records for each in restored):
            self._call("The trace", self.trace_restore, restored, seconds, lane)

    def task_stopped(self, task_id: TaskId) -> None:
        """No lane runs or restores a task."""
        self.metrics.task_stopped(str(task_id))
        self._restores.stopped(str(task_id))

    def time_spent(self, spent: TimeSpent) -> None:
        """A lane has reported how it spends its time."""
        self.metrics.lane_spent(spent)

    def lag_measured(self, lag: Sequence[PartitionLag]) -> None:
        """A lane has reported its lag."""
        self.metrics.lag_measured(lag)

    def lane_lost(self) -> None:
        """A lane has ended unexpectedly."""
        self.metrics.lane_lost()

    def close(self) -> None:
        """Close the files."""
        self._restore_log.flush()
        self._printer.close()

    def _call(self, name: str, call: Callable[..., object] | None, *arguments: object) -> None:
        if call is None:
            return
        try:
            call(*arguments)
        except Exception:
            log.exception("%s failed; the application continues.", name)

    def _stop_monitor(self) -> None:
        monitor, self._restore_monitor = self._restore_monitor, None
        if monitor is not None:
            monitor.close()
