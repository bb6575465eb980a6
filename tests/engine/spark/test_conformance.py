"""Cases on Spark: one batch, one job, for each event."""

from __future__ import annotations

import pytest

from conformance.cases import Case
from conformance.on_engine import run_on_engine
from conformance.on_engine_rules import chosen, difference
from conformance.on_spark import in_place
from penstock.engine.spark.backend import SparkBackend

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.parametrize("case", chosen(), ids=lambda case: case["name"])
def test_case_gives_the_same_on_spark(case: Case, place: SparkBackend) -> None:
    found = difference(case, run_on_engine(case, in_place(place)))
    assert found is None, found
