"""Conformance cases with tasks on Spark: one batch, one job, for each event."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.cases import Case
from conformance.on_engine import run_on_engine
from conformance.on_engine_rules import SMOKE, cases_for_spark, difference
from conformance.on_spark import start_on
from penstock.engine.spark.backend import SparkBackend

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def _parameters() -> list[Any]:
    return [
        pytest.param(
            case, id=case["name"], marks=pytest.mark.smoke if case["name"] in SMOKE else ()
        )
        for case in cases_for_spark()
    ]


@pytest.mark.parametrize("case", _parameters())
def test_case_equals_kafka_streams_on_spark(case: Case, backend: SparkBackend) -> None:
    found = difference(case, run_on_engine(case, start_on(backend)))
    assert found is None, found
