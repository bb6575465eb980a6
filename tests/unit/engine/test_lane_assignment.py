"""The assignment of tasks to lanes."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.continuous.assignment import assign
from penstock.record import TaskId


def tasks(count: int) -> list[TaskId]:
    return [TaskId(0, number) for number in range(count)]


def test_tasks_are_divided_evenly() -> None:
    assigned = assign(tasks(5), {1: "a", 2: "b"}, {}, {})
    assert sorted(list(assigned.values()).count(lane) for lane in (1, 2)) == [2, 3]


def test_without_lanes_nothing_is_assigned() -> None:
    assert assign(tasks(3), {}, {}, {}) == {}


def test_tasks_stay_where_they_are() -> None:
    current = {TaskId(0, 0): 2, TaskId(0, 1): 1, TaskId(0, 2): 2}
    assert assign(tasks(3), {1: "a", 2: "b"}, current, {}) == current


def test_new_lane_gets_its_share_and_the_other_tasks_stay() -> None:
    current = dict.fromkeys(tasks(4), 1)
    assigned = assign(tasks(4), {1: "a", 2: "b"}, current, {})
    assert sum(assigned[task] != current[task] for task in current) == 2


def test_new_lane_gets_its_share_of_each_subtopology() -> None:
    """The tasks of a sub-topology cost about the same; others may cost more or less."""
    current = {TaskId(number, partition): 1 for number in range(2) for partition in range(4)}
    assigned = assign(current, {1: "a", 2: "b"}, current, {})
    assert Counter(
        (task.subtopology, lane) for task, lane in assigned.items()
    ) == {(0, 1): 2, (0, 2): 2, (1, 1): 2, (1, 2): 2}


def test_tasks_of_a_lost_lane_go_to_the_host_with_their_state() -> None:
    current = {TaskId(0, 0): 1, TaskId(0, 1): 1}
    hosts = {TaskId(0, 2): "b", TaskId(0, 3): "b"}
    assigned = assign(tasks(4), {1: "a", 2: "b"}, current, hosts)
    assert [assigned[task] for task in tasks(4)] == [1, 1, 2, 2]


def test_new_lane_gets_the_tasks_that_its_host_has_replicas_of() -> None:
    """A host that was lost and returns only lacks the latest changes of its former tasks."""
    current = dict.fromkeys(tasks(4), 1)
    held = {2: {TaskId(0, 0): 5, TaskId(0, 2): 5}}
    assigned = assign(tasks(4), {1: "a", 2: "b"}, current, {}, held)
    assert [assigned[task] for task in tasks(4)] == [2, 1, 2, 1]


@given(
    st.integers(0, 20), st.sets(st.integers(1, 6), min_size=1),
    st.dictionaries(st.integers(0, 19), st.integers(1, 8)),
)
def test_every_task_has_one_lane_and_loads_differ_by_one_at_most(
    count: int, lanes: set[int], before: dict[int, int]
) -> None:
    current = {TaskId(0, number): lane for number, lane in before.items() if number < count}
    assigned = assign(tasks(count), dict.fromkeys(lanes, "host"), current, {})
    assert assigned.keys() == set(tasks(count))
    loads = [list(assigned.values()).count(lane) for lane in lanes]
    assert max(loads) - min(loads) <= 1
    # A second assignment changes nothing.
    assert assign(tasks(count), dict.fromkeys(lanes, "host"), assigned, {}) == assigned


@pytest.mark.parametrize("count", [1, 3])
def test_surplus_lanes_get_no_tasks(count: int) -> None:
    assigned = assign(tasks(count), dict.fromkeys(range(1, 6), "a"), {}, {})
    assert len(set(assigned.values())) == count
