"""An application on an embedded log, run batch by batch in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock import Serdes, StreamsBuilder, StreamsConfig, Topology
from penstock.engine.commit import CommitResult, check_attempts, commit, find_failure
from penstock.engine.inline import InlineCompute
from penstock.engine.layout.execution_graph import build_graph_for_log
from penstock.engine.layout.internal_topics import ensure_internal_topics
from penstock.engine.packaging.bundle import Bundle
from penstock.engine.plan.batch_plan import BatchPlan
from penstock.engine.plan.planner import Planner
from penstock.engine.worker.outcome import TaskOutcome, decode_outcomes
from penstock.log import RecordColumns, open_log
from penstock.partitioning import partition_of
from penstock.task.drops import DropLog

#: The topics of tests hold records of the year 1970.
OLD_TIMES = {"retention.ms": "-1"}
ONE_TO_ONE = {"in": 2, "out": 2}
#: (key, value, timestamp)
Row = tuple[str | None, str | None, int]


def config_of(application_id: str = "app", **settings: Any) -> StreamsConfig:
    return StreamsConfig(**{
        "application_id": application_id, "execution": "batch",
        "default_key_serde": Serdes.string(), "default_value_serde": Serdes.string(),
        "statestore_cache_max_bytes": 0, **settings,
    })


def topology_of(define: Callable[[StreamsBuilder], object]) -> Topology:
    builder = StreamsBuilder()
    define(builder)
    return builder.build()


class Application:
    """A topology, its topics, and the parts of an engine, run batch by batch.

    `batch` limits the records of a batch. With `new_workers` every batch runs in a new worker that
    has only the log. `crash` rebuilds everything from the log, as after a crash.
    """

    def __init__(
        self, topology: Topology, directory: Path, topics: Mapping[str, int], *,
        config: StreamsConfig | None = None, batch: int | None = None, parallelism: int = 2,
        new_workers: bool = False, **bundle: Any,
    ) -> None:
        extra = {} if batch is None else {"penstock.batch.max.records": str(batch)}
        config = config if config is not None else config_of()
        self.topology = topology
        self.config = config.with_(
            extra={**config.extra, **extra}, state_dir=str(directory / "state")
        )
        self.now = 0
        self.log = open_log(directory / "log.db")
        for topic, partitions in topics.items():
            self.log.create_topic(topic, partitions, OLD_TIMES)
        self.lease = self.log.take_lease(self.config.application_id)
        self._options = {"parallelism": parallelism, **bundle}
        self._new_workers = new_workers
        self._drop_log = DropLog()
        self.outcomes: list[TaskOutcome] = []
        self.start()

    def start(self) -> None:
        self.graph = build_graph_for_log(self.log, self.topology, self.config)
        ensure_internal_topics(self.log, self.graph)
        self.bundle = Bundle(
            self.topology, self.config, self.graph, self.log.address, **self._options
        )
        self.compute = InlineCompute(self.bundle.dump(), new_workers=self._new_workers)
        self.planner = Planner(self.log, self.graph, self.config, self.topology, now_ms=self.now)

    def crash(self) -> None:
        self.compute.close()
        self.start()

    def send(self, topic: str, *rows: Row) -> None:
        """Append records, each to the partition of its key."""
        partitions = self.log.topic(topic).partitions
        by_partition: dict[int, list[Row]] = {}
        for row in rows:
            partition = 0 if row[0] is None else partition_of(row[0].encode(), partitions)
            by_partition.setdefault(partition, []).append(row)
        for partition, rows_of_partition in by_partition.items():
            self.append(topic, partition, rows_of_partition)

    def append(self, topic: str, partition: int, rows: Sequence[Row]) -> None:
        keys = [None if key is None else key.encode() for key, _, _ in rows]
        values = [None if value is None else value.encode() for _, value, _ in rows]
        times = [time for _, _, time in rows]
        self.log.append(topic, partition, RecordColumns(keys, values, times))

    def plan(self) -> BatchPlan | None:
        return self.planner.next_plan(self.now, self.lease.epoch)

    def run_batch(self) -> CommitResult | None:
        plan = self.plan()
        if plan is None:
            return None
        outcomes = decode_outcomes(self.compute.compute(plan))
        failure = find_failure(outcomes)
        if failure is not None:
            raise failure
        check_attempts(plan, outcomes)
        self.outcomes = outcomes
        result = commit(
            self.log, self.lease, plan, outcomes, graph=self.graph, offsets=self.planner.offsets,
            records=self.planner.records,
        )
        self.planner.advance(plan, result.offsets, result.records)
        for outcome in outcomes:
            self._drop_log.add(outcome.task_id, outcome.drops)
        return result

    def run(self) -> int:
        """Run batches until there is nothing to do, and return their number."""
        count = 0
        while self.run_batch() is not None:
            count += 1
            assert count < 10_000
        return count

    def rows(self, topic: str, partition: int | None = None) -> list[tuple[Any, ...]]:
        """Return the (key, value, timestamp) of a topic's records, partition by partition."""
        numbers = range(self.log.topic(topic).partitions) if partition is None else [partition]
        return [
            row for number in numbers for batch in self.log.read(topic, number, 0)
            for rows in [batch.columns()]
            for row in zip(rows.keys, rows.values, rows.timestamps, strict=True)
        ]

    def texts(self, topic: str) -> list[tuple[str, str, int]]:
        return [
            ("" if key is None else key.decode(), "" if value is None else value.decode(), time)
            for key, value, time in self.rows(topic)
        ]

    def close(self) -> None:
        self.compute.close()
        self.log.close()

    def __enter__(self) -> Application:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
