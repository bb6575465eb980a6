"""Injects faults into an application in continuous mode on Kafka.

Each test compares all outputs, read as `read_committed`, and all stores with a run without faults.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from faults.campaign import Fault
from faults.engine_trial import LOCAL
from faults.kafka_trial import KafkaTrial

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.spark]


def test_lanes_and_drivers_are_killed_around_a_commit(tmp_path: Path) -> None:
    kills = [Fault("worker", each) for each in ("in-commit", "after-commit", "applying")]
    late, driver = Fault("late lane", "in-commit"), Fault("driver", "in-commit")
    with KafkaTrial(tmp_path, seed=1, master=LOCAL, execution="continuous") as trial:
        trial.inject(*kills)
        trial.inject(late)
        trial.inject(driver)
        trial.verify()
        assert trial.injected.keys() == {*kills, late, driver}


def test_group_and_broker_change_while_a_lane_commits(tmp_path: Path) -> None:
    faults = (Fault("standby", "in-commit"), Fault("broker", "in-commit"))
    with KafkaTrial(tmp_path, seed=2, execution="continuous") as trial:
        for fault in faults:
            trial.inject(fault)
        trial.verify()
        assert trial.injected.keys() == set(faults)


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGKILL, marks=pytest.mark.exhaustive), signal.SIGSTOP]
)
def test_lane_is_lost_between_its_offsets_and_its_commit(
    tmp_path: Path, number: signal.Signals
) -> None:
    """With one core there is one lane. The proxy drops its request to commit."""
    with KafkaTrial(tmp_path, seed=3, master="local[1]", execution="continuous") as trial:
        trial.lose_lane_in_transaction(number)
        trial.verify()


def test_driver_is_stopped_past_its_lease_while_its_lanes_run_on(tmp_path: Path) -> None:
    fault = Fault("late driver", "processed")
    with KafkaTrial(tmp_path, seed=4, master=LOCAL, execution="continuous") as trial:
        trial.inject(fault)
        trial.verify()
        assert trial.injected.total() == 1


def test_state_is_deleted_while_lanes_run(tmp_path: Path) -> None:
    faults = [Fault("state", each) for each in ("processed", "after-commit")]
    with KafkaTrial(tmp_path, seed=5, execution="continuous") as trial:
        for fault in faults:
            trial.inject(fault)
        trial.verify()
        assert trial.injected.keys() == set(faults)


def test_transaction_of_a_lane_exceeds_its_timeout(tmp_path: Path) -> None:
    """Without Spark, the lane is a thread of the driver."""
    with KafkaTrial(tmp_path, seed=6, execution="continuous") as trial:
        trial.outlast_transaction()
        trial.verify()
