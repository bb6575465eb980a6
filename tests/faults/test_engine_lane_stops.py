"""Lanes and drivers of continuous mode that resume after they were replaced, and lost state."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from faults.engine_kills import LOCAL, STATE, Trial
from faults.engine_processes import FailpointFiles, Instance, send, wait_until
from faults.lane_faults import (
    KEEP_PROCESSES,
    Pieces,
    assert_unpublished,
    attempts,
    resume_lane,
    stop_lane_until_replaced,
)
from penstock.log import open_log
from penstock.log.errors import LogBusy
from penstock.log.types import TopicPartition

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
        pieces = trial.new_wave()
        trial.reach("processed", pieces)
        trial.start().resume()
        _stop_driver(trial)
        first = trial.start()
        second = trial.another(
            "second", FailpointFiles(tmp_path / "steps-of-second"), state="state-of-second",
            master="inline",
        )
        try:
            _take_turns(trial, pieces, first, second)
        finally:
            second.end()
        # The first driver is a standby and takes over.
        trial.run_wave()
        trial.verify()


def _stop_driver(trial: Trial) -> None:
    """Stop the driver while it does not hold the lock of the log: otherwise no other instance could
    take over."""
    driver = trial.start().pid
    while True:
        send(driver, signal.SIGSTOP)
        try:
            with open_log(trial.log.address, busy_timeout_ms=500) as log:
                log.commit_offsets("nobody", {TopicPartition("orders", 0): 0})
            return
        except LogBusy:
            send(driver, signal.SIGCONT)


def _take_turns(trial: Trial, pieces: Pieces, first: Instance, second: Instance) -> None:
    def has_taken_over() -> bool:
        return "This instance runs application" in second.output.read_text()

    wait_until("the second instance had taken over", has_taken_over, meanwhile=trial.feeder(pieces))
    trial.finish_wave(pieces)
    before = attempts(trial.log)
    first.resume()
    wait_until("the first one had noticed", lambda: "becomes a standby" in first.output_tail())
    assert_unpublished(trial.log, before, lambda attempt: attempt.epoch == 1)
    trial.run_wave()
    assert second.is_alive
    assert first.is_alive


@pytest.mark.parametrize("master", [LOCAL, "inline"])
def test_state_that_is_deleted_while_lanes_run_is_restored(tmp_path: Path, master: str) -> None:
    with Trial(tmp_path, seed=10, master=master, execution="continuous") as trial:
        for failpoint in ("processed", "after-commit"):
            pieces = trial.new_wave()
            trial.reach(failpoint, pieces)
            shutil.rmtree(tmp_path / STATE)
            trial.start().resume()
            trial.finish_wave(pieces)
        trial.verify()
