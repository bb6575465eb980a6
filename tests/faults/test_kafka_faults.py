"""An application on Kafka: brokers, connections and processes fail; `make faults` does it often.

Each test compares all outputs, read as `read_committed`, and all stores with a run without a fault.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.kafka_trial import Fault, KafkaTrial

pytestmark = [pytest.mark.slow, pytest.mark.kafka]


@pytest.mark.smoke
def test_broker_is_killed_in_a_commit(tmp_path: Path) -> None:
    with KafkaTrial(tmp_path, seed=3) as trial:
        trial.suffer(Fault("broker", "in-commit"))
        trial.verify()
        assert trial.suffered.total() == 1


def test_whatever_is_lost_in_the_commit_every_result_appears_once(tmp_path: Path) -> None:
    """In one trial: a broker of its own takes longer to start than most of them last."""
    faults = (
        Fault("answer", "EndTxn"), Fault("broker", "in-commit"), Fault("dark", "EndTxn"),
        Fault("late driver", "in-commit"),
    )
    with KafkaTrial(tmp_path, seed=1) as trial:
        for fault in faults:
            trial.suffer(fault)
        trial.verify()
        assert trial.suffered.keys() == set(faults)


def test_a_leader_of_three_brokers_is_killed(tmp_path: Path) -> None:
    with KafkaTrial(tmp_path, seed=2, brokers=3) as trial:
        trial.suffer(Fault("leader", "in-commit"))
        trial.verify()
        assert trial.suffered.total() == 1
