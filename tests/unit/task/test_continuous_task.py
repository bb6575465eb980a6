"""A task that stays open: records arrive at any time, and commits follow when the caller wants."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Serdes, StreamsBuilder, StreamsConfig, Topology, native
from penstock.errors import StreamsException
from penstock.record import PartitionColumns, TaskId
from penstock.task.blueprint import Blueprint
from penstock.task.queue import CHUNK
from penstock.task.record_limits import RecordLimits
from penstock.task.runtime import Environment
from penstock.task.task import Task

TEXT = Serdes.string()


def merged() -> Topology:
    builder = StreamsBuilder()
    streams = [builder.stream(topic, key=TEXT, value=TEXT) for topic in ("a", "b")]
    streams[0].merge(streams[1]).to("out", key=TEXT, value=TEXT)
    return builder.build()


def task_of(
    topology: Topology, limits_of: Callable[[str], RecordLimits | None] = lambda topic: None
) -> Task:
    blueprint = Blueprint.of(topology, StreamsConfig(application_id="app"))
    task = Task(blueprint, TaskId(0, 0), Environment(limits_of=limits_of))
    task.start()
    for source in blueprint.sources:
        for topic in source.topics:
            task.subscribe(source.name, topic, 0)
    return task


def add(task: Task, topic: str, *times: int, first: int = 0) -> None:
    task.add_columns(PartitionColumns(
        topic=topic, partition=0, offsets=range(first, first + len(times)), timestamps=times,
        keys=[b"k"] * len(times), values=[b"%s%d" % (topic.encode(), time) for time in times],
    ))


def process(task: Task, cut: tuple[tuple[str, int], ...] = ()) -> list[bytes]:
    task.process_available(cut, lambda: False)
    return [row[3] for row in task.commit().outputs]


def test_records_that_arrive_later_are_processed_later() -> None:
    task = task_of(merged())
    add(task, "a", 1, 4)
    assert process(task) == [b"a1", b"a4"]
    add(task, "b", 2)
    add(task, "a", 5, first=2)
    assert process(task) == [b"b2", b"a5"]
    assert not task.has_records


def test_task_waits_where_a_cut_partition_is_empty() -> None:
    task = task_of(merged())
    add(task, "a", 1, 4)
    assert process(task, cut=(("b", 0),)) == []
    add(task, "b", 2)
    assert process(task, cut=(("b", 0),)) == [b"a1", b"b2"]
    assert task.queued(("a", 0)) == 1
    assert process(task) == [b"a4"]


def test_processing_stops_after_a_chunk_and_continues_with_new_records() -> None:
    task = task_of(merged())
    times = range(3 * CHUNK)
    add(task, "a", *times)
    assert task.process_available((), lambda: True)
    first = len(task.commit().outputs)
    assert 0 < first < len(times)
    add(task, "a", 10**6, first=len(times))
    rest = process(task)
    assert len(rest) == len(times) - first + 1
    assert rest[-1] == b"a1000000"


def test_offsets_follow_the_processed_records() -> None:
    task = task_of(merged())
    add(task, "a", *range(2 * CHUNK), first=7)
    task.process_available((), lambda: True)
    taken = task.taken_records
    result = task.commit()
    assert result.offsets == {("a", 0): 7 + taken}
    assert task.queued(("a", 0)) == 2 * CHUNK - taken
    assert task.taken_records == 0


def test_limits_of_a_topic_move_with_the_clock() -> None:
    latest = 10
    task = task_of(merged(), lambda topic: RecordLimits(1000, latest=latest))
    add(task, "a", 9)
    assert process(task) == [b"a9"]
    latest = 100
    add(task, "a", 50, first=1)
    assert process(task) == [b"a50"]


def test_refreshed_limits_apply_without_a_lookup_for_each_record() -> None:
    limits = RecordLimits(1000, latest=10)
    looked_up: list[str] = []

    def limits_of(topic: str) -> RecordLimits:
        looked_up.append(topic)
        return limits

    task = task_of(merged(), limits_of)
    limits = RecordLimits(1000, latest=100)
    task.refresh_limits(0)
    looked_up.clear()
    add(task, "a", 50, 60, 70)
    assert process(task) == [b"a50", b"a60", b"a70"]
    assert len(looked_up) == (3 if native.core is None else 0)


def test_records_that_have_become_too_old_are_rejected() -> None:
    limits = RecordLimits(1000)
    task = task_of(merged(), lambda topic: limits)
    task.refresh_limits(valid_ms=50)
    limits = RecordLimits(1000, earliest=100)
    task.refresh_limits(valid_ms=50)
    limits = RecordLimits(1000, earliest=120)
    add(task, "a", 130)
    assert process(task) == [b"a130"]
    add(task, "a", 110, first=1)
    with pytest.raises(StreamsException, match=r"message\.timestamp\.before\.max\.ms"):
        process(task)


@given(st.lists(st.tuples(
    st.sampled_from("ab"), st.lists(st.integers(0, 50), min_size=1, max_size=5), st.booleans(),
), max_size=12))
def test_every_record_is_processed_once_however_it_arrives(
    arrivals: list[tuple[str, list[int], bool]],
) -> None:
    task = task_of(merged())
    offsets = {"a": 0, "b": 0}
    seen: list[bytes] = []
    for topic, times, processed in arrivals:
        add(task, topic, *times, first=offsets[topic])
        offsets[topic] += len(times)
        if processed:
            seen += process(task)
    seen += process(task)
    expected = [
        b"%s%d" % (topic.encode(), time) for topic, times, _ in arrivals for time in times
    ]
    assert sorted(seen) == sorted(expected)
    for topic in ("a", "b"):
        prefix = topic.encode()
        assert [each for each in seen if each.startswith(prefix)] == [
            each for each in expected if each.startswith(prefix)
        ]
