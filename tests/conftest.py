"""What holds for all tests.

Generated examples may take their time, on a machine that is busy. With `-n 2` the tests run in two
processes: all that need Spark in one of them, so that there is one session, all that need a broker
alone in one, and of the others those of a file together.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        needed = [name for name in ("spark", "kafka") if item.get_closest_marker(name)]
        group = needed[0] if needed else item.nodeid.split("::", 1)[0]
        item.add_marker(pytest.mark.xdist_group(group))
