"""Housekeeping: the records that are deleted from the log between batches."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock import Serdes, StreamsBuilder, StreamsConfig, TimeWindows
from penstock.engine import housekeeping
from penstock.engine.housekeeping import Housekeeping
from penstock.engine.layout.execution_graph import ExecutionGraph, build_graph_for_log
from penstock.engine.layout.internal_topics import ensure_internal_topics
from penstock.engine.plan.task_records import TaskRecord
from penstock.log import Log, RecordColumns, TopicPartition
from penstock.record import TaskId
from penstock.task.result import TaskState

TEXT = Serdes.string()
WINDOWS = TopicPartition("app-windows-changelog", 0)
REPARTITION = TopicPartition("app-again-repartition", 0)


@pytest.fixture
def graph(log: Log) -> ExecutionGraph:
    builder = StreamsBuilder()
    stream = builder.stream("a", key=TEXT, value=TEXT)
    stream.merge(stream.repartition(name="again")).group_by_key().windowed_by(
        TimeWindows.of(timedelta(seconds=1), grace=timedelta(0))
    ).count(store="windows")
    log.create_topic("a", 1)
    config = StreamsConfig(
        application_id="app", windowstore_changelog_additional_retention_ms=0
    )
    graph = build_graph_for_log(log, builder.build(), config)
    ensure_internal_topics(log, graph)
    for topic in ("app-windows-changelog", "app-again-repartition"):
        log.append(topic, 0, RecordColumns([b"x", b"y"], [b"v", b"v"], [1_000, 500_000]))
    return graph


def run_round(log: Log, graph: ExecutionGraph) -> dict[TopicPartition, int]:
    """Run a round and return the start offsets of the topics."""
    keeping = Housekeeping(log, graph, purge_interval_ms=0)
    state = TaskState(store_clocks={"windows": {"stream_time": 500_000}})
    keeping.after_commit({("a", 0): 0, REPARTITION: 1}, {TaskId(0, 0): TaskRecord(1, 0, state)})
    keeping.close()
    return {at: bounds.start for at, bounds in log.offsets([WINDOWS, REPARTITION]).items()}


def test_consumed_repartition_records_are_purged(log: Log, graph: ExecutionGraph) -> None:
    assert run_round(log, graph) == {WINDOWS: 0, REPARTITION: 1}


def test_expired_windows_are_deleted_when_the_log_is_cleaned(
    log: Log, graph: ExecutionGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "CLEAN_INTERVAL_S", 0.0)
    assert run_round(log, graph) == {WINDOWS: 1, REPARTITION: 1}


def test_repartition_records_are_purged_between_commits_and_once(
    log: Log, graph: ExecutionGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    purged = []
    delete = log.delete_records

    def record(topic: str, partition: int, before: int) -> int:
        purged.append((topic, partition, before))
        return delete(topic, partition, before)

    monkeypatch.setattr(log, "delete_records", record)
    keeping = Housekeeping(log, graph, purge_interval_ms=0)
    for offset in (1, 1, 2, 2):
        keeping.between_commits({("a", 0): offset, REPARTITION: offset})
        keeping.close()
    assert purged == [(*REPARTITION, 1), (*REPARTITION, 2)]


def test_purges_have_an_interval(log: Log, graph: ExecutionGraph) -> None:
    keeping = Housekeeping(log, graph, purge_interval_ms=3_600_000)
    keeping.between_commits({REPARTITION: 1})
    keeping.close()
    assert log.offsets([REPARTITION])[REPARTITION].start == 0
