from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from penstock.queries.http import HttpSettings, create_app
from unit.queries.http.fakes import FakeReader, filled_reader


@pytest.fixture
def reader() -> FakeReader:
    return filled_reader()


@pytest.fixture
def client(reader: FakeReader) -> Iterator[TestClient]:
    with TestClient(create_app(reader, HttpSettings())) as client:
        yield client
