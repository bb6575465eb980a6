"""Drivers that resume after their lease has expired, and lost shuffle files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faults.engine_app import everything, is_drained
from faults.engine_processes import FailpointFiles, Instance, wait_until
from faults.engine_trial import LOCAL, Trial
from penstock.engine.failpoints import FailpointName
from penstock.log import open_log
from penstock.log.errors import LogBusy
from penstock.log.types import TopicPartition

Pieces = Iterator[Callable[[], None]]
#: The lanes of a stage in the test of lost shuffle files.
LANES = 2

pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.mark.parametrize(
    ("master", "failpoint"), [(LOCAL, "before-commit"), ("inline", "in-commit")]
)
def test_driver_that_was_stopped_past_its_lease_publishes_nothing(
    tmp_path: Path, master: str, failpoint: FailpointName
) -> None:
    with Trial(tmp_path, seed=4, master=master) as trial:
        pieces = trial.new_wave()
        _stop_without_the_lock(trial, failpoint, pieces)
        first = trial.start()
        second = trial.another(
            "second", FailpointFiles(tmp_path / "steps-of-second"), state="state-of-second",
            master="inline",
        )
        try:
            _take_turns(trial, first, second)
        finally:
            second.end()
        # The first driver is a standby and takes over.
        trial.run_wave()
        trial.verify()


def _stop_without_the_lock(trial: Trial, failpoint: FailpointName, pieces: Pieces) -> None:
    """Stop the driver at the failpoint while none of its threads holds SQLite's lock: otherwise no
    other instance could take over."""
    while True:
        trial.reach(failpoint, pieces)
        try:
            with open_log(trial.log.address, busy_timeout_ms=500) as log:
                log.commit_offsets("nobody", {TopicPartition("orders", 0): 0})
            return
        except LogBusy:
            trial.start().resume()


def _take_turns(trial: Trial, first: Instance, second: Instance) -> None:
    wait_until("the second instance had taken over", lambda: is_drained(trial.log))
    before = everything(trial.log)
    assert [process.pid for process in first.stopped()] == [first.pid]
    first.resume()
    wait_until(
        "the first one had noticed", lambda: "becomes a standby" in first.output_tail()
    )
    assert everything(trial.log) == before, "an instance has published without the lease"
    trial.run_wave()
    assert second.is_alive
    assert first.is_alive


def test_lost_shuffle_files_are_computed_again_for_all_readers(tmp_path: Path) -> None:
    """With one core the lanes of a stage run one after the other. The files are deleted after a
    lane has read them and before the next one has: Spark computes them again in another attempt.
    The committed outcomes must be of one attempt."""
    settings = [f"penstock.parallelism={LANES}", "spark.log.level=WARN"]
    with Trial(tmp_path, seed=6, master="local[1,4]", settings=settings) as trial:
        for _ in range(8):
            lost = _delete_shuffle_files(trial, trial.new_wave(), tmp_path / "spark")
            assert lost
            trial.run_wave()
            if "FetchFailed" in trial.start().output.read_text():
                break
        assert "FetchFailed" in trial.start().output.read_text(), "no lane has missed the files"
        trial.verify()


def _delete_shuffle_files(trial: Trial, pieces: Pieces, directory: Path) -> int:
    """Stop every task that updates its replica, which it does when it has read all of its input.
    Delete the files as soon as one of these tasks is after a shuffle."""
    known = {path.name for path in directory.rglob("shuffle_*")}
    while True:
        trial.reach("applying", pieces)
        files = [path for path in directory.rglob("shuffle_*") if path.name not in known]
        newest = max(map(_shuffle_of, files), default=-1)
        of_newest = [path for path in files if _shuffle_of(path) == newest]
        is_written = sum(path.suffix == ".index" for path in of_newest) == LANES
        for path in of_newest if is_written else ():
            path.unlink()
        trial.start().resume()
        if is_written:
            return len(of_newest)


def _shuffle_of(path: Path) -> int:
    return int(path.name.split("_")[1])
