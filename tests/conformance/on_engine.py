"""Runs a case on the engine: embedded log, plans, outcomes, commits, replicas.

`EngineDriver` has the interface of `TopologyTestDriver` that the runner uses. It appends an event
to the log and runs batches until the input is processed.
"""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from conformance.cases import Case, InvalidCase
from conformance.runner import CaseResult, Run
from penstock import StreamsConfig, Topology
from penstock.engine.batch_report import BatchReport
from penstock.engine.compute import Compute, ComputeFactory
from penstock.engine.inline import InlineCompute
from penstock.engine.layout.execution_graph import ExecutionGraph
from penstock.engine.loop import Engine
from penstock.engine.packaging.bundle import Bundle
from penstock.engine.plan.batch_plan import BatchPlan
from penstock.engine.plan.planner import Planner
from penstock.engine.worker.global_tables import GlobalTables
from penstock.engine.worker.replica_pool import ReplicaPool
from penstock.log import Log, RecordColumns, open_log
from penstock.queries.replicas import ReplicaSource
from penstock.queries.run_view import RunState, RunView
from penstock.queries.service import StoreQueries
from penstock.task.blueprint import Blueprint
from penstock.task.runtime import Environment
from penstock.task.task import Task
from penstock.topology.nodes import SinkNode, SourceNode
from penstock.topology.serde_check import check_serdes

#: Timestamps of cases are in the year 1970 or far in the future.
_ANY_TIME = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)}
_MAX_BATCHES = 200
_ENOUGH_MEMORY = 1 << 30


