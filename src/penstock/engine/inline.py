"""`InlineCompute`: runs batches in this process, one lane after the other, without Spark.

It works as Spark does: it loads the bundle from bytes, passes to each lane what the lanes of the
previous stage have addressed to it, and passes only bytes from stage to stage.
"""

from __future__ import annotations

import threading

from penstock.config import StreamsConfig
from penstock.engine.compute import BatchCancelled
from penstock.engine.layout.execution_graph import ExecutionGraph
from penstock.engine.packaging.bundle import Bundle
from penstock.engine.packaging.pack import pack_bundle
from penstock.engine.plan.batch_plan import BatchPlan
from penstock.engine.worker.worker import Worker
from penstock.log.base import Log
from penstock.topology.topology import Topology


class InlineCompute:
    """A `Compute` with one worker, or with a new one for each batch (`new_workers`)."""

    def __init__(self, bundle: bytes, *, new_workers: bool = False) -> None:
        self._bundle = bundle
        self._new_workers = new_workers
        self._worker: Worker | None = None
        self._attempts = 0
        self._cancelled = threading.Event()

    def compute(self, plan: BatchPlan) -> list[bytes]:
        """Run all tasks of the plan and return their encoded outcomes."""
        if self._new_workers:
            self.close()
        if self._worker is None:
            self._worker = Worker(Bundle.load(self._bundle), own_process=False)
        worker = self._worker
        blocks_by_lane: dict[int, list[bytes]] = {}
        for stage, lanes in enumerate(worker.bundle.lanes):
            addressed: dict[int, list[bytes]] = {}
            for lane in range(lanes):
                if self._cancelled.is_set():
                    raise BatchCancelled(worker.bundle.config.application_id, plan.number)
                self._attempts += 1
                blocks = blocks_by_lane.get(lane, [])
                for target, block in worker.run_lane(stage, lane, plan, self._attempts, blocks):
                    addressed.setdefault(target, []).append(block)
            blocks_by_lane = addressed
        return blocks_by_lane.get(0, [])

    def cancel(self) -> None:
        """Start no more lanes. Any thread may call it. User code is not interrupted."""
        self._cancelled.set()

    def close(self) -> None:
        """Close the worker."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None


def start_inline(
    topology: Topology, config: StreamsConfig, graph: ExecutionGraph, log: Log
) -> InlineCompute:
    """Start a `Compute` in this process: a `ComputeFactory`."""
    bundle = Bundle(topology, config, graph, log.address, config.num_stream_threads)
    return InlineCompute(pack_bundle(bundle))
