"""Every kept case gives what Kafka Streams 4.3.0 gave."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.cases import KEPT, case_files, read_cases
from conformance.compare import DELIBERATE, first_difference
from conformance.runner import run_case


def _parameters() -> list[Any]:
    return [
        pytest.param(case, id=f"{path.name.removesuffix('.jsonl.gz')}:{case['name']}")
        for path in case_files([KEPT])
        for case in read_cases(path)
    ]


@pytest.mark.parametrize("case", _parameters())
def test_case_gives_what_kafka_streams_gave(case: dict[str, Any]) -> None:
    difference = first_difference(case, run_case(case))
    if difference is not None and case["name"] in DELIBERATE:
        pytest.xfail(DELIBERATE[case["name"]])
    assert difference is None, difference
