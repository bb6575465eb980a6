"""A campaign can be interrupted and resumed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Self

import pytest

from faults.campaign import FAULTS_OF_A_TRIAL, Fault, Options, Part, Totals, run, summary, table
from faults.engine_trial import Counts

FAULTS = (Fault("lane", "in-commit"), Fault("driver", "in-commit"), Fault("driver", "processed"))
COUNT = 2 * FAULTS_OF_A_TRIAL + 3


class Trials:
    """A trial that notes the faults; it is interrupted at fault number `last`, unless -1."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.injected: list[Fault] = []
        self.last = -1

    def open(self, directory: Path, seed: int) -> Trials:
        self.counts = Counts(records=Counter(out=2), waves=1)
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing to close."""

    def inject(self, *faults: Fault) -> None:
        if len(self.injected) == self.last:
            raise KeyboardInterrupt
        self.injected += faults

    def verify(self) -> None:
        """Nothing to compare."""


@pytest.fixture
def trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trials:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return Trials()


def options(file: Path, minutes: float | None = None) -> Options:
    return Options(seed=5, only=None, minutes=minutes, progress=file)


def test_interrupted_campaign_continues_behind_the_last_compared_trial(
    trials: Trials, tmp_path: Path
) -> None:
    parts = [Part("processes", FAULTS, COUNT, trials.open)]
    trials.last = FAULTS_OF_A_TRIAL + 2
    with pytest.raises(KeyboardInterrupt):
        run(parts, options(tmp_path / "progress"))
    repeated = trials.injected[FAULTS_OF_A_TRIAL:]
    trials.last = -1
    trials.injected.clear()
    totals = run(parts, options(tmp_path / "progress"))
    assert totals is not None
    assert totals.counts.total() == COUNT
    assert len(trials.injected) == COUNT - FAULTS_OF_A_TRIAL
    assert trials.injected[:2] == repeated
    assert set(totals.counts.values()) == {COUNT // len(FAULTS)}
    assert (totals.trials, totals.waves, totals.records) == (3, 3, {"out": 6})


def test_campaign_without_time_stops_and_has_no_result(trials: Trials, tmp_path: Path) -> None:
    parts = [Part("processes", FAULTS, COUNT, trials.open)]
    assert run(parts, options(tmp_path / "progress", minutes=0)) is None
    assert trials.injected == []


def test_report_counts_faults() -> None:
    totals = Totals(5, faults={"a": [FAULTS[0], FAULTS[1]], "b": [FAULTS[1]]}, loads=[1.0])
    lines = table("failpoint", ("in-commit", "processed"), ("lane", "driver"), totals.counts)
    assert lines[2:] == [
        "| in-commit | 1 | 2 | 3 |", "| processed | 0 | 0 | 0 |", "| all | 1 | 2 | 3 |",
    ]
    assert summary(totals)[0].startswith("3 faults in 0 trials, seed 5")
