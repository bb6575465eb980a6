"""Lanes are assigned to hosts in proportion to their slots, and stay where their state is."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.packaging.bundle import Bundle
from penstock.engine.spark.placement import REFRESH_S, Placement, TaskHomes, assign_lanes
from penstock.record import TaskId


def bundle(*lanes: int, tasks: int = 4) -> Bundle:
    """An application with as many tasks in every stage, and so many lanes."""
    fake: Any = SimpleNamespace(
        config=SimpleNamespace(application_id="app"), lanes=lanes,
        tasks=lambda stage, lane: tuple(
            TaskId(stage, n) for n in range(tasks) if n % lanes[stage] == lane
        ),
    )
    return cast("Bundle", fake)


class Cluster:
    """Executors that come and go, and the time."""

    def __init__(self, **slots: int) -> None:
        self.slots = slots
        self.now = 0.0

    def place(self, homes: TaskHomes, *lanes: int) -> Placement:
        return Placement(bundle(*lanes), homes, lambda: self.slots, clock=lambda: self.now)

    def change(self, **slots: int) -> None:
        self.slots = slots
        self.now += REFRESH_S


def test_lanes_are_distributed_by_slots() -> None:
    assert Counter(assign_lanes([None] * 6, {"a": 4, "b": 2})) == {"a": 4, "b": 2}
    assert Counter(assign_lanes([None] * 2, {"a": 2, "b": 2})) == {"a": 1, "b": 1}


def test_lanes_stay_where_their_state_is() -> None:
    assert assign_lanes(["b", "a", "a", "b"], {"a": 2, "b": 2}) == ("b", "a", "a", "b")
    # Three lanes on two hosts: the host with more state keeps two.
    assert assign_lanes(["b", "a", "b"], {"a": 2, "b": 2}) == ("b", "a", "b")
    # Host c is gone, and its lane goes to the host with a free slot.
    assert assign_lanes(["c", "a", "b", "b"], {"a": 2, "b": 2}) == ("a", "a", "b", "b")


def test_stages_with_one_lane_do_not_share_a_host() -> None:
    hosts = Cluster(a=1, b=1).place(TaskHomes(), 1, 1).hosts()
    assert hosts is not None
    assert {lane for stage in hosts for lane in stage} == {"a", "b"}


@given(
    st.lists(st.sampled_from(["a", "b", "c", "gone", None]), min_size=1, max_size=12),
    st.dictionaries(st.sampled_from("abcd"), st.integers(1, 4), min_size=1),
)
def test_every_lane_has_a_host_and_no_slot_is_free_while_another_has_two_lanes(
    homes: list[str | None], slots: dict[str, int]
) -> None:
    hosts = assign_lanes(homes, slots)
    assert len(hosts) == len(homes)
    counts = Counter(hosts)
    assert counts.keys() <= slots.keys()
    if len(homes) <= sum(slots.values()):
        assert all(counts[host] <= slots[host] for host in slots)
    else:
        assert all(counts[host] >= slots[host] for host in slots)


def test_hosts_change_only_with_the_executors() -> None:
    cluster = Cluster(a=1, b=1)
    placement = cluster.place(TaskHomes(), 2, 2)
    before = placement.hosts()
    cluster.now += REFRESH_S
    assert placement.hosts() is before
    assert before is not None
    cluster.change(b=1, c=1)
    after = placement.hosts()
    assert after is not None
    for old, new in zip(before, after, strict=True):
        assert [host for host in old if host == "b"] == [host for host in new if host == "b"]
        assert set(new) == {"b", "c"}


def test_one_host_needs_no_placement() -> None:
    cluster = Cluster(a=4)
    placement = cluster.place(TaskHomes(), 4)
    assert placement.hosts() is None
    assert not placement.observe(0, 0, "a")
    cluster.change()
    assert placement.hosts() is None


def test_lane_that_ran_elsewhere_stays_there() -> None:
    cluster, homes = Cluster(a=2, b=2), TaskHomes()
    placement = cluster.place(homes, 2)
    hosts = placement.hosts()
    assert hosts is not None
    other = {"a": "b", "b": "a"}[hosts[0][0]]
    assert placement.observe(0, 0, other)
    assert not placement.observe(0, 0, other)
    assert placement.hosts() == ((other, hosts[0][1]),)
    # Also after the application was reopened, if the slots allow it.
    cluster.change(a=4, b=4)
    assert cluster.place(homes, 4).hosts() is not None
    assert homes.of("app", [TaskId(0, 0)]) == other


def test_tasks_keep_their_hosts_when_the_number_of_lanes_changes() -> None:
    cluster, homes = Cluster(a=1, b=1), TaskHomes()
    assert cluster.place(homes, 2).hosts() is not None
    before = [homes.of("app", [TaskId(0, n)]) for n in range(4)]
    cluster.change(a=2, b=2)
    assert cluster.place(homes, 4).hosts() is not None
    assert [homes.of("app", [TaskId(0, n)]) for n in range(4)] == before
