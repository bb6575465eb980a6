"""Kills an application in continuous mode once at every failpoint of a lane.

Each test compares all outputs, key by key, and all stores with a run without a crash.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.engine_processes import LANE_FAILPOINTS
from faults.engine_trial import LOCAL, Kill, Trial

pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.mark.smoke
def test_lane_is_killed_in_its_commit(tmp_path: Path) -> None:
    with Trial(tmp_path, seed=5, master=LOCAL, execution="continuous") as trial:
        trial.run_wave(Kill("worker", "in-commit"))
        trial.verify()
        assert trial.counts.kills.total() == 1


def test_driver_without_spark_is_killed_at_every_failpoint_of_a_lane(tmp_path: Path) -> None:
    """A lane is a thread of the driver. It never releases a task, because there is no other."""
    with Trial(tmp_path, seed=3, master="inline", execution="continuous") as trial:
        for failpoint in LANE_FAILPOINTS[:-1]:
            trial.run_wave(Kill("driver", failpoint))
        trial.verify()
        assert trial.counts.kills.total() == len(LANE_FAILPOINTS) - 1


def test_lanes_are_killed_at_every_failpoint(tmp_path: Path) -> None:
    with Trial(tmp_path, seed=1, master=LOCAL, execution="continuous") as trial:
        for failpoint in LANE_FAILPOINTS:
            trial.run_wave(Kill("worker", failpoint))
        trial.verify()
        assert trial.counts.kills.keys() == {Kill("worker", each) for each in LANE_FAILPOINTS}


def test_drivers_are_killed_while_their_lanes_run_on(tmp_path: Path) -> None:
    """The lane that was stopped resumes without its driver, and may commit until it is fenced."""
    kills = [Kill("driver", each) for each in ("before-commit", "in-commit", "released")]
    with Trial(tmp_path, seed=2, master=LOCAL, execution="continuous") as trial:
        for kill in kills:
            trial.run_wave(kill)
        trial.verify()
        assert trial.counts.kills.keys() == set(kills)
