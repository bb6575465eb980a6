"""Cases on the real engine, in this process: one batch an event, from the log and back to it.

`make conformance-spark` runs all cases so, with tasks on Spark; `tests/engine/spark` runs these.
"""

from __future__ import annotations

import pytest

from conformance.cases import Case
from conformance.on_engine import run_on_engine
from conformance.on_engine_rules import chosen, difference


@pytest.mark.parametrize("case", chosen(), ids=lambda case: case["name"])
def test_case_gives_the_same_on_the_engine(case: Case) -> None:
    found = difference(case, run_on_engine(case))
    assert found is None, found
