"""Plans: the records that a batch reads, the tasks that run, and the start offsets."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import pytest

from penstock import AutoOffsetReset, Serdes, StreamsBuilder, StreamsConfig, Topology
from penstock.engine.layout.execution_graph import build_graph_for_log
from penstock.engine.layout.internal_topics import ensure_internal_topics
from penstock.engine.plan.batch_plan import BatchPlan, Range
from penstock.engine.plan.batch_size import BatchDuration
from penstock.engine.plan.planner import Planner
from penstock.engine.plan.task_records import (
    BATCH_KEY,
    BatchRecord,
    TaskRecord,
    encode_batch,
    encode_task,
    task_key,
)
from penstock.errors import ConfigException, MissingSourceTopicException, StreamsException
from penstock.log import Log, RecordColumns, TopicPartition
from penstock.record import TaskId
from penstock.task.result import TaskState

TEXT = Serdes.string()
Built = Callable[[Callable[[StreamsBuilder], Any]], Topology]


def config(**settings: Any) -> StreamsConfig:
    return StreamsConfig(application_id="app", execution="batch", **settings)


def fill(log: Log, topic: str, *counts: int, times: Iterable[int] | None = None) -> None:
    """Append so many records to each partition. Create the topic if it does not exist."""
    if topic not in {each.name for each in log.topics()}:
        log.create_topic(topic, len(counts), {"retention.ms": -1})
    for partition, count in enumerate(counts):
        if count:
            timestamps = list(times) if times is not None else [1_000] * count
            log.append(topic, partition, RecordColumns([b"k"] * count, [b"v"] * count, timestamps))


def copying(*topics: str, **options: Any) -> Topology:
    builder = StreamsBuilder()
    builder.stream(list(topics), key=TEXT, value=TEXT, **options).to("out")
    return builder.build()


def joined(*topics: str) -> Topology:
    """One sub-topology that reads several topics."""
    builder = StreamsBuilder()
    first, *others = (builder.stream(topic, key=TEXT, value=TEXT) for topic in topics)
    for other in others:
        first = first.merge(other)
    first.to("out")
    return builder.build()


class Run:
    """A planner, and commits that consume what was planned."""

    def __init__(
        self, log: Log, topology: Topology, config: StreamsConfig, now: int = 1_000
    ) -> None:
        self.log = log
        self.graph = build_graph_for_log(log, topology, config)
        ensure_internal_topics(log, self.graph)
        self.planner = Planner(log, self.graph, config, topology, now_ms=now)

    def plan(self, now: int = 1_000) -> BatchPlan:
        plan = self.planner.next_plan(now, epoch=1)
        assert plan is not None
        return plan

    def commit(
        self, plan: BatchPlan, consumed: dict[tuple[str, int], int] | None = None,
        due: int | None = None, **observed: Any,
    ) -> None:
        offsets: dict[tuple[str, int], int] = dict(self.planner.offsets)
        for task in plan.tasks.values():
            offsets |= {(each.topic, each.partition): each.end for each in task.ranges}
        offsets |= consumed or {}
        records = {
            task_id: TaskRecord(plan.number, 7, TaskState(5), next_wall_punctuation=due)
            for task_id in plan.tasks
        }
        batch = BatchRecord.of(plan, self.graph.source_topics)
        with self.log.transaction() as transaction:
            keys = [*map(task_key, records), BATCH_KEY]
            values = [*map(encode_task, records.values()), encode_batch(batch)]
            transaction.append("app-tasks", 0, RecordColumns(keys, values))
            transaction.commit_offsets(
                "app", {TopicPartition(*at): offset for at, offset in offsets.items()}
            )
        self.planner.advance(plan, offsets, records, **observed)


def ranges(plan: BatchPlan) -> list[Range]:
    return [each for task in plan.tasks.values() for each in task.ranges]


# ---- basic plans -------------------------------------------------------------------------------


def test_first_plan_reads_everything_and_runs_every_task(log: Log) -> None:
    fill(log, "a", 3, 0)
    run = Run(log, copying("a"), config())
    plan = run.plan(now=5_000)
    assert (plan.number, plan.epoch, plan.now) == (1, 1, 5_000)
    assert ranges(plan) == [Range("a", 0, 0, 3, False)]
    assert list(plan.tasks) == [TaskId(0, 0), TaskId(0, 1)]
    assert all(task.punctuate for task in plan.tasks.values())


def test_no_plan_when_there_is_nothing_to_do(log: Log) -> None:
    fill(log, "a", 3)
    run = Run(log, copying("a"), config())
    run.commit(run.plan())
    assert run.planner.next_plan(2_000, 1) is None
    assert run.planner.next_due is None
    assert run.planner.lag() == {("a", 0): 0}


def test_next_plan_starts_at_the_committed_offsets(log: Log) -> None:
    fill(log, "a", 5)
    run = Run(log, copying("a"), config())
    run.commit(run.plan(), {("a", 0): 2})
    plan = run.plan()
    assert plan.number == 2
    assert ranges(plan) == [Range("a", 0, 2, 5, False)]
    assert plan.tasks[TaskId(0, 0)].state == TaskState(5)
    assert (plan.tasks[TaskId(0, 0)].last_batch, plan.tasks[TaskId(0, 0)].last_attempt) == (1, 7)
    assert not plan.tasks[TaskId(0, 0)].punctuate


def test_uncommitted_plan_is_repeated(log: Log) -> None:
    fill(log, "a", 5)
    run = Run(log, copying("a"), config())
    assert run.plan() == run.plan()


def test_new_planner_resumes_from_the_log(log: Log) -> None:
    fill(log, "a", 5)
    run = Run(log, copying("a"), config())
    run.commit(run.plan(now=9_000), {("a", 0): 4})
    again = Run(log, copying("a"), config(), now=10)
    plan = again.plan(now=10)
    # The wall clock of batches does not go back.
    assert (plan.number, plan.now) == (2, 9_000)
    assert ranges(plan) == [Range("a", 0, 4, 5, False)]
    assert plan.tasks[TaskId(0, 0)].state == TaskState(5)


def test_advancing_by_another_batch_is_an_error(log: Log) -> None:
    fill(log, "a", 1)
    run = Run(log, copying("a"), config())
    plan = run.plan()
    run.commit(plan)
    with pytest.raises(StreamsException, match="Batch 1 was committed, but batch 2 was expected"):
        run.planner.advance(plan, {}, {})


# ---- sizes -------------------------------------------------------------------------------------


def test_batch_reads_a_fair_share_of_every_partition(log: Log) -> None:
    fill(log, "a", 100, 2, 50)
    run = Run(log, copying("a"), config(extra={"penstock.batch.max.records": 32}))
    assert ranges(run.plan()) == [
        Range("a", 0, 0, 15, True), Range("a", 1, 0, 2, False), Range("a", 2, 0, 15, True),
    ]


def test_batch_reads_at_least_one_record_of_every_partition(log: Log) -> None:
    fill(log, "a", 9, 9, 9)
    run = Run(log, copying("a"), config(extra={"penstock.batch.max.records": 1}))
    assert [each.end for each in ranges(run.plan())] == [1, 1, 1]


def test_batch_size_in_bytes_is_estimated_from_earlier_records(log: Log) -> None:
    fill(log, "a", 1_000)
    run = Run(log, copying("a"), config(extra={"penstock.batch.max.bytes": "10000"}))
    assert ranges(run.plan())[0].end == 10
    run.commit(run.plan(), bytes_read={"a": (10, 1_000)})
    assert ranges(run.plan())[0] == Range("a", 0, 10, 110, True)


def test_batches_grow_while_they_are_shorter_than_the_target(log: Log) -> None:
    fill(log, "a", 200_000)
    run = Run(log, copying("a"), config(extra={"penstock.batch.target.ms": 500}))
    sizes = []
    for seconds in (2.0, 0.15, 0.3, 0.5):
        plan = run.plan()
        sizes.append(ranges(plan)[0].end - ranges(plan)[0].start)
        run.commit(plan, duration=BatchDuration(seconds))
    assert sizes[:2] == [20_000, 20_000]
    assert sizes[1] < sizes[2] <= sizes[3]


def test_batches_shrink_when_they_are_longer_than_the_target(log: Log) -> None:
    fill(log, "a", 200_000)
    run = Run(log, copying("a"), config())
    run.commit(run.plan(), {("a", 0): 0}, duration=BatchDuration(0.1))
    plan = run.plan()
    run.commit(plan, {("a", 0): 1_000}, duration=BatchDuration(4.0))
    assert ranges(run.plan())[0].end - 1_000 < 40_000 / 2


@pytest.mark.parametrize("bad", ["0", "many", -1])
def test_invalid_batch_size_is_refused(log: Log, bad: Any) -> None:
    fill(log, "a", 1)
    with pytest.raises(ConfigException, match=r"penstock\.batch\.max\.records must be an integer"):
        Run(log, copying("a"), config(extra={"penstock.batch.max.records": bad}))


def test_range_that_was_consumed_in_part_becomes_shorter(log: Log) -> None:
    fill(log, "a", 9_000)
    fill(log, "b", 9_000)
    limit = {"penstock.batch.max.records": 10_000}
    run = Run(log, joined("a", "b"), config(extra=limit))
    run.commit(run.plan(), {("b", 0): 3})
    lengths = {each.topic: each.end - each.start for each in ranges(run.plan())}
    assert lengths == {"a": 4_000, "b": 1_000}
    assert all(each.cut for each in ranges(run.plan()) if each.topic == "b")


# ---- waiting for empty partitions --------------------------------------------------------------


def test_without_task_idling_ranges_are_not_cut(log: Log) -> None:
    fill(log, "a", 100)
    fill(log, "b", 100)
    settings = config(max_task_idle_ms=-1, extra={"penstock.batch.max.records": 10})
    run = Run(log, joined("a", "b"), settings)
    assert [each.cut for each in ranges(run.plan())] == [False, False]


def test_task_waits_for_an_empty_partition_up_to_the_idle_time(log: Log) -> None:
    fill(log, "a", 2)
    fill(log, "b", 1)
    run = Run(log, joined("a", "b"), config(max_task_idle_ms=500))
    plan = run.plan(now=1_000)
    assert all(each.cut for each in ranges(plan))
    run.commit(plan, {("a", 0): 1})
    assert run.planner.next_plan(2_000, 1) is None
    assert run.planner.next_due == 2_500
    assert run.planner.next_plan(2_499, 1) is None
    assert [each.topic for each in ranges(run.plan(now=2_500))] == ["a"]
    run.commit(run.plan(now=2_500))
    # The task has already waited long enough for b.
    fill(log, "a", 1)
    assert [each.topic for each in ranges(run.plan(now=2_501))] == ["a"]
    assert run.planner.next_due is None


# ---- which tasks run ---------------------------------------------------------------------------


def counting(b: StreamsBuilder) -> None:
    b.stream("a", key=TEXT, value=TEXT).group_by(lambda k, v: v).count(store="counts")
    b.stream("quiet", key=TEXT, value=TEXT).to("out")


def test_plan_contains_all_tasks_that_may_receive_records(log: Log, built: Built) -> None:
    fill(log, "a", 1, 0)
    fill(log, "quiet", 0)
    run = Run(log, built(counting), config())
    run.commit(run.plan())
    fill(log, "a", 1, 0)
    plan = run.plan()
    assert list(plan.tasks) == [TaskId(0, 0), TaskId(1, 0), TaskId(1, 1)]
    assert [len(task.ranges) for task in plan.tasks.values()] == [1, 0, 0]


def test_store_positions_are_the_ends_of_the_changelogs(log: Log, built: Built) -> None:
    fill(log, "a", 1, 1)
    fill(log, "quiet", 0)
    run = Run(log, built(counting), config())
    assert run.plan().tasks[TaskId(1, 1)].positions == {"counts": 0}
    log.append("app-counts-changelog", 1, RecordColumns([b"k"], [b"v"]))
    assert run.plan().tasks[TaskId(1, 1)].positions == {"counts": 1}
    assert run.plan().tasks[TaskId(1, 0)].positions == {"counts": 0}
    assert run.plan().tasks[TaskId(0, 0)].positions == {}


def test_position_in_a_source_changelog_is_the_committed_offset(log: Log) -> None:
    fill(log, "t", 5)
    settings = config(topology_optimization="all")
    builder = StreamsBuilder()
    builder.table("t", key=TEXT, value=TEXT, store="rows")
    run = Run(log, builder.build(settings), settings)
    assert run.graph.changelogs == {}
    assert run.plan().tasks[TaskId(0, 0)].positions == {"rows": 0}
    run.commit(run.plan(), {("t", 0): 3})
    assert run.plan().tasks[TaskId(0, 0)].positions == {"rows": 3}


def test_task_runs_when_a_punctuation_is_due(log: Log) -> None:
    fill(log, "a", 1)
    run = Run(log, copying("a"), config())
    run.commit(run.plan(), due=5_000)
    assert run.planner.next_due == 5_000
    assert run.planner.next_plan(4_999, 1) is None
    plan = run.plan(now=5_000)
    assert [(task.ranges, task.punctuate) for task in plan.tasks.values()] == [((), True)]


def test_plan_contains_the_ends_of_global_topics(log: Log, built: Built) -> None:
    fill(log, "g", 2, 1)
    fill(log, "a", 1)

    def define(b: StreamsBuilder) -> None:
        b.global_table("g", key=TEXT, value=TEXT, store="all")
        b.stream("a", key=TEXT, value=TEXT).to("out")

    run = Run(log, built(define), config())
    assert run.plan().global_positions == {("g", 0): 2, ("g", 1): 1}
    run.commit(run.plan())
    fill(log, "g", 1, 0)
    # New records of a global table alone do not cause a batch.
    assert run.planner.next_plan(1_000, 1) is None


# ---- start offsets -----------------------------------------------------------------------------


def start_offset(
    log: Log, policy: AutoOffsetReset | None, settings: StreamsConfig | None = None
) -> int:
    run = Run(log, copying("a", offset_reset=policy), settings or config(), now=10_000)
    return run.planner.offsets[TopicPartition("a", 0)]


def test_source_without_a_committed_offset_uses_its_reset_policy(log: Log) -> None:
    fill(log, "a", 4, times=[1_000, 5_000, 6_000, 9_000])
    log.delete_records("a", 0, 1)
    assert start_offset(log, None) == 1
    assert start_offset(log, AutoOffsetReset.earliest()) == 1
    assert start_offset(log, AutoOffsetReset.latest()) == 4
    assert start_offset(log, AutoOffsetReset.by_duration(timedelta(seconds=4))) == 2
    assert start_offset(log, AutoOffsetReset.by_duration(timedelta(milliseconds=1))) == 4
    with pytest.raises(StreamsException, match=r"'a' \[0\] has no committed offset, and its"):
        start_offset(log, AutoOffsetReset.none())


@pytest.mark.parametrize(("text", "offset"), [
    ("earliest", 0), ("latest", 4), ("by_duration:PT4S", 2), ("by_duration:P1DT1H1M1.5S", 0),
])
def test_default_reset_policy_is_configurable(log: Log, text: str, offset: int) -> None:
    fill(log, "a", 4, times=[1_000, 5_000, 6_000, 9_000])
    assert start_offset(log, None, config(extra={"auto.offset.reset": text})) == offset
    both = {"auto.offset.reset": "none", "consumer.auto.offset.reset": text}
    assert start_offset(log, None, config(extra=both)) == offset


def test_invalid_reset_policy_is_refused(log: Log) -> None:
    fill(log, "a", 1)
    with pytest.raises(ConfigException, match=r"auto\.offset\.reset must be.*not 'by_duration:4s'"):
        start_offset(log, None, config(extra={"auto.offset.reset": "by_duration:4s"}))


def test_records_that_arrive_before_the_first_batch_are_not_skipped(log: Log) -> None:
    fill(log, "a", 4)
    run = Run(log, copying("a", offset_reset=AutoOffsetReset.latest()), config())
    fill(log, "a", 2)
    assert ranges(run.plan()) == [Range("a", 0, 4, 6, False)]


def test_committed_offset_overrides_the_reset_policy(log: Log) -> None:
    fill(log, "a", 4)
    log.commit_offsets("app", {TopicPartition("a", 0): 2})
    assert start_offset(log, AutoOffsetReset.none()) == 2


def test_lost_offset_is_an_error(log: Log) -> None:
    fill(log, "a", 4)
    run = Run(log, copying("a"), config())
    run.commit(run.plan())
    log.delete_group("app")
    with pytest.raises(StreamsException, match=r"offset of 'a' \[0\] is missing\. Batch 1 of"):
        Run(log, copying("a"), config())


def test_added_partitions_are_read_from_their_start(log: Log) -> None:
    fill(log, "a", 4)
    latest = copying("a", offset_reset=AutoOffsetReset.latest())
    run = Run(log, latest, config())
    run.commit(run.plan())
    log.add_partitions("a", 2)
    fill(log, "a", 0, 3)
    assert Run(log, latest, config()).planner.offsets == {("a", 0): 4, ("a", 1): 0}


def test_added_topic_uses_its_reset_policy(log: Log) -> None:
    fill(log, "a", 4)
    run = Run(log, copying("a"), config())
    run.commit(run.plan())
    fill(log, "b", 3)
    settings = config(extra={"auto.offset.reset": "latest"})
    assert Run(log, copying("a", "b"), settings).planner.offsets == {("a", 0): 4, ("b", 0): 3}


def test_offset_removed_by_retention_is_reset_with_a_warning(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    fill(log, "a", 4)
    run = Run(log, copying("a"), config())
    run.commit(run.plan(), {("a", 0): 1})
    log.delete_records("a", 0, 3)
    with caplog.at_level(logging.WARNING):
        assert ranges(run.plan()) == [Range("a", 0, 3, 4, False)]
    assert "'a' [0] starts at 3, after the committed offset 1" in caplog.text
    assert "continues at 3 (earliest)" in caplog.text


def test_offset_removed_by_retention_is_an_error_with_policy_none(log: Log) -> None:
    fill(log, "a", 4)
    log.commit_offsets("app", {TopicPartition("a", 0): 1})
    run = Run(log, copying("a", offset_reset=AutoOffsetReset.none()), config())
    log.delete_records("a", 0, 3)
    with pytest.raises(StreamsException, match="starts at 3, after the committed offset 1, and"):
        run.plan()


def test_offset_beyond_the_end_is_an_error(log: Log) -> None:
    fill(log, "a", 4)
    log.commit_offsets("app", {TopicPartition("a", 0): 9})
    run = Run(log, copying("a"), config())
    with pytest.raises(StreamsException, match=r"offset 9 of 'a' \[0\] is beyond the end"):
        run.plan()


# ---- topics that change while the application runs ---------------------------------------------


def test_new_topics_of_a_pattern_are_found_after_the_metadata_age(log: Log, built: Built) -> None:
    fill(log, "in-1", 1)
    topology = built(lambda b: b.stream(re.compile("in-.*"), key=TEXT, value=TEXT).to("out"))
    run = Run(log, topology, config(extra={"metadata.max.age.ms": 1_000}))
    fill(log, "in-2", 1)
    fill(log, "elsewhere", 1)
    run.plan(now=1_999)
    assert not run.planner.graph_changed
    run.plan(now=2_000)
    assert run.planner.graph_changed
    assert sorted(build_graph_for_log(log, topology, config()).source_topics) == ["in-1", "in-2"]


def test_topic_of_a_pattern_can_be_deleted(log: Log, built: Built) -> None:
    fill(log, "in-1", 1)
    fill(log, "in-2", 1)
    topology = built(lambda b: b.stream(re.compile("in-.*"), key=TEXT, value=TEXT).to("out"))
    run = Run(log, topology, config())
    log.delete_topic("in-2")
    assert run.planner.next_plan(1_000, 1) is None
    assert run.planner.graph_changed
    assert sorted(build_graph_for_log(log, topology, config()).source_topics) == ["in-1"]


def test_unrelated_topic_does_not_change_the_graph(log: Log) -> None:
    fill(log, "a", 1)
    run = Run(log, copying("a"), config(extra={"metadata.max.age.ms": 0}))
    fill(log, "other", 1)
    run.plan(now=2_000)
    assert not run.planner.graph_changed


def test_recreated_topic_is_an_error(log: Log) -> None:
    fill(log, "a", 1)
    run = Run(log, copying("a"), config(extra={"metadata.max.age.ms": 0}))
    log.delete_topic("a")
    fill(log, "a", 1)
    with pytest.raises(StreamsException, match="'a' was deleted and recreated"):
        run.plan(now=2_000)


def test_deleted_topic_is_an_error(log: Log) -> None:
    fill(log, "a", 1)
    run = Run(log, copying("a"), config())
    log.delete_topic("a")
    with pytest.raises(MissingSourceTopicException, match=r"topic was deleted .* Topic 'a'"):
        run.plan()
