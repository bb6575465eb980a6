"""The silence of lanes, measured by a driver that does not always run."""

from __future__ import annotations

from penstock.engine.continuous.awake_clock import AwakeClock
from penstock.engine.continuous.lane_handle import LaneHandle, LaneState
from penstock.engine.continuous.lane_pool import SILENCE_S
from penstock.log.types import WriterGrant


class Monotonic:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def pass_seconds(clock: AwakeClock, monotonic: Monotonic, seconds: int) -> None:
    """Let time pass while the process runs."""
    for _ in range(seconds):
        monotonic.now += 1.0
        clock.tick()


def ready_lane(clock: AwakeClock) -> LaneHandle:
    lane = LaneHandle(WriterGrant("app", 1, 1), clock)
    lane.state = LaneState.READY
    return lane


def test_clock_advances_while_the_process_runs() -> None:
    monotonic = Monotonic()
    clock = AwakeClock(2.0, monotonic)
    assert clock.now() == 0.0
    monotonic.now += 1.5
    assert clock.now() == 1.5
    clock.tick()
    pass_seconds(clock, monotonic, 10)
    assert clock.now() == 11.5


def test_clock_stands_still_while_the_process_is_suspended() -> None:
    monotonic = Monotonic()
    clock = AwakeClock(2.0, monotonic)
    pass_seconds(clock, monotonic, 10)
    monotonic.now += 3600.0
    assert clock.now() == 12.0
    clock.tick()
    assert clock.now() == 12.0
    monotonic.now += 1.0
    assert clock.now() == 13.0


def test_lane_is_silent_while_the_driver_runs() -> None:
    monotonic = Monotonic()
    clock = AwakeClock(2.0, monotonic)
    lane = ready_lane(clock)
    pass_seconds(clock, monotonic, 6)
    assert lane.silent_seconds() == 6.0 > SILENCE_S
    lane.note_message()
    assert lane.silent_seconds() == 0.0


def test_lane_is_not_silent_because_the_driver_was_suspended() -> None:
    monotonic = Monotonic()
    clock = AwakeClock(2.0, monotonic)
    lane = ready_lane(clock)
    monotonic.now += 60.0
    assert lane.silent_seconds() < SILENCE_S
