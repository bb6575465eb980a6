"""Injects faults into an application on Kafka; `make faults` injects many more.

Each test compares all outputs, read as `read_committed`, and all stores with a run without faults.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.campaign import Fault
from faults.kafka_trial import KafkaTrial

pytestmark = [pytest.mark.slow, pytest.mark.kafka]


@pytest.mark.smoke
def test_broker_is_killed_in_a_commit(tmp_path: Path) -> None:
    with KafkaTrial(tmp_path, seed=3) as trial:
        trial.inject(Fault("broker", "in-commit"))
        trial.verify()
        assert trial.injected.total() == 1


@pytest.mark.exhaustive
def test_every_result_appears_once_after_faults_in_the_commit(tmp_path: Path) -> None:
    """One trial for all faults: a broker takes longer to start than most of them last."""
    faults = (
        Fault("response", "EndTxn"), Fault("broker", "in-commit"), Fault("outage", "EndTxn"),
        Fault("late driver", "in-commit"),
    )
    with KafkaTrial(tmp_path, seed=1) as trial:
        for fault in faults:
            trial.inject(fault)
        trial.verify()
        assert trial.injected.keys() == set(faults)


@pytest.mark.exhaustive
def test_leader_of_three_brokers_is_killed(tmp_path: Path) -> None:
    with KafkaTrial(tmp_path, seed=2, brokers=3) as trial:
        trial.inject(Fault("leader", "in-commit"))
        trial.verify()
        assert trial.injected.total() == 1
