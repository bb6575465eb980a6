"""Cases on the test driver: the results are those of Kafka Streams 4.3.0.

`make test` runs the themed cases and one in eight of the generated ones; `make test-rest` runs the
others.
"""

from __future__ import annotations

from typing import Any

import pytest

from conformance.cases import CASES, Case, case_files, case_id, in_sample, is_themed, read_cases
from conformance.compare import DELIBERATE, first_difference
from conformance.runner import run_case

SAMPLE = 8


def _parameters() -> list[Any]:
    return [
        pytest.param(
            case, id=case_id(path, case),
            marks=() if is_themed(path) or in_sample(case, SAMPLE) else pytest.mark.full,
        )
        for path in case_files([CASES])
        for case in read_cases(path)
    ]


@pytest.mark.parametrize("case", _parameters())
def test_case_equals_kafka_streams(case: Case) -> None:
    difference = first_difference(case, run_case(case))
    if difference is not None and case["name"] in DELIBERATE:
        pytest.xfail(DELIBERATE[case["name"]])
    assert difference is None, difference