class Raw(NamedTuple):
    """A serialized record of a topic."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Any


def inline(
    topology: Topology, config: StreamsConfig, graph: ExecutionGraph, source: Log
) -> Compute:
    """Run tasks in this process. Blocks take the same path as on Spark."""
    return InlineCompute(Bundle(topology, config, graph, source.address, 1).dump())


@functools.cache
def _parent_directory() -> str | None:
    """A folder in memory if it has room: on a disk, cases mostly wait for the file system."""
    memory = Path("/dev/shm")
    if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > _ENOUGH_MEMORY:
        return str(memory)
    return None


def run_on_engine(case: Case, start_compute: ComputeFactory = inline) -> CaseResult:
    """Run a case. Its exception is part of the result."""
    result = CaseResult({"output": {}, "internal_topics": {}})
    directory = Path(tempfile.mkdtemp(prefix="penstock-case-", dir=_parent_directory()))
    try:
        EngineRun(case, result, directory, start_compute).run()
    except InvalidCase:
        raise
    except Exception as error:  # failures of cases are compared, too
        result.exception = error
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return result


class EngineRun(Run):
    """One run of one case on the engine."""

    def __init__(
        self, case: Case, result: CaseResult, directory: Path, start_compute: ComputeFactory,
        driver: type[EngineDriver] | None = None,
    ) -> None:
        super().__init__(case, result)
        self._driver_class = driver or EngineDriver
        self._directory = directory
        self._start_compute = start_compute

    def _is_queried(self, driver: Any, store: str) -> bool:
        """In batch mode, queries of stores without a changelog and of LRU maps may be a batch
        behind."""
        spec = driver._topology.stores.get(store)
        if spec is None or driver.serves_every_commit:
            return True
        builder = spec.resolve(driver._config)
        is_lru = getattr(builder.supplier, "max_entries", None) is not None
        return builder.logging_enabled and not is_lru

    def _driver(self, topology: Topology, config: Any) -> Any:
        if topology.global_stores:
            # Kafka's driver has this handler for global topics, whatever the configuration says.
            config = config.with_(deserialization_exception_handler="continue")
        check_serdes(topology, config)  # as Streams does
        return self._driver_class(
            topology,
            config.with_(
                log=str(self._directory / "log.db"), state_dir=str(self._directory / "state")
            ),
            topics_of(self.case, topology, config), self._start_compute,
            initial_wall_clock=self.case.get("wall", 0),
        )


def topics_of(case: Case, topology: Topology, config: StreamsConfig) -> set[str]:
    """The topics that must exist before the application starts: all topics named by the case."""
    found = {*case.get("topics", ()), *case["expect"].get("output", ())}
    found |= {event["topic"] for event in case.get("input", ()) if "topic" in event}
    for node in topology.nodes:
        if isinstance(node, SourceNode):
            found.update(topic for topic in node.topics if topic not in topology.internal_topics)
        elif isinstance(node, SinkNode) and isinstance(node.topic, str):
            found.add(node.topic)
    found -= topology.internal_topics.keys()
    found |= {store.topic for store in topology.global_stores.values()}
    if config.errors_dead_letter_queue_topic_name is not None:
        found.add(config.errors_dead_letter_queue_topic_name)
    return found


class EngineDriver:
    """An application on its own log, fed event by event.

    Single-threaded. The clock `now` advances only with the events of the case.
    """

    #: Whether queries show the last commit of all stores.
    serves_every_commit = False

    def __init__(
        self, topology: Topology, config: StreamsConfig, topics: Iterable[str],
        start_compute: ComputeFactory, *, initial_wall_clock: int,
    ) -> None:
        self.now = initial_wall_clock
        self.printed_lines: list[tuple[str | None, str]] = []
        self._topology = topology
        self._config = config
        self._dropped = 0
        self._ended = False
        self._read: dict[str, int] = {}
        #: (topic, offset) of the records of events.
        self._piped: set[tuple[str, int]] = set()
        self._open = ExitStack()
        self._open.enter_context(
            mock.patch("penstock.engine.loop.wall_clock_ms", self._wall_clock)
        )
        try:
            assert config.log is not None
            self._log = open_log(config.log, synchronous="OFF")
            self._open.callback(self._log.close)
            for topic in sorted(topics):
                self._log.create_topic(topic, 1, _ANY_TIME)
            self._open_engine(topology, config, start_compute)
            self._open.callback(self._end)
            self._graph = self._engine.graph
            self._run()
        except BaseException:
            self._open.close()
            raise

    def _open_engine(
        self, topology: Topology, config: StreamsConfig, start_compute: ComputeFactory
    ) -> None:
        config = config.with_(execution="batch")
        lease = self._log.take_lease(config.application_id)
        self._engine = Engine(topology, config, self._log, lease, start_compute)

    def _wall_clock(self) -> int:
        return self.now

    # ---- events ----

    def pipe(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Any
    ) -> None:
        if topic not in self._graph.source_topics and topic not in self._graph.global_topics:
            raise ValueError(f"Unknown topic: {topic}.")
        appended = self._log.append(topic, 0, RecordColumns([key], [value], [timestamp], [headers]))
        self._piped.add((topic, appended.base_offset))
        self._run()

    def advance_wall_clock_time(self, advance_ms: int) -> None:
        self.now += advance_ms
        self._run()

    def _run(self) -> None:
        for _ in range(_MAX_BATCHES):
            report = self._engine.run_batch()
            if report is None:
                return
            self._add(report)
        raise AssertionError(f"The input is not processed after {_MAX_BATCHES} batches.")

    def _add(self, report: BatchReport | None) -> None:
        if report is not None:
            self.printed_lines += report.printed
            self._dropped += sum(
                counters.get("dropped-records-total", 0) for counters in report.counters.values()
            )

    # ---- results ----

    def produced_topic_names(self) -> list[str]:
        return [topic.name for topic in self._log.topics()]

    def read_raw(self, topic: str) -> list[Raw]:
        found = []
        for batch in self._log.read(topic, 0, self._read.get(topic, 0)):
            rows = batch.columns()
            headers = rows.headers or [()] * len(rows)
            columns = rows.offsets, rows.keys, rows.values, rows.timestamps, headers
            found += [
                Raw(*record) for offset, *record in zip(*columns, strict=True)
                if (topic, offset) not in self._piped
            ]
            self._read[topic] = rows.offsets[-1] + 1
        return found

    def metrics(self) -> dict[str, int]:
        return {"dropped-records-total": self._dropped}

    def get_all_state_stores(self) -> dict[str, Any]:
        """Close the engine and open the stores as the next instance of the application would."""
        self._end()
        planner = Planner(
            self._log, self._graph, self._config, self._topology, now_ms=self.now
        )
        epoch = self._engine._lease.epoch
        # An application with global tables only has no tasks, hence no plan.
        plan = planner.next_plan(self.now, epoch) or BatchPlan(
            1, epoch, self.now, {}, planner.global_positions()
        )
        bundle = Bundle(self._topology, self._config, self._graph, self._log.address, 1)
        tables = GlobalTables(self._log, bundle)
        self._open.callback(tables.close)
        stores = dict(tables.stores(plan))
        for name, store in self._stores_of_tasks(bundle, plan):
            stores.setdefault(name, store)
        return stores

    @functools.cached_property
    def _store_queries(self) -> StoreQueries:
        """The queries of the application, from its replicas."""
        state, records = RunState(is_active=True, version=None), self._engine.planner.records
        view = RunView(lambda: state, lambda stopped: None, known_record=records.get)
        source = ReplicaSource(self._topology, self._config, view)
        self._open.callback(source.close)
        return StoreQueries(source)

    def _stores_of_tasks(self, bundle: Bundle, plan: BatchPlan) -> Iterator[tuple[str, Any]]:
        replicas = ReplicaPool(self._log, bundle)
        self._open.callback(replicas.close)
        for task_id, task_plan in plan.tasks.items():
            blueprint = Blueprint.of(self._topology, self._config, [task_id.subtopology])
            rows = self._open.enter_context(replicas.open(task_plan, blueprint, plan))
            environment = Environment(
                open_bytes=rows.open_bytes, now=plan.now, state_dir=self._config.state_dir
            )
            task = Task(blueprint, task_id, environment, task_plan.state)
            self._open.callback(task.close)
            rows.restore_custom_stores(task.runtime.stores)
            yield from task.runtime.stores.items()

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            self._engine.close()

    def close(self) -> None:
        self._open.close()
