"""What runs in Spark's Python workers: one lane of one stage.

Spark starts these processes, gives any lane to any of them, and keeps them; a `Worker` is kept
with them. Everything else comes anew with each task: the number of the lane, the blocks for it,
and, from the context of the task, the plan of the batch and the attempt.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pyspark import TaskContext

from penstock.engine.plan.batch_plan import decode_plan

if TYPE_CHECKING:
    from pyspark import Broadcast

    from penstock.engine.plan.batch_plan import BatchPlan

#: The local property of a job that holds its plan.
PLAN = "penstock.plan"

#: A number as Spark's pairs of Python have their keys.
_java_long = struct.Struct("!q").pack

#: How many applications a process serves at once; the one that was not asked for longest goes.
_MOST_WORKERS = 4


class LaneRunner(Protocol):
    """What the process keeps for an application: a `Worker`."""

    def run_lane(
        self, stage: int, lane: int, plan: BatchPlan, attempt: int, blocks: Iterable[bytes]
    ) -> Iterable[tuple[int, bytes]]:
        """Run the tasks of one lane; answers blocks, each with its lane of the next stage."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


def load_worker(bundle: bytes) -> LaneRunner:
    """The worker of an application, from what the driver has packed."""
    from penstock.engine.packaging.bundle import Bundle  # noqa: PLC0415  (brings pyarrow, and only here)
    from penstock.engine.worker.worker import Worker  # noqa: PLC0415

    return Worker(Bundle.load(bundle))


@dataclass(frozen=True)
class LaneFunction:
    """The function of one stage that Spark calls for each of its lanes; pickled once, by the
    driver. The bundle is not in it but in a broadcast, read once in each process."""

    application_id: str
    #: Tells this bundle from an earlier one of the same application.
    fingerprint: str
    bundle: Broadcast[bytes]
    stage: int
    is_first: bool
    is_last: bool
    load: Callable[[bytes], LaneRunner] = load_worker

    def __call__(self, lane: int, received: Iterator[bytes]) -> Iterator[bytes]:
        """Frames for Spark: before each block its lane of the next stage, as Java's long; from
        the last stage, blocks only."""
        if self.is_first:
            # What the first stage gets from Spark is an empty partition. It must be read all the
            # same: a process with unread input is not used again.
            for _ in received:
                pass
            received = iter(())
        context = TaskContext.get()
        assert context is not None
        plan = context.getLocalProperty(PLAN)
        assert plan is not None, "The job was started without a plan."
        worker = _worker(self)
        sent = worker.run_lane(
            self.stage, lane, decode_plan(plan), context.taskAttemptId(), received
        )
        for target, block in sent:
            if not self.is_last:
                yield _java_long(target)
            yield block
        for _ in received:
            pass


#: Application -> (fingerprint, worker), the one that was asked for last at the end.
_workers: dict[str, tuple[str, LaneRunner]] = {}


def _worker(function: LaneFunction) -> LaneRunner:
    """The worker of an application in this process. A new bundle takes the place of the old."""
    name = function.application_id
    known = _workers.pop(name, None)
    if known is not None and known[0] != function.fingerprint:
        known[1].close()
        known = None
    if known is None:
        while len(_workers) >= _MOST_WORKERS:
            _workers.pop(next(iter(_workers)))[1].close()
        known = function.fingerprint, function.load(function.bundle.value)
    _workers[name] = known
    return known[1]
