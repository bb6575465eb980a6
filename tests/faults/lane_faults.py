"""Faults of continuous mode, on every log.

    late lane       a lane is stopped at a failpoint until the driver has replaced it, then resumed
    late driver     the driver is stopped past its lease, while its lanes keep running; another
                    instance takes over, then the driver is resumed
    state           the state of all lanes is deleted while one of them is stopped at a failpoint
"""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Callable, Iterator
from typing import NamedTuple, cast

from faults.campaign import Fault
from faults.engine_app import APPLICATION_ID, read
from faults.engine_processes import Instance, send, wait_until
from faults.engine_trial import STATE, Trial
from penstock.engine.failpoints import FailpointName
from penstock.engine.layout.internal_topics import tasks_topic
from penstock.engine.plan.task_records import BATCH_KEY, decode_task
from penstock.engine.worker.worker import ATTEMPT_BITS
from penstock.log import Log, open_log
from penstock.log.errors import LogBusy
from penstock.log.types import TopicPartition

Pieces = Iterator[Callable[[], None]]
#: Spark does not kill the process of a cancelled job, as in the seconds after a cancellation. The
#: process exits when its lane has ended. Otherwise Spark would keep it for a minute.
KEEP_PROCESSES = ("spark.python.task.killTimeout=1h", "spark.python.worker.reuse=false")
LANE_TARGETS = ("late lane", "late driver", "state")
#: Where a lane is stopped: before, in and after its commit.
LANE_FAULT_POINTS: tuple[FailpointName, ...] = (
    "processed", "before-commit", "in-commit", "after-commit", "applying",
)


def inject_lane_fault(trial: Trial, fault: Fault, pieces: Pieces) -> None:
    """Inject a fault of one of the `LANE_TARGETS`."""
    failpoint = cast("FailpointName", fault.when)
    if fault.target == "late lane":
        resume_lane(trial, stop_lane_until_replaced(trial, failpoint, pieces))
    elif fault.target == "late driver":
        stop_driver_until_replaced(trial, failpoint, pieces)
    else:
        delete_state(trial, failpoint, pieces)


class StoppedLane(NamedTuple):
    """A lane that is stopped, and that the driver has replaced."""

    pid: int
    serial: int


def stop_lane_until_replaced(
    trial: Trial, failpoint: FailpointName, pieces: Pieces
) -> StoppedLane:
    """Stop a lane at a failpoint until the driver has fenced it."""
    trial.reach(failpoint, pieces)
    [process] = trial.start().stopped()
    lane = wait_until_replaced(trial, process.pid, pieces)
    # The other lanes process the wave without it.
    trial.finish_wave(pieces)
    return lane


def wait_until_replaced(trial: Trial, pid: int, pieces: Pieces) -> StoppedLane:
    """Wait until the driver has fenced a stopped lane."""
    instance = trial.start()
    replaced = re.compile(rf"Lane (\d+) on \S+ \(process {pid}\) has been silent")
    # Spark may have used the process for a lane that was replaced before.
    size = instance.output.stat().st_size

    def serials() -> list[str]:
        return replaced.findall(instance.output.read_text(errors="replace")[size:])

    wait_until("the stopped lane was replaced", serials, meanwhile=trial.feeder(pieces))
    return StoppedLane(pid, int(serials()[-1]))


def resume_lane(trial: Trial, lane: StoppedLane) -> None:
    """Resume a lane that was replaced: it ends and publishes nothing."""
    instance = trial.start()
    assert [process.pid for process in instance.stopped()] == [lane.pid]
    before = attempts(trial.log)
    epoch = before[-1].epoch
    known = instance.lanes_started(lane.pid)
    send(lane.pid, signal.SIGCONT)
    # Its process exits, or Spark reuses it for another lane.
    wait_until(
        "the resumed lane had ended",
        lambda: lane.pid not in instance.all() or instance.lanes_started(lane.pid) > known,
    )
    assert_unpublished(trial.log, before, lambda attempt: attempt == (epoch, lane.serial))


def stop_driver_until_replaced(trial: Trial, failpoint: FailpointName, pieces: Pieces) -> None:
    """Another instance takes over while the driver is stopped. Then the driver resumes, publishes
    nothing, and becomes a standby, which takes over when the other instance is killed."""
    trial.reach(failpoint, pieces)
    first = trial.start()
    first.resume()
    _stop_driver(trial)
    epoch = attempts(trial.log)[-1].epoch
    second = trial.start_other("second")
    try:
        wait_until(
            "the second instance had taken over",
            lambda: "This instance runs application" in second.output.read_text(),
            meanwhile=trial.feeder(pieces),
        )
        trial.finish_wave(pieces)
        _resume_driver(trial, first, epoch)
        assert second.is_alive
        assert first.is_alive
    finally:
        second.end()


def _stop_driver(trial: Trial) -> None:
    """Stop the driver while it does not hold the lock of an embedded log: otherwise no other
    instance could take over."""
    driver = trial.start().pid
    while True:
        send(driver, signal.SIGSTOP)
        if trial.log.capabilities.is_remote:
            return
        try:
            with open_log(trial.log.address, busy_timeout_ms=500) as log:
                log.commit_offsets("nobody", {TopicPartition("orders", 0): 0})
            return
        except LogBusy:
            send(driver, signal.SIGCONT)


def _resume_driver(trial: Trial, first: Instance, epoch: int) -> None:
    before = attempts(trial.log)
    size = first.output.stat().st_size
    first.resume()
    wait_until(
        "the first instance had noticed",
        lambda: "becomes a standby" in first.output.read_text(errors="replace")[size:],
    )
    assert any(attempt.epoch == epoch for attempt in before)
    assert_unpublished(trial.log, before, lambda attempt: attempt.epoch == epoch)


def delete_state(trial: Trial, failpoint: FailpointName, pieces: Pieces) -> None:
    """Delete the state of all lanes. One of them is stopped, others may be using it."""
    trial.reach(failpoint, pieces)
    # At once, also for a lane that is creating files.
    deleted = (trial.directory / STATE).rename(trial.directory / "deleted-state")
    shutil.rmtree(deleted)
    trial.start().resume()


class Attempt(NamedTuple):
    """Which lane has written a task record. Each of its transactions writes one."""

    #: Of the lease.
    epoch: int
    #: Of the lane.
    serial: int


def attempts(log: Log) -> list[Attempt]:
    """The writers of all task records, in order."""
    return [
        Attempt(*divmod(decode_task(value).attempt, 1 << ATTEMPT_BITS))
        for key, value, _ in read(log, tasks_topic(APPLICATION_ID))
        if value is not None and b"_" in key and key != BATCH_KEY
    ]


def assert_unpublished(log: Log, before: list[Attempt], is_late: Callable[[Attempt], bool]) -> None:
    """Nothing of a late lane was committed after the records `before`."""
    late = [attempt for attempt in attempts(log)[len(before):] if is_late(attempt)]
    assert not late, f"a lane has published after it was replaced: {late}"
