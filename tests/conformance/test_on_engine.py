"""Cases on the engine in this process: one batch for each event, from the log and back to it.

`make test` runs the themes of `THEMES` and one in sixteen of the other cases; `make test-rest` runs
the others. `make conformance-spark` runs all cases with tasks on Spark.
"""

from __future__ import annotations

from typing import Any

import pytest

from conformance.cases import CASES, Case, case_files, case_id, in_sample, read_cases
from conformance.on_engine import run_on_engine
from conformance.on_engine_rules import THEMES, difference, exemption

SAMPLE = 16


def _parameters() -> list[Any]:
    return [
        pytest.param(
            case, id=case_id(path, case),
            marks=() if case["theme"] in THEMES or in_sample(case, SAMPLE) else pytest.mark.full,
        )
        for path in case_files([CASES])
        for case in read_cases(path)
        if exemption(case) is None
    ]


@pytest.mark.parametrize("case", _parameters())
def test_case_equals_kafka_streams_on_the_engine(case: Case) -> None:
    found = difference(case, run_on_engine(case))
    assert found is None, found
