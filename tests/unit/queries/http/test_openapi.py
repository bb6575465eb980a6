"""schemathesis sends generated requests to every path of the OpenAPI description."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from penstock.log import open_log
from penstock.queries.http import HttpSettings, create_app
from unit.queries.http.fakes import filled_reader


@pytest.mark.full
def test_no_generated_request_causes_a_server_error(tmp_path: Path) -> None:
    with open_log(tmp_path / "log.db") as log:
        reader = filled_reader()
        for store in reader.stores().values():
            log.create_topic(store.name, len(store.partitions))
        reader.log = log
        reader.append("counts", 0, ("a", 1, 10))
        app = create_app(reader, HttpSettings(requests_per_second=None))
        schema = schemathesis.openapi.from_asgi("/openapi.json", app)
        operations = [found.ok() for found in schema.get_all_operations()]
        assert len(operations) == 18
        for operation in operations:
            check(operation)


def check(operation: Any) -> None:
    """Send generated requests, half of them to existing stores."""
    # The description cannot say which keys a store of the application accepts.
    unknown = [positive_data_acceptance]
    stores = ["counts", "orders", "blobs", "per_minute", "visits", "prices"]

    @settings(max_examples=40, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy())
    def send(case: Any) -> None:
        if case.path.endswith("/changes"):
            # A stream of changes does not end otherwise.
            case.query = {**(case.query or {}), "follow": "false"}
        case.call_and_validate(excluded_checks=unknown)
        if "store" in (case.path_parameters or {}):
            for store in stores:
                case.path_parameters = {**case.path_parameters, "store": store}
                case.call_and_validate(excluded_checks=unknown)

    send()
