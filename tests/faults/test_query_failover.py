"""Queries are served by the remaining instances while the active one is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults import query_failover
from faults.kafka_brokers import Brokers

MODES = (pytest.param("batch", marks=pytest.mark.exhaustive), "continuous")


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("execution", MODES)
def test_counts_stay_exact_and_never_go_back(tmp_path: Path, execution: str) -> None:
    findings = query_failover.run(tmp_path, 2, execution)
    assert findings.kills == len(findings.pauses) == 2
    assert findings.responses > findings.moves > 0


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.parametrize("execution", MODES)
def test_counts_stay_exact_on_kafka(tmp_path: Path, execution: str) -> None:
    with Brokers(tmp_path / "kafka") as brokers:
        findings = query_failover.run(tmp_path, 2, execution, brokers.address)
    assert findings.kills == len(findings.pauses) == 2
    assert findings.responses > 0
