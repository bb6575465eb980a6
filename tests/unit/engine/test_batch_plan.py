"""Plans survive encoding and decoding."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.plan.batch_plan import BatchPlan, Range, TaskPlan, decode_plan, encode_plan
from penstock.record import Headers, PartitionColumns, TaskId
from penstock.task.punctuation import ScheduleState
from penstock.task.result import TaskState

names = st.text(min_size=1, max_size=8)
numbers = st.integers(-(2**63), 2**63 - 1)
counts = st.integers(0, 2**63 - 1)
partitions = st.tuples(names, st.integers(0, 1000))
schedules = st.lists(
    st.builds(ScheduleState, names, counts, numbers, st.booleans()), max_size=3
).map(tuple)
states = st.builds(
    TaskState, numbers, st.dictionaries(partitions, numbers, max_size=3),
    st.dictionaries(names, numbers, max_size=3),
    st.dictionaries(names, st.dictionaries(names, numbers, max_size=2), max_size=2),
    schedules, schedules, counts,
)
task_ids = st.builds(TaskId, st.integers(0, 9), st.integers(0, 99))
ranges = st.lists(
    st.builds(Range, names, st.integers(0, 99), counts, counts, st.booleans()), max_size=4
).map(tuple)

contents = st.none() | st.binary(max_size=8)
headers = st.lists(st.tuples(names, contents), max_size=2).map(Headers)


@st.composite
def columns(draw: st.DrawFn) -> PartitionColumns:
    count = draw(st.integers(0, 3))

    def column(of: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(of, min_size=count, max_size=count))

    return PartitionColumns(
        topic=draw(names), partition=draw(st.integers(0, 99)), offsets=column(counts),
        timestamps=column(counts), keys=column(contents), values=column(contents),
        headers=column(headers) if draw(st.booleans()) else None,
    )


@st.composite
def plans(draw: st.DrawFn) -> BatchPlan:
    tasks = {
        task_id: TaskPlan(
            task_id, draw(ranges), draw(states), draw(st.dictionaries(names, counts, max_size=3)),
            draw(st.dictionaries(names, counts, max_size=3)), draw(counts), draw(counts),
            draw(st.booleans()), tuple(draw(st.lists(st.none() | columns(), max_size=2))),
        )
        for task_id in draw(st.lists(task_ids, max_size=4, unique=True))
    }
    return BatchPlan(
        draw(counts), draw(counts), draw(numbers), tasks,
        draw(st.dictionaries(partitions, counts, max_size=3)),
        frozenset(draw(st.lists(task_ids, max_size=2))),
    )


@given(plans())
def test_plan_survives_encoding_and_decoding(plan: BatchPlan) -> None:
    text = encode_plan(plan)
    assert text.isascii()
    assert decode_plan(text) == plan


def test_large_plan_is_compressed() -> None:
    tasks = {
        TaskId(0, number): TaskPlan(
            TaskId(0, number), (Range("a-topic-with-a-long-name", number, 0, 1000, False),),
            TaskState(5, {("a-topic-with-a-long-name", number): 5}), {"a-store": 17},
        )
        for number in range(1000)
    }
    plan = BatchPlan(1, 1, 1, tasks)
    text = encode_plan(plan)
    assert len(text) < 60_000
    assert decode_plan(text) == plan
