"""Conformance cases with tasks on Spark: one batch, one job, for each event.

`make test-rest` runs one in four of them, `make test-exhaustive` the others.
"""

from __future__ import annotations

from typing import Any

import pytest

from conformance.cases import Case, in_sample
from conformance.on_engine import run_on_engine
from conformance.on_engine_rules import SMOKE, cases_for_spark, difference
from conformance.on_spark import start_on
from penstock.engine.spark.backend import SparkBackend

pytestmark = [pytest.mark.spark, pytest.mark.slow]
#: A case takes seconds, and the same engine runs many more without Spark.
_SAMPLE = 4


def _marks(case: Case) -> Any:
    if case["name"] in SMOKE:
        return pytest.mark.smoke
    return () if in_sample(case, _SAMPLE) else pytest.mark.exhaustive


def _parameters() -> list[Any]:
    return [
        pytest.param(case, id=case["name"], marks=_marks(case)) for case in cases_for_spark()
    ]


@pytest.mark.parametrize("case", _parameters())
def test_case_equals_kafka_streams_on_spark(case: Case, backend: SparkBackend) -> None:
    found = difference(case, run_on_engine(case, start_on(backend)))
    assert found is None, found
