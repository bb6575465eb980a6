"""Queries are served by the remaining instances while the active one is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults import query_failover


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("execution", ["batch", "continuous"])
def test_counts_stay_exact_and_never_go_back(tmp_path: Path, execution: str) -> None:
    findings = query_failover.run(tmp_path, 2, execution)
    assert findings.kills == len(findings.pauses) == 2
    assert findings.responses > 0
