"""Lanes that are stopped until they are replaced, and then resume."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from typing import NamedTuple

from faults.engine_app import APPLICATION_ID, read
from faults.engine_kills import Trial
from faults.engine_processes import send, wait_until
from penstock.engine.failpoints import FailpointName
from penstock.engine.layout.internal_topics import tasks_topic
from penstock.engine.plan.task_records import BATCH_KEY, decode_task
from penstock.engine.worker.worker import ATTEMPT_BITS
from penstock.log import Log

Pieces = Iterator[Callable[[], None]]
#: Spark does not kill the process of a cancelled job, as in the seconds after a cancellation.
KEEP_PROCESSES = ("spark.python.task.killTimeout=1h",)


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
    wait_until(
        "the stopped lane was replaced",
        lambda: replaced.search(instance.output.read_text(errors="replace")),
        meanwhile=trial.feeder(pieces),
    )
    found = replaced.search(instance.output.read_text(errors="replace"))
    assert found is not None
    return StoppedLane(pid, int(found[1]))


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
    """Nothing of a late lane was committed after the records `before`, but something earlier."""
    late = [attempt for attempt in attempts(log)[len(before):] if is_late(attempt)]
    assert not late, f"a lane has published after it was replaced: {late}"
    assert any(map(is_late, before))
