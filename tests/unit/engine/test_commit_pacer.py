"""When a lane commits."""

from __future__ import annotations

import pytest

from penstock.engine.continuous.commit_pacer import (
    LONGEST_BACKLOG_INTERVAL_S,
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


def test_commit_waits_until_the_log_has_settled() -> None:
    clock = Clock()
    pacer = CommitPacer(None, clock)
    pacer.settle_s = 0.25
    pacer.begin_commit()
    clock.now = 1.0
    pacer.end_commit()
    assert not pacer.is_due(has_more=False, needs_commit=True)
    assert pacer.seconds_until_due() == 0.25
    clock.now += 0.25
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
    pacer.begin_work()
    assert not pacer.is_due(has_more=False, needs_commit=True)
    clock.now = 30.0
    assert pacer.is_due(has_more=False, needs_commit=True)
    assert pacer.begin_commit() == pytest.approx(0.1)
    clock.now = 30.5
    assert pacer.end_commit() == 0.5


def seconds_between_commits(pacer: CommitPacer, clock: Clock) -> float:
    """How long a lane processes that always has more records."""
    began_at = clock.now
    while not pacer.is_due(has_more=True, needs_commit=True):
        clock.now += 0.001
    return clock.now - began_at


def commit_in(pacer: CommitPacer, clock: Clock, seconds: float) -> None:
    pacer.begin_commit()
    clock.now += seconds
    pacer.end_commit()


def test_lane_that_is_behind_spends_a_tenth_of_its_time_on_commits() -> None:
    clock = Clock()
    pacer = CommitPacer(None, clock)
    pacer.is_behind = True
    assert seconds_between_commits(pacer, clock) == pytest.approx(LONGEST_INTERVAL_S, abs=0.002)
    commit_in(pacer, clock, 0.05)
    assert seconds_between_commits(pacer, clock) == pytest.approx(0.45, abs=0.002)
    commit_in(pacer, clock, 30.0)
    assert seconds_between_commits(pacer, clock) == pytest.approx(
        LONGEST_BACKLOG_INTERVAL_S, abs=0.002
    )


def test_lane_that_has_caught_up_commits_soon_after_expensive_commits() -> None:
    clock = Clock()
    pacer = CommitPacer(None, clock)
    commit_in(pacer, clock, 1.0)
    assert seconds_between_commits(pacer, clock) == pytest.approx(LONGEST_INTERVAL_S, abs=0.002)
    pacer.is_behind = True
    assert not pacer.is_due(has_more=True, needs_commit=True)
    pacer.is_behind = False
    assert pacer.is_due(has_more=True, needs_commit=True)


def test_configured_interval_is_kept_by_a_lane_that_is_behind() -> None:
    clock = Clock()
    pacer = CommitPacer(20, clock)
    pacer.is_behind = True
    commit_in(pacer, clock, 1.0)
    assert seconds_between_commits(pacer, clock) == pytest.approx(0.02, abs=0.002)


def test_interval_does_not_count_while_a_caller_waits() -> None:
    clock = Clock()
    pacer = CommitPacer(3_600_000, clock)
    commit(pacer)
    clock.now += SHORTEST_INTERVAL_S
    assert not pacer.is_due(has_more=False, needs_commit=True)
    pacer.set_early(True)
    assert pacer.is_due(has_more=False, needs_commit=True)
    pacer.set_early(False)
    assert not pacer.is_due(has_more=False, needs_commit=True)
