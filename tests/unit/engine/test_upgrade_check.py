"""The upgrade check: a restart uses the existing state, or reports why it cannot."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from penstock import Materialized, Serdes, StreamsBuilder, StreamsConfig, TimeWindows, Topology
from penstock.engine.layout.application_description import describe_application
from penstock.engine.layout.execution_graph import build_graph_for_log
from penstock.engine.layout.internal_topics import ensure_internal_topics
from penstock.engine.layout.upgrade_check import migrate_task_records
from penstock.engine.plan.task_records import (
    BATCH_KEY,
    RESET_KEY,
    BatchRecord,
    TaskRecord,
    TaskRecords,
    encode_batch,
    encode_task,
    read_task_records,
    task_key,
)
from penstock.errors import StreamsException, TopologyException
from penstock.log import Log, RecordColumns, TopicPartition
from penstock.log.errors import Fenced
from penstock.record import TaskId
from penstock.task.punctuation import ScheduleState
from penstock.task.result import TaskState

TEXT = Serdes.string()
CONFIG = StreamsConfig(application_id="app", execution="batch")
Define = Callable[[StreamsBuilder], Any]


@pytest.fixture(autouse=True)
def topics(log: Log) -> None:
    for topic in ("a", "b"):
        log.create_topic(topic, 2, {"retention.ms": -1})


def topology(*definitions: Define) -> Topology:
    builder = StreamsBuilder()
    for define in definitions:
        define(builder)
    return builder.build()


def counts(b: StreamsBuilder) -> None:
    b.stream("a", key=TEXT, value=TEXT).group_by_key().count(store="counts")


def copies(b: StreamsBuilder) -> None:
    b.stream("b", key=TEXT, value=TEXT).to("out")


def start(log: Log, *definitions: Define) -> TaskRecords:
    built = topology(*definitions)
    graph = build_graph_for_log(log, built, CONFIG)
    records = migrate_task_records(log, None, built, CONFIG, graph)
    ensure_internal_topics(log, graph)
    return records


def commit_records(log: Log, **tasks: TaskRecord) -> None:
    """Write the records of a batch. The argument t0_1 is the record of task 0_1."""
    keys = [*(name[1:].encode() for name in tasks), BATCH_KEY]
    values = [*map(encode_task, tasks.values()), encode_batch(BatchRecord(4, 9))]
    log.append("app-tasks", 0, RecordColumns(keys, values))


def record(stream_time: int, **state: Any) -> TaskRecord:
    return TaskRecord(4, 1, TaskState(stream_time, **state))


def written(log: Log) -> int:
    return log.offsets([TopicPartition("app-tasks", 0)])["app-tasks", 0].end


def test_first_start_writes_a_description(log: Log) -> None:
    assert start(log, counts) == TaskRecords()
    assert read_task_records(log, "app").application is not None


def test_start_without_changes_writes_nothing(log: Log) -> None:
    start(log, counts)
    commit_records(log, t0_0=record(7))
    before = written(log)
    assert start(log, counts).tasks == {TaskId(0, 0): record(7)}
    assert written(log) == before


def test_changed_functions_are_compatible(log: Log) -> None:
    def filtered(b: StreamsBuilder) -> None:
        b.stream("a", key=TEXT, value=TEXT).group_by_key().aggregate(
            lambda: 0, lambda key, value, total: total + len(value),
            store=Materialized("counts", value=Serdes.long()),
        )

    start(log, counts)
    commit_records(log, t0_0=record(7))
    assert start(log, filtered).tasks == {TaskId(0, 0): record(7)}


def test_renumbered_tasks_keep_their_records(log: Log) -> None:
    start(log, counts)
    commit_records(log, t0_0=record(7), t0_1=record(8))
    assert start(log, copies, counts).tasks == {TaskId(1, 0): record(7), TaskId(1, 1): record(8)}
    kept = read_task_records(log, "app")
    assert kept.tasks == {TaskId(1, 0): record(7), TaskId(1, 1): record(8)}
    # The next start finds no change.
    before = written(log)
    start(log, copies, counts)
    assert written(log) == before


def test_merged_task_resumes_from_both_records(log: Log) -> None:
    def sums(b: StreamsBuilder) -> None:
        b.stream("b", key=TEXT, value=TEXT).group_by_key().count(store="sums")

    def both(b: StreamsBuilder) -> None:
        left = b.stream("a", key=TEXT, value=TEXT).group_by_key().count(store="counts")
        right = b.stream("b", key=TEXT, value=TEXT).group_by_key().count(store="sums")
        left.join(right, lambda x, y: x + y)

    start(log, counts, sums)
    schedule = ScheduleState("n", 0, 5, False)
    commit_records(
        log,
        t0_0=record(7, partition_times={("a", 0): 7}, wall_schedules=(schedule,)),
        t1_0=record(3, partition_times={("b", 0): 3}, store_clocks={"sums": {"time": 3}}),
    )
    assert start(log, both).tasks == {TaskId(0, 0): record(
        7, partition_times={("a", 0): 7, ("b", 0): 3}, store_clocks={"sums": {"time": 3}},
        wall_schedules=(schedule,),
    )}


def test_removed_store_causes_a_warning(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    start(log, counts, copies)
    commit_records(log)
    with caplog.at_level(logging.WARNING):
        start(log, copies)
    assert "Store 'counts' is no longer used" in caplog.text


def test_reintroduced_store_is_refused_until_its_changelog_is_deleted(log: Log) -> None:
    start(log, counts, copies)
    commit_records(log)
    log.append("app-counts-changelog", 0, RecordColumns([b"k"], [b"v"]))
    start(log, copies)
    with pytest.raises(TopologyException, match="its changelog 'app-counts-changelog' holds"):
        start(log, counts, copies)
    log.delete_topic("app-counts-changelog")
    start(log, counts, copies)


def test_refusal_lists_all_reasons_and_the_alternatives(log: Log) -> None:
    def windows(b: StreamsBuilder) -> None:
        b.stream("a", key=TEXT, value=TEXT).group_by_key().windowed_by(
            TimeWindows.of(timedelta(seconds=1), grace=timedelta(0))
        ).count(store="counts")

    start(log, counts)
    commit_records(log)
    with pytest.raises(TopologyException) as refused:
        start(log, windows)
    assert str(refused.value).splitlines() == [
        "The topology does not fit the existing state of application 'app':",
        "- Store 'counts' was a timestamped key value store and is now a timestamped window store. "
        "It cannot read the existing rows. Rename the store to start with an empty one.",
        "'penstock upgrade FILE --application-id app --plan' lists all stores. Without --plan it "
        "moves rows to new store names, and takes --keep and --drop.",
        "Alternatively, delete the state with 'penstock reset app', or keep it and use another "
        "application id.",
    ]
    # A refused start writes nothing, so the old topology still starts.
    start(log, counts)


def test_more_partitions_of_a_source_are_refused_if_a_store_has_rows(log: Log) -> None:
    start(log, counts, copies)
    commit_records(log)
    log.add_partitions("b", 5)
    start(log, counts, copies)
    log.add_partitions("a", 3)
    with pytest.raises(TopologyException, match="'counts' had 2 partitions and would now have 3"):
        start(log, counts, copies)


def test_everything_can_change_before_the_first_batch(log: Log) -> None:
    start(log, counts)
    log.add_partitions("a", 3)
    built = topology(counts)
    graph = build_graph_for_log(log, built, CONFIG)
    assert migrate_task_records(log, None, built, CONFIG, graph).tasks == {}


def test_unread_repartition_records_prevent_the_upgrade(log: Log) -> None:
    def cycle(b: StreamsBuilder) -> None:
        stream = b.stream("a", key=TEXT, value=TEXT)
        stream.merge(stream.repartition(name="again")).to("out")

    def straight(b: StreamsBuilder) -> None:
        b.stream("a", key=TEXT, value=TEXT).repartition(name="again").to("out")

    start(log, cycle)
    commit_records(log)
    log.append("app-again-repartition", 1, RecordColumns([b"k"] * 3, [b"v"] * 3))
    log.commit_offsets("app", {TopicPartition("app-again-repartition", 1): 1})
    with pytest.raises(TopologyException, match="'app-again-repartition' holds 2 unread records"):
        start(log, straight)
    log.commit_offsets("app", {TopicPartition("app-again-repartition", 1): 3})
    start(log, straight)


def test_state_of_kafka_streams_is_taken_over(log: Log) -> None:
    log.create_topic("app-counts-changelog", 2, {"cleanup.policy": "compact"})
    log.append("app-counts-changelog", 0, RecordColumns([b"k"], [b"v"]))
    assert start(log, counts) == TaskRecords()


def test_interrupted_reset_prevents_the_start(log: Log) -> None:
    start(log, counts)
    log.append("app-tasks", 0, RecordColumns([RESET_KEY], [b"{}"]))
    with pytest.raises(StreamsException, match="A reset of application 'app' was interrupted"):
        start(log, counts)


def test_fenced_instance_writes_nothing(log: Log) -> None:
    lease = log.take_lease("app")
    log.take_lease("app")
    built = topology(counts)
    with pytest.raises(Fenced):
        migrate_task_records(log, lease, built, CONFIG, build_graph_for_log(log, built, CONFIG))
    assert read_task_records(log, "app").application is None


def test_description_contains_stores_without_serdes(log: Log) -> None:
    def all_kinds(b: StreamsBuilder) -> None:
        stream = b.stream("a", key=TEXT, value=TEXT)
        windows = TimeWindows.of(timedelta(seconds=1), grace=timedelta(0))
        stream.group_by_key().windowed_by(windows).count(store="w")
        stream.group_by_key().count(store=Materialized("unlogged", logging=False))

    built = topology(all_kinds)
    found = describe_application(built, CONFIG, build_graph_for_log(log, built, CONFIG)).stores
    assert {
        name: (store.kind, store.partitions, store.restored_from, store.window_size_ms)
        for name, store in found.items()
    } == {
        "w": ("timestamped_window", 2, "app-w-changelog", 1_000),
        "unlogged": ("timestamped_key_value", 2, None, None),
    }
    assert task_key(TaskId(0, 1)) == b"0_1"
