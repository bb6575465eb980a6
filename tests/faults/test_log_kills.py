"""A few of the kills of `log_kills.py`; `make faults` runs many more."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.log_kills import Trial


@pytest.mark.slow
def test_log_is_consistent_after_kills_of_writers_and_cleaners(tmp_path: Path) -> None:
    trial = Trial(tmp_path, seed=4)
    trial.run(kills=25)
    assert sum(len(worker.acknowledged) for worker in trial.workers) > 20
