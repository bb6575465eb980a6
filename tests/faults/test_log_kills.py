"""A few of the kills of `log_kills.py`; `make faults` has many."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.log_kills import Trial


@pytest.mark.slow
def test_killed_writers_and_cleaners_leave_the_log_whole(tmp_path: Path) -> None:
    trial = Trial(tmp_path, seed=4)
    trial.run(kills=25)
    assert sum(len(worker.told) for worker in trial.workers) > 20
