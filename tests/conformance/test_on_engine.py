"""Cases on the engine in this process: one batch for each event, from the log and back to it.

`make test` runs the themes of `THEMES` and one in sixteen of the other cases, `make test-rest` the
other themes and one in eight of the generated cases, `make test-exhaustive` all others. `make
conformance-spark` runs all cases with tasks on Spark.
"""

from __future__ import annotations

import pytest

from conformance.cases import Case
from conformance.on_engine import run_on_engine
from conformance.on_engine_rules import difference, engine_parameters


@pytest.mark.parametrize("case", engine_parameters())
def test_case_equals_kafka_streams_on_the_engine(case: Case) -> None:
    found = difference(case, run_on_engine(case))
    assert found is None, found
