"""The header `Penstock-Position` of requests and responses."""

from __future__ import annotations

import asyncio
import json
from itertools import product
from typing import Any

import pytest
from starlette.testclient import TestClient

from penstock.queries.http import HttpSettings, create_app
from unit.queries.http.fakes import FakeReader

HEADER = "Penstock-Position"
PATHS = (
    "/stores/counts/keys/key-1", "/stores/counts/key?key=key-1", "/stores/counts/entries",
    "/stores/per_minute/windows", "/stores/per_minute/windows?key=ann",
    "/stores/visits/sessions", "/stores/prices/versions?key=tea", "/stores/prices/keys/tea",
)


def bound(**topics: int) -> dict[str, str]:
    """A header with an offset of partition 0 of each topic."""
    offsets = {name.replace("_", "-"): {"0": offset} for name, offset in topics.items()}
    return {HEADER: json.dumps(offsets)}


def is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def test_every_read_has_its_position(reader: FakeReader, client: TestClient) -> None:
    reader.offsets = {0: 41, 1: 7}
    for path in PATHS:
        answer = client.get(path)
        assert answer.status_code == 200, path
        assert answer.headers[HEADER] == '{"shop-changelog":{"0":41,"1":7}}', path


def test_request_waits_until_the_store_has_reached_its_bound(
    reader: FakeReader, client: TestClient
) -> None:
    for path in PATHS:
        reader.offsets = {0: 41}
        answer = client.get(path, headers=bound(shop_changelog=44))
        assert answer.status_code == 200, path
        assert json.loads(answer.headers[HEADER]) == {"shop-changelog": {"0": 44}}, path


def test_lookup_of_several_keys_has_a_position_and_a_bound(
    reader: FakeReader, client: TestClient
) -> None:
    reader.offsets = {0: 41}
    body = {"keys": ["key-1", "missing"]}
    answer = client.post("/stores/counts/lookup", json=body, headers=bound(shop_changelog=43))
    assert json.loads(answer.headers[HEADER]) == {"shop-changelog": {"0": 43}}


def test_missing_key_has_a_position_too(reader: FakeReader, client: TestClient) -> None:
    reader.offsets = {0: 41}
    answer = client.get("/stores/counts/keys/missing", headers=bound(shop_changelog=42))
    assert answer.status_code == 404
    assert json.loads(answer.headers[HEADER]) == {"shop-changelog": {"0": 42}}


def test_response_keeps_the_positions_of_other_stores_in_the_bound(
    reader: FakeReader, client: TestClient
) -> None:
    reader.offsets = {0: 41}
    sent = bound(shop_changelog=3, other_changelog=9, orders=5)
    answer = client.get("/stores/counts/keys/key-1", headers=sent)
    assert json.loads(answer.headers[HEADER]) == {
        "shop-changelog": {"0": 41}, "other-changelog": {"0": 9}
    }


def test_bound_that_is_not_reached_in_time_is_refused(reader: FakeReader) -> None:
    reader.offsets = {0: 41}
    settings = HttpSettings(bound_timeout_s=0.001)
    with TestClient(create_app(reader, settings)) as client:
        answer = client.get("/stores/counts/keys/key-1", headers=bound(shop_changelog=10**9))
    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "1"
    problem = answer.json()
    assert problem["reason"] == "NOT_UP_TO_BOUND"
    assert problem["position"]["shop-changelog"]["0"] < 100
    assert "another instance" in problem["detail"]


def test_reader_that_may_need_the_log_does_not_block_other_requests(
    reader: FakeReader, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_event_loop: list[bool] = []
    store = reader.store

    def find(name: str, partition: int | None = None) -> Any:
        in_event_loop.append(is_in_event_loop())
        return store(name, partition)

    monkeypatch.setattr(FakeReader, "is_known_ready", False)
    monkeypatch.setattr(reader, "store", find)
    for path in PATHS:
        assert client.get(path).status_code == 200, path
    assert client.post("/stores/counts/lookup", json={"keys": ["key-1"]}).status_code == 200
    assert in_event_loop
    assert not any(in_event_loop)


def test_malformed_bound_is_refused(client: TestClient) -> None:
    texts = ("", "x", "[]", '{"a":1}', '{"a":{"b":1}}', '{"a":{"0":"x"}}')
    for path, text in product(PATHS, texts):
        answer = client.get(path, headers={HEADER: text})
        assert answer.status_code == 400, (path, text)
        assert "is not a position" in answer.json()["detail"]


def test_description_has_the_header(client: TestClient) -> None:
    description = client.get("/openapi.json").json()
    reads = [
        operation for path, each in description["paths"].items() for operation in each.values()
        if path.rpartition("/")[2] in (
            "{key}", "key", "lookup", "entries", "windows", "sessions", "versions"
        )
    ]
    assert len(reads) == 7
    for operation in reads:
        assert HEADER in {each["name"] for each in operation["parameters"]}
        response = operation["responses"]["200"]
        assert HEADER in response["headers"]
        assert "application/json" in response["content"]


def test_scripts_of_allowed_sites_can_read_the_header(reader: FakeReader) -> None:
    reader.offsets = {0: 41}
    settings = HttpSettings(cors_origins=("https://shop.example",))
    with TestClient(create_app(reader, settings)) as client:
        answer = client.get(
            "/stores/counts/keys/key-1", headers={"Origin": "https://shop.example"}
        )
    assert HEADER in answer.headers["Access-Control-Expose-Headers"]
