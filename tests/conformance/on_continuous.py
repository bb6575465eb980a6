"""Runs a case on the engine in continuous mode: one lane, driven step by step in this thread."""

from __future__ import annotations

import shutil
import tempfile
import time
from multiprocessing import Pipe
from pathlib import Path
from typing import Any
from unittest import mock

from conformance.cases import Case, InvalidCase
from conformance.on_engine import EngineDriver, EngineRun, _parent_directory
from conformance.on_engine_rules import exemption as engine_exemption
from conformance.runner import CaseResult
from penstock import StreamsConfig, Topology
from penstock.engine.continuous.engine import ContinuousEngine
from penstock.engine.continuous.lane import Lane
from penstock.engine.continuous.lane_starter import OnConnection, OnEnded
from penstock.engine.continuous.messages import Ended
from penstock.engine.layout.execution_graph import ExecutionGraph
from penstock.engine.packaging.bundle import Bundle
from penstock.engine.worker.worker import Worker
from penstock.log import Log

#: One event sends records with the same timestamp through two repartition topics to one task. On a
#: cluster, the order in which the task reads them is not defined. Kafka's driver keeps the order in
#: which they were written.
TIES = {
    "order-through-two-repartitions", "random-public-cached-0022", "random-public-cached-0065",
    "random-public-plain-0754",
}

#: No case takes nearly as long.
_LONGEST_S = 20.0


def exemption(case: Case) -> str | None:
    """The reason why a case does not apply to continuous mode, or None if it does."""
    if case["name"] in TIES:
        return "Records with the same timestamp reach a task through two repartition topics."
    return engine_exemption(case)


def run_continuously(case: Case) -> CaseResult:
    """Run a case. Its exception is part of the result."""
    result = CaseResult({"output": {}, "internal_topics": {}})
    directory = Path(tempfile.mkdtemp(prefix="penstock-case-", dir=_parent_directory()))
    try:
        ContinuousRun(case, result, directory).run()
    except InvalidCase:
        raise
    except Exception as error:  # failures of cases are compared, too
        result.exception = error
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return result


class ContinuousRun(EngineRun):
    """One run of one case."""

    def __init__(self, case: Case, result: CaseResult, directory: Path) -> None:
        super().__init__(case, result, directory, None, ContinuousDriver)  # type: ignore[arg-type]


class SteppedLanes:
    """A `LaneStarter` whose lane runs only in `step`."""

    slots = 1
    leaving: frozenset[int] = frozenset()

    def __init__(
        self, topology: Topology, config: StreamsConfig, graph: ExecutionGraph, source: Log,
        on_connection: OnConnection, on_ended: OnEnded,
    ) -> None:
        self._bundle = Bundle(topology, config, graph, source.address, 1).dump()
        self._has_tasks = any(graph.tasks)
        self._on_connection = on_connection
        self._worker: Worker | None = None
        self.lane: Lane | None = None

    def start(self, serial: int) -> None:
        ours, lanes = Pipe()
        self._on_connection(ours)
        self._worker = Worker(Bundle.load(self._bundle), own_process=False)
        self.lane = Lane(self._worker, lanes, serial, own_process=False)
        self.lane.say_hello()

    def step(self) -> bool:
        """Run one round of the lane. Returns whether it had nothing to do."""
        if self.lane is None:
            # An application without tasks has no lane. A failed lane has a last message.
            return not self._has_tasks
        try:
            self.lane.step(0.001)
        except Exception as error:
            self._end(self.lane.describe_end(error))
            return False
        return self.lane.is_waiting

    def _end(self, last: Ended) -> None:
        assert self.lane is not None
        assert self._worker is not None
        self.lane.close(last)
        self._worker.close()
        self.lane = None

    def cancel(self, serial: int) -> None:
        pass

    def close(self) -> None:
        if self.lane is not None:
            self._end(Ended())


class ContinuousDriver(EngineDriver):
    """An application in continuous mode on its own log, fed event by event."""

    serves_every_commit = True

    def _open_engine(self, topology: Topology, config: StreamsConfig, start: Any) -> None:
        for module in ("engine", "lane"):
            self._open.enter_context(mock.patch(
                f"penstock.engine.continuous.{module}.wall_clock_ms", self._wall_clock
            ))
        # A lane in this thread sends no signs of life.
        self._open.enter_context(mock.patch("penstock.engine.continuous.lane_pool.SILENCE_S", 3600))
        self._open.enter_context(mock.patch("penstock.engine.continuous.lane.GLOBAL_INTERVAL_S", 0))
        config = config.with_(
            execution="continuous", commit_interval_ms=0,
            # Timestamps of cases are far from the clock of the case.
            extra={**config.extra, "topic.message.timestamp.after.max.ms": str(2**63 - 1)},
        )
        self._config = config
        lease = self._log.take_lease(config.application_id)
        lanes: list[SteppedLanes] = []

        def start_lanes(*arguments: Any) -> SteppedLanes:
            lanes.append(SteppedLanes(*arguments))
            return lanes[-1]

        self._engine = ContinuousEngine(  # type: ignore[assignment]
            topology, config, self._log, lease, start_lanes
        )
        self._lanes = lanes

    def _run(self) -> None:
        deadline = time.monotonic() + _LONGEST_S
        engine, lanes = self._engine, self._lanes[-1]
        quiet_rounds = 0
        while quiet_rounds < 3:
            report = engine.run_batch()
            self._add(report)
            is_quiet = (
                lanes.step() and report is None and engine.is_ready and self._is_reported()
            )
            quiet_rounds = quiet_rounds + 1 if is_quiet else 0
            assert time.monotonic() < deadline, "The input is not processed in time."

    def _is_reported(self) -> bool:
        """Whether the driver knows all positions of the lane. Messages take a moment."""
        lane = self._lanes[-1].lane
        offsets = self._engine.planner.offsets
        return lane is None or all(
            offsets[at] == position for task in lane._tasks.values()
            for at, position in task.positions(lane._tail).items()
        )

    def get_all_state_stores(self) -> dict[str, Any]:
        """The stores of the lane, with their caches; without caches as in the base class."""
        lane = self._lanes[-1].lane
        if not self._config.statestore_cache_max_bytes or lane is None:
            return super().get_all_state_stores()
        stores = dict(lane._worker.global_tables._stores)
        for task in lane._tasks.values():
            stores |= {name: store for name, store in task.task.runtime.stores.items()
                       if name not in stores}
        return stores

    def _end(self) -> None:
        if not self._ended and self._lanes[-1].lane is not None:
            self._lanes[-1].close()
        super()._end()
