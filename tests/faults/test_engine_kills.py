"""Kills an application on Spark once at every failpoint of a batch; `make faults` kills it often.

In CI the driver runs without Spark at all failpoints but one. Continuous mode, the default, has
all of its tests there: test_engine_lanes.py.

Each test compares all outputs, key by key, and all stores with a run without a crash.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.engine_processes import BATCH_FAILPOINTS
from faults.engine_trial import CLUSTER, LOCAL, Kill, Trial

pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.mark.smoke
def test_driver_is_killed_in_its_commit(tmp_path: Path) -> None:
    with Trial(tmp_path, seed=5, master=LOCAL) as trial:
        trial.run_wave(Kill("driver", "in-commit"))
        trial.verify()
        assert trial.counts.kills.total() == 1


@pytest.mark.smoke
def test_driver_without_spark_is_killed_at_every_failpoint(tmp_path: Path) -> None:
    with Trial(tmp_path, seed=3, master="inline") as trial:
        for failpoint in BATCH_FAILPOINTS:
            trial.run_wave(Kill("driver", failpoint))
        trial.verify()
        assert trial.counts.kills.total() == len(BATCH_FAILPOINTS)


def test_failpoints_are_armed_for_one_driver_only(tmp_path: Path) -> None:
    """Otherwise a worker of a killed driver could stop in place of one of the new driver."""
    with Trial(tmp_path, seed=4, master="inline") as trial:
        killed = trial.start()
        trial.end()
        trial.start().files.arm("restoring")
        assert not killed.files.is_armed("restoring")


@pytest.mark.exhaustive
def test_drivers_and_workers_are_killed_at_every_failpoint(tmp_path: Path) -> None:
    """Kills in one wave save starts of drivers."""
    with Trial(tmp_path, seed=1, master=LOCAL) as trial:
        trial.run_wave(*(
            Kill("worker", failpoint) for failpoint in BATCH_FAILPOINTS
            if failpoint not in {"applying", "restoring"}
        ))
        trial.run_wave(Kill("worker", "applying"), Kill("driver", "planned"))
        trial.run_wave(Kill("worker", "restoring"), Kill("driver", "computing"))
        trial.run_wave(Kill("driver", "before-commit"), Kill("driver", "in-commit"))
        trial.run_wave(Kill("driver", "after-commit"))
        trial.run_wave(Kill("driver", "applying"), Kill("driver", "restoring"))
        trial.verify()
        kills = {
            Kill(victim, failpoint)
            for victim in ("driver", "worker") for failpoint in BATCH_FAILPOINTS
        }
        assert trial.counts.kills.keys() == kills


@pytest.mark.exhaustive
def test_executors_are_killed_at_every_failpoint_while_spark_speculates(tmp_path: Path) -> None:
    """Each executor has its own state folder. Speculation is on, although Spark speculates only
    with several hosts."""
    speculation = (
        "spark.speculation=true", "spark.speculation.interval=100ms",
        "spark.speculation.quantile=0.5", "spark.speculation.multiplier=1.1",
        "spark.speculation.efficiency.enabled=false",
    )
    with Trial(tmp_path, seed=2, master=CLUSTER, settings=speculation) as trial:
        trial.run_wave(*(Kill("executor", failpoint) for failpoint in BATCH_FAILPOINTS[:3]))
        trial.run_wave(*(Kill("executor", failpoint) for failpoint in BATCH_FAILPOINTS[3:]))
        trial.verify()
        assert trial.counts.kills.total() == len(BATCH_FAILPOINTS)
        states = {path.parent for path in tmp_path.glob("spark-home/work/*/*/state")}
        assert len(states) > 2, "executors share a state folder"
