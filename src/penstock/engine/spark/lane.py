"""Runs in Spark's Python workers: one lane of one stage, as one Spark task.

Spark starts these processes, reuses them, and gives any lane to any of them. A `Worker` lives as
long as the process. Everything else comes with each task: the number of the lane, its blocks, and,
in the task context, the plan of the batch and the attempt.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pyspark import TaskContext

from penstock.engine.plan.batch_plan import decode_plan

if TYPE_CHECKING:
    from pyspark import Broadcast

    from penstock.engine.plan.batch_plan import BatchPlan

#: The local property that carries the plan of a job.
PLAN = "penstock.plan"

#: The key of a pair, in the format that `JvmRdds.as_pairs` reads.
_encode_key = struct.Struct("!q").pack

#: How many applications a process serves at once. The least recently used one is closed.
_MAX_WORKERS = 4


class LaneRunner(Protocol):
    """The object that a process keeps for an application: a `Worker`."""

    def run_lane(
        self, stage: int, lane: int, plan: BatchPlan, attempt: int, blocks: Iterable[bytes]
    ) -> Iterable[tuple[int, bytes]]:
        """Run the tasks of one lane. Yields blocks, each with its lane of the next stage."""
        ...

    def close(self) -> None:
        """Release all resources."""
        ...


def load_worker(bundle: bytes) -> LaneRunner:
    """Create the worker of an application from its packed bundle."""
    started_at = time.perf_counter()
    # These import pyarrow, which only workers need.
    from penstock.engine.packaging.bundle import Bundle  # noqa: PLC0415
    from penstock.engine.worker.worker import Worker  # noqa: PLC0415

    return Worker(Bundle.load(bundle), started_at=started_at)


@dataclass(frozen=True)
class LaneFunction:
    """The function of one stage, which Spark calls for each of its lanes.

    The driver pickles it once. The bundle is a broadcast, which each process reads once.
    """

    application_id: str
    #: Distinguishes this bundle from an earlier one of the same application.
    fingerprint: str
    bundle: Broadcast[bytes]
    stage: int
    is_first: bool
    is_last: bool
    load: Callable[[bytes], LaneRunner] = load_worker

    def __call__(self, lane: int, received: Iterator[bytes]) -> Iterator[bytes]:
        """Yield pairs of key and block for the shuffle; from the last stage, blocks only."""
        if self.is_first:
            # The input of the first stage is an empty partition. It must be read nevertheless:
            # Spark does not reuse a process with unread input.
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
                yield _encode_key(target)
            yield block
        for _ in received:
            pass


#: Application -> (fingerprint, worker), the most recently used one last.
_workers: dict[str, tuple[str, LaneRunner]] = {}


def _worker(function: LaneFunction) -> LaneRunner:
    """Return the worker of an application in this process. A new bundle replaces the old one."""
    name = function.application_id
    known = _workers.pop(name, None)
    if known is not None and known[0] != function.fingerprint:
        known[1].close()
        known = None
    if known is None:
        while len(_workers) >= _MAX_WORKERS:
            _workers.pop(next(iter(_workers)))[1].close()
        known = function.fingerprint, function.load(function.bundle.value)
    _workers[name] = known
    return known[1]
