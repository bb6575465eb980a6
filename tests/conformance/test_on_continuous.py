"""Cases in continuous mode, in this process: a lane reads each event from the log and commits.

`make test` runs the themes of `THEMES` and one in sixteen of the other cases, `make test-rest` the
other themes and one in eight of the generated cases, `make test-exhaustive` all others.
"""

from __future__ import annotations

import pytest

from conformance.cases import Case
from conformance.on_continuous import TIES, run_continuously
from conformance.on_engine_rules import difference, engine_parameters


@pytest.mark.parametrize("case", engine_parameters(except_for=TIES))
def test_case_equals_kafka_streams_in_continuous_mode(case: Case) -> None:
    found = difference(case, run_continuously(case), continuous=True)
    assert found is None, found
