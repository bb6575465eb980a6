"""When a lane commits."""

from __future__ import annotations

from penstock.engine.continuous.commit_pacer import (
    LONGEST_INTERVAL_S,
    SHORTEST_INTERVAL_S,
    CommitPacer,
)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def commit(pacer: CommitPacer) -> None:
    pacer.begin_commit()
    pacer.end_commit()


def test_lane_with_empty_queues_commits_at_once_after_a_pause() -> None:
    clock = Clock()
    pacer = CommitPacer(None, clock)
    clock.now = 5.0
    assert not pacer.is_due(has_more=False, needs_commit=False)
    assert pacer.is_due(has_more=False, needs_commit=True)


def test_commits_of_an_idle_lane_are_apart() -> None:
    clock = Clock()
    pacer = CommitPacer(None, clock)
    commit(pacer)
    assert not pacer.is_due(has_more=False, needs_commit=True)
    assert pacer.seconds_until_due() == SHORTEST_INTERVAL_S
    clock.now += SHORTEST_INTERVAL_S
    assert pacer.is_due(has_more=False, needs_commit=True)


def test_busy_lane_commits_after_the_longest_interval() -> None:
    clock = Clock()
    pacer = CommitPacer(None, clock)
    clock.now = 60.0
    assert not pacer.is_due(has_more=True, needs_commit=True)
    assert not pacer.is_time_up()
    clock.now += LONGEST_INTERVAL_S
    assert pacer.is_time_up()
    assert pacer.is_due(has_more=True, needs_commit=True)
    commit(pacer)
    assert not pacer.is_time_up()


def test_configured_interval_is_kept() -> None:
    clock = Clock()
    pacer = CommitPacer(30_000, clock)
    clock.now = 29.9
    assert not pacer.is_due(has_more=False, needs_commit=True)
    clock.now = 30.0
    assert pacer.is_due(has_more=False, needs_commit=True)
    assert pacer.begin_commit() == 30.0
    clock.now = 30.5
    assert pacer.end_commit() == 0.5
