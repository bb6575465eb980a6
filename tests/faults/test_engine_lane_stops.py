"""Lanes and drivers of continuous mode that resume after they were replaced, and lost state."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.engine_trial import LOCAL, Trial
from faults.lane_faults import (
    KEEP_PROCESSES,
    delete_state,
    resume_lane,
    stop_driver_until_replaced,
    stop_lane_until_replaced,
)

pytestmark = [pytest.mark.slow, pytest.mark.spark]


def test_lane_that_was_replaced_while_it_was_stopped_publishes_nothing(tmp_path: Path) -> None:
    """Spark has cancelled its job, and its process runs on."""
    with Trial(
        tmp_path, seed=4, master=LOCAL, settings=KEEP_PROCESSES, execution="continuous"
    ) as trial:
        for failpoint in ("before-commit", "in-commit", "processed"):
            lane = stop_lane_until_replaced(trial, failpoint, trial.new_wave())
            resume_lane(trial, lane)
            trial.run_wave()
        trial.verify()


@pytest.mark.parametrize("master", [LOCAL, "inline"])
def test_driver_that_was_stopped_past_its_lease_publishes_nothing(
    tmp_path: Path, master: str
) -> None:
    """With Spark, its lanes keep running until the second instance fences them."""
    with Trial(tmp_path, seed=9, master=master, execution="continuous") as trial:
        stop_driver_until_replaced(trial, "processed", trial.new_wave())
        trial.run_wave()
        trial.verify()


@pytest.mark.parametrize("master", [LOCAL, "inline"])
def test_state_that_is_deleted_while_lanes_run_is_restored(tmp_path: Path, master: str) -> None:
    with Trial(tmp_path, seed=10, master=master, execution="continuous") as trial:
        for failpoint in ("processed", "after-commit"):
            pieces = trial.new_wave()
            delete_state(trial, failpoint, pieces)
            trial.finish_wave(pieces)
        trial.verify()
