"""Internal topics: creation, checks, and expired changelogs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from penstock import Materialized, Serdes, StreamsBuilder, StreamsConfig, TimeWindows, Topology
from penstock.engine.layout.execution_graph import ExecutionGraph, build_graph_for_log
from penstock.engine.layout.internal_topics import ensure_internal_topics, find_expired_changelogs
from penstock.engine.plan.task_records import TaskRecord
from penstock.errors import MisconfiguredInternalTopicException
from penstock.log import Log, RecordColumns, TopicPartition
from penstock.record import TaskId
from penstock.task.result import TaskState

TEXT = Serdes.string()
CONFIG = StreamsConfig(application_id="app")
Built = Callable[[Callable[[StreamsBuilder], Any]], Topology]


def define(b: StreamsBuilder) -> None:
    stream = b.stream("a", key=TEXT, value=TEXT)
    merged = stream.merge(stream.repartition(name="again"))
    grouped = merged.group_by_key()
    grouped.count(store="counts")
    windows = TimeWindows.of(timedelta(seconds=10), grace=timedelta(0))
    grouped.windowed_by(windows).count(store="windows")


@pytest.fixture
def graph(log: Log, built: Built) -> ExecutionGraph:
    log.create_topic("a", 2)
    return build_graph_for_log(log, built(define), CONFIG)


def test_missing_topics_are_created_once(log: Log, graph: ExecutionGraph) -> None:
    assert sorted(ensure_internal_topics(log, graph)) == [
        "app-again-repartition", "app-counts-changelog", "app-tasks", "app-windows-changelog",
    ]
    assert ensure_internal_topics(log, graph) == []
    assert log.topic("app-tasks").partitions == 1
    assert log.topic("app-tasks").setting("cleanup.policy") == "compact"
    assert log.topic("app-counts-changelog").partitions == 2
    assert log.topic("app-windows-changelog").setting("cleanup.policy") == "compact,delete"
    assert log.topic("app-again-repartition").setting("retention.ms") == "-1"


def test_wrong_number_of_partitions_is_refused_and_nothing_is_created(
    log: Log, graph: ExecutionGraph
) -> None:
    log.create_topic("app-counts-changelog", 3, {"cleanup.policy": "compact"})
    with pytest.raises(
        MisconfiguredInternalTopicException,
        match="app-counts-changelog has invalid partitions: expected: 2; actual: 3",
    ):
        ensure_internal_topics(log, graph)
    assert [topic.name for topic in log.topics()] == ["a", "app-counts-changelog"]


def test_changelog_without_compaction_is_refused(log: Log, graph: ExecutionGraph) -> None:
    log.create_topic("app-counts-changelog", 2)
    with pytest.raises(MisconfiguredInternalTopicException, match="is not compacted"):
        ensure_internal_topics(log, graph)


def test_changed_settings_are_kept(log: Log, graph: ExecutionGraph) -> None:
    ensure_internal_topics(log, graph)
    log.alter_topic("app-counts-changelog", {"max.message.bytes": 77})
    ensure_internal_topics(log, graph)
    assert log.topic("app-counts-changelog").setting("max.message.bytes") == "77"


def test_window_changelog_expires_by_the_stream_time_of_its_store(log: Log, built: Built) -> None:
    log.create_topic("a", 2)
    config = StreamsConfig(
        application_id="app", windowstore_changelog_additional_retention_ms=5_000
    )
    graph = build_graph_for_log(log, built(define), config)
    # Ten seconds of retention, a segment of a minute, and the additional retention.
    assert graph.window_retention_ms == {"app-windows-changelog": 75_000}
    ensure_internal_topics(log, graph)
    keys = [b"a", b"b", b"c", b"d"]
    times = [1_000, 2_000, 30_000, 31_000]
    log.append("app-windows-changelog", 0, RecordColumns(keys, [b"v"] * 4, times))
    # The wall clock does not expire records of the year 1970.
    log.clean(force=True)
    at = TopicPartition("app-windows-changelog", 0)
    assert log.offsets([at])[at].start == 0

    def expired(stream_time: int) -> dict[TopicPartition, int]:
        # The stream time of the task is ignored.
        state = TaskState(10**12, store_clocks={"windows": {"stream_time": stream_time}})
        records = {TaskId(0, 0): TaskRecord(1, 0, state), TaskId(0, 1): TaskRecord(1, 0)}
        return find_expired_changelogs(log, graph, records)

    assert expired(-1) == {}
    assert expired(76_000) == {at: 0}
    assert expired(77_000) == {at: 1}
    assert expired(105_000) == {at: 2}
    assert expired(10**9) == {}


def test_retention_set_by_the_user_is_kept(log: Log, built: Built) -> None:
    def with_retention(b: StreamsBuilder) -> None:
        windows = TimeWindows.of(timedelta(seconds=10), grace=timedelta(0))
        b.stream("a", key=TEXT, value=TEXT).group_by_key().windowed_by(windows).count(
            store=Materialized("windows", log_config={"retention.ms": "1234"})
        )

    log.create_topic("a", 1)
    graph = build_graph_for_log(log, built(with_retention), CONFIG)
    assert graph.window_retention_ms == {}
    assert graph.changelogs["app-windows-changelog"][1]["retention.ms"] == "1234"
