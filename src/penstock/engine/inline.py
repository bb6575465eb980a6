"""Runs batches in this process, one lane after the other: for tests, and to look around.

It takes the same way as Spark does: the bundle is loaded from its bytes, lanes get what the lanes
of the stage before them addressed to them, and only bytes go from one to the next.
"""

from __future__ import annotations

import threading

from penstock.config import StreamsConfig
from penstock.engine.compute import BatchCancelled
from penstock.engine.layout.execution_graph import ExecutionGraph
from penstock.engine.packaging.bundle import Bundle
from penstock.engine.packaging.pack import pack
from penstock.engine.plan.batch_plan import BatchPlan
from penstock.engine.worker.worker import Worker
from penstock.log.base import Log
from penstock.topology.topology import Topology


class InlineCompute:
    """A `Compute` without Spark. Has one worker, or a new one for each batch."""

    def __init__(self, bundle: bytes, *, new_workers: bool = False) -> None:
        self._bundle = bundle
        self._new_workers = new_workers
        self._worker: Worker | None = None
        self._attempts = 0
        self._cancelled = threading.Event()

    def compute(self, plan: BatchPlan) -> list[bytes]:
        """Run all tasks of the plan; answers their outcomes."""
        if self._new_workers:
            self.close()
        if self._worker is None:
            self._worker = Worker(Bundle.load(self._bundle), own_process=False)
        worker = self._worker
        waiting: dict[int, list[bytes]] = {}
        for stage, lanes in enumerate(worker.bundle.lanes):
            addressed: dict[int, list[bytes]] = {}
            for lane in range(lanes):
                if self._cancelled.is_set():
                    raise BatchCancelled(worker.bundle.config.application_id, plan.number)
                self._attempts += 1
                blocks = waiting.get(lane, [])
                for target, block in worker.run_lane(stage, lane, plan, self._attempts, blocks):
                    addressed.setdefault(target, []).append(block)
            waiting = addressed
        return waiting.get(0, [])

    def cancel(self) -> None:
        """Begin no more lanes; any thread may call it. User code is not interrupted."""
        self._cancelled.set()

    def close(self) -> None:
        """No more batches."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None


def start_inline(
    topology: Topology, config: StreamsConfig, graph: ExecutionGraph, log: Log
) -> InlineCompute:
    """What `Engine` is given to run an application without Spark."""
    bundle = Bundle(topology, config, graph, log.address, config.num_stream_threads)
    return InlineCompute(pack(bundle, whose="a worker"))
