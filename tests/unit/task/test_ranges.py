"""Batch boundaries: ranges that are processed whole, and skipped records."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import (
    Processor,
    Record,
    Serdes,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    Topology,
)
from penstock.record import PartitionColumns, TaskId
from penstock.task.blueprint import Blueprint
from penstock.task.queue import RecordQueue, RecordRange
from penstock.task.result import Output, TaskResult
from penstock.task.runtime import Environment
from penstock.task.task import Task


def task_of(topology: Topology, *, skip: bool = False, **environment: Any) -> Task:
    config = StreamsConfig(
        application_id="app", default_key_serde=Serdes.string(),
        default_value_serde=Serdes.string(), statestore_cache_max_bytes=0,
        deserialization_exception_handler="continue" if skip else "fail",
        errors_dead_letter_queue_topic_name="dead" if skip else None,
    )
    blueprint = Blueprint.of(topology, config)
    task = Task(blueprint, TaskId(0, 0), Environment(**environment))
    task.start()
    for source in blueprint.sources:
        for topic in source.topics:
            task.subscribe(source.name, topic, 0)
    return task


def merged(*topics: str, value: Any = None) -> Topology:
    builder = StreamsBuilder()
    first, *others = [builder.stream(topic, value=value) for topic in topics]
    for other in others:
        first = first.merge(other)
    first.to("out", value=value)
    return builder.build()


def numbers(*topics: str) -> Topology:
    return merged(*topics, value=Serdes.json())


def records(
    *rows: tuple[str, int], cut: bool = False, whole: bool = False, keys: int = 1
) -> RecordRange:
    columns = PartitionColumns(
        topic="in", partition=0, offsets=range(len(rows)),
        timestamps=[time for _, time in rows],
        keys=[b"k%d" % (n % keys) for n in range(len(rows))],
        values=[value.encode() for value, _ in rows],
    )
    return RecordRange(columns, cut=cut, whole=whole)


def values(result: TaskResult, topic: str = "out") -> list[str]:
    outputs = map(Output._make, result.outputs)
    return [(each.value or b"").decode() for each in outputs if each.topic == topic]


BAD = "not a number"


def test_whole_range_is_processed_when_a_cut_range_runs_empty() -> None:
    result = task_of(merged("a", "b")).run({
        ("a", 0): records(("a1", 1), cut=True),
        ("b", 0): records(("b2", 2), ("b3", 3), whole=True),
    })
    assert values(result) == ["a1", "b2", "b3"]
    assert result.offsets == {("a", 0): 1, ("b", 0): 2}


def test_whole_range_is_processed_beside_an_empty_cut_range() -> None:
    result = task_of(merged("a", "b", "c")).run({
        ("a", 0): records(cut=True), ("b", 0): records(("b1", 1)),
        ("c", 0): records(("c2", 2), whole=True),
    })
    assert values(result) == ["c2"]
    assert result.offsets == {("c", 0): 1}


def test_whole_range_is_processed_beyond_the_result_limit() -> None:
    rows = [("x" * 100, time) for time in range(3000)]
    task = task_of(merged("a", "b"), max_result_bytes=1)
    result = task.run({("a", 0): records(*rows), ("b", 0): records(*rows, whole=True)})
    assert result.offsets[("b", 0)] == 3000
    assert result.offsets[("a", 0)] < 3000
    assert len(values(result)) == sum(result.offsets.values())


def test_single_whole_queue_is_processed_beyond_the_result_limit() -> None:
    rows = [("x" * 100, time) for time in range(3000)]
    result = task_of(merged("a"), max_result_bytes=1).run({("a", 0): records(*rows, whole=True)})
    assert len(values(result)) == 3000
    assert result.offsets == {("a", 0): 3000}


def test_whole_ranges_are_processed_by_time() -> None:
    result = task_of(merged("a", "b", "c")).run({
        ("a", 0): records(cut=True), ("b", 0): records(("b1", 1), ("b4", 4), whole=True),
        ("c", 0): records(("c2", 2), ("c3", 3), whole=True),
    })
    assert values(result) == ["b1", "c2", "c3", "b4"]


def test_skipped_record_is_not_read_again() -> None:
    """The dead letter is in this result; reading the record again would duplicate it."""
    result = task_of(numbers("a", "b"), skip=True).run({
        ("a", 0): records(("1", 1), (BAD, 2), ("9", 9)),
        ("b", 0): records(("2", 2), cut=True),
    })
    assert values(result) == ["1", "2"]
    assert values(result, "dead") == [BAD]
    assert result.offsets == {("a", 0): 2, ("b", 0): 1}


def test_records_skipped_before_the_first_one_are_not_read_again() -> None:
    result = task_of(numbers("a", "b"), skip=True).run({
        ("a", 0): records((BAD, 1), (BAD, 2), ("9", 9)), ("b", 0): records(("3", 3), cut=True),
    })
    assert values(result) == ["3"]
    assert result.counters["dropped-records-total"] == 2
    assert result.offsets == {("a", 0): 2, ("b", 0): 1}


def test_range_of_unreadable_records_is_consumed() -> None:
    result = task_of(numbers("a", "b"), skip=True).run({
        ("a", 0): records((BAD, 1), (BAD, 2)), ("b", 0): records(cut=True),
    })
    assert result.counters["dropped-records-total"] == 2
    assert result.offsets == {("a", 0): 2}


ROWS = st.lists(st.tuples(st.sampled_from(["1", BAD]), st.integers(0, 6)), max_size=12)


@given(first=ROWS, second=ROWS, third=ROWS, cut=st.booleans())
def test_processing_several_records_at_once_does_not_change_results(
    first: list[tuple[str, int]], second: list[tuple[str, int]], third: list[tuple[str, int]],
    cut: bool,
) -> None:
    """Records of one queue before the head of the other need no comparison."""
    ranges = {
        (topic, 0): records(*((value if value == BAD else f"{number}{at}", time)
                              for at, (value, time) in enumerate(rows)), cut=cut and number == 2)
        for number, (topic, rows) in enumerate(zip("abc", (first, second, third), strict=True), 1)
    }
    topology = numbers("a", "b", "c")
    quick = task_of(topology, skip=True).run(ranges)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RecordQueue, "process_before", lambda queue, *limits: False)
        one_by_one = task_of(topology, skip=True).run(ranges)
    assert values(quick) == values(one_by_one)
    assert sorted(values(quick, "dead")) == sorted(values(one_by_one, "dead"))
    assert (quick.offsets, quick.counters) == (one_by_one.offsets, one_by_one.counters)


def test_buffer_emission_does_not_change_the_source_of_the_next_record() -> None:
    """Records of one partition are processed at once; a buffer emits another record in between."""
    builder = StreamsBuilder()
    (builder.table("a", store="a").suppress(
        Suppressed.until_time_limit(timedelta(milliseconds=2))
    ).to_stream().process(Offsets).to("out"))
    result = task_of(builder.build()).run({
        ("a", 0): records(*((f"v{time}", time) for time in range(10)), keys=10)
    })
    assert values(result) == [str(offset) for offset in range(8)]


class Offsets(Processor[str, str]):
    """Reports the source of each record."""

    def process(self, record: Record[str, str]) -> None:
        metadata = self.context.record_metadata
        assert metadata is not None
        self.context.forward(record.with_value(str(metadata.offset)))
