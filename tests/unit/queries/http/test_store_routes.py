"""Keys, entries, windows, sessions and versions over HTTP."""

from __future__ import annotations

import base64
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from penstock import Stores
from penstock.queries.http import HttpSettings, create_app
from penstock.queries.state_reader import Host, KeyLocation
from unit.queries.http.fakes import FakeReader


def all_pages(client: TestClient, path: str, **parameters: object) -> list[dict[str, object]]:
    """Return the entries of all pages."""
    entries, cursor = [], parameters.pop("cursor", None)
    while True:
        page = client.get(path, params={**parameters, **({"cursor": cursor} if cursor else {})})
        assert page.status_code == 200, page.text
        entries += page.json()["entries"]
        cursor = page.json()["next"]
        if cursor is None:
            return entries


def test_value_has_its_timestamp_in_both_forms(client: TestClient) -> None:
    assert client.get("/stores/counts/keys/key-3").json() == {
        "key": "key-3", "value": 3, "timestamp": "1970-01-01T00:00:01.003Z", "timestamp_ms": 1_003,
    }


@pytest.mark.parametrize("key", ["a/b", "", "ünï/ ☃", "a%2Fb", ".."])
def test_odd_keys_are_found_by_path_and_by_query(client: TestClient, key: str) -> None:
    by_path = client.get(f"/stores/counts/keys/{quote(key, safe='').replace('.', '%2E')}")
    by_query = client.get("/stores/counts/key", params={"key": key})
    expected = {
        "key": key, "value": 2**63 - 1, "timestamp": "1970-01-01T00:00:00.005Z", "timestamp_ms": 5
    }
    assert by_query.json() == expected
    # The test client resolves dots, and decodes percent signs twice.
    if key not in ("..", "a%2Fb"):
        assert by_path.json() == expected


def test_key_of_a_megabyte_is_found_by_its_body(client: TestClient) -> None:
    answer = client.post("/stores/counts/lookup", json={"keys": ["k" * 1_000_000, "nobody"]})
    assert [entry["found"] for entry in answer.json()["entries"]] == [True, False]


def test_body_without_its_content_type_gets_a_hint(client: TestClient) -> None:
    # As curl -d sends it.
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = client.post("/stores/counts/lookup", content='{"keys": ["a"]}', headers=form)
    assert answer.status_code == 422
    assert answer.json()["detail"].endswith("with the header 'Content-Type: application/json'.")
    answer = client.post("/stores/counts/lookup", json={"key": "a"})
    assert "Content-Type" not in answer.json()["detail"]


def test_long_url_is_refused(client: TestClient) -> None:
    answer = client.get("/stores/counts/key", params={"key": "k" * 20_000})
    assert answer.status_code == 414
    assert "POST /stores/STORE/lookup" in answer.json()["detail"]


def test_missing_key_and_missing_store_are_named(client: TestClient) -> None:
    answer = client.get("/stores/counts/keys/nobody")
    assert (answer.status_code, answer.json()["detail"]) == (
        404, "Store 'counts' has no key 'nobody'."
    )
    answer = client.get("/stores/count/keys/nobody")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"] == (
        "No store 'count'. Did you mean 'counts'? Stores: 'blobs', 'counts', 'orders', "
        "'per_minute', 'prices', 'visits'."
    )


def test_wrong_kind_names_the_path_to_use(client: TestClient) -> None:
    answer = client.get("/stores/per_minute/keys/ann")
    assert answer.status_code == 400
    assert answer.json()["detail"] == (
        "Store 'per_minute' is a window store. Use /stores/per_minute/windows."
    )


def test_keys_have_the_type_of_the_store(client: TestClient) -> None:
    assert client.get("/stores/orders/keys/7").json() == {
        "key": 7, "value": {"item": "tea", "amount": 3}
    }
    answer = client.get("/stores/orders/keys/seven")
    assert answer.status_code == 400
    assert "type long" in answer.json()["detail"]
    assert client.get("/stores/orders/keys/9223372036854775808").status_code == 400
    assert client.post("/stores/orders/lookup", json={"keys": [None]}).status_code == 400


def test_bytes_are_marked_as_base64(client: TestClient) -> None:
    key = base64.b64encode(b"\x00\xff").decode()
    answer = client.get("/stores/blobs/key", params={"key": key, "encoding": "base64"}).json()
    assert answer == {"key": {"base64": "AP8="}, "value": {"base64": "Af4="}}
    found = client.post("/stores/blobs/lookup", json={"keys": [answer["key"]]}).json()
    assert found["entries"][0]["found"]


def test_entries_of_all_partitions_come_in_one_order(client: TestClient) -> None:
    entries = all_pages(
        client, "/stores/counts/entries", limit=3, **{"from": "key-2", "to": "key-8"}
    )
    assert [entry["key"] for entry in entries] == [f"key-{number}" for number in range(2, 9)]
    entries = all_pages(client, "/stores/counts/entries", limit=2, prefix="key-", order="desc")
    assert [entry["key"] for entry in entries] == [f"key-{number}" for number in range(9, -1, -1)]


def test_page_continues_after_the_last_key_despite_writes(
    client: TestClient, reader: FakeReader
) -> None:
    first = client.get("/stores/orders/entries", params={"limit": 1})
    assert first.json()["next"] is None
    for key in (1, 2, 3):
        reader.put("orders", key, reader.store("orders").get(7))
    first = client.get("/stores/orders/entries", params={"limit": 2}).json()
    reader.put("orders", 0, reader.store("orders").get(7))
    second = client.get(
        "/stores/orders/entries", params={"limit": 2, "cursor": first["next"]}
    ).json()
    assert [entry["key"] for entry in first["entries"]] == [1, 2]
    assert [entry["key"] for entry in second["entries"]] == [3, 7]


#: Keys around the length up to which a cursor holds a whole key, in order.
SHARED = ["k" * 1_024, *(f"{'k' * 1_024}{number}" for number in range(20))]
LONG = ["a" * 20_000, "b", f"b{'é' * 20_000}", *SHARED, "k" * 1_023 + "l", "m" * 100_000, "z"]


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("limit", [1, 3])
def test_pages_continue_after_long_keys(
    client: TestClient, reader: FakeReader, limit: int, order: str
) -> None:
    reader.add("long", "key-value", Stores.key_value_store_builder(
        Stores.in_memory_key_value_store("long"), str, int
    ), str, int, partitions=3)
    for number, key in enumerate(LONG):
        reader.put("long", key, number)
    entries = all_pages(client, "/stores/long/entries", limit=limit, order=order)
    found = [entry["value"] for entry in entries]
    ordered = found if order == "asc" else found[::-1]
    assert sorted(found) == list(range(len(LONG)))
    assert ordered[:4] == [0, 1, 2, 3]
    assert ordered[-3:] == [24, 25, 26]


def test_page_continues_after_a_long_key_that_was_deleted(
    client: TestClient, reader: FakeReader
) -> None:
    keys = [f"{'k' * 20_000}{number}" for number in range(9)]
    (store,) = reader.add("long", "key-value", Stores.key_value_store_builder(
        Stores.in_memory_key_value_store("long"), str, int
    ), str, int)
    for number, key in enumerate(keys):
        store.put(key, number)
    first = client.get("/stores/long/entries", params={"limit": 4}).json()
    for entry in first["entries"][1:]:
        store.delete(entry["key"])
    rest = all_pages(client, "/stores/long/entries", limit=4, cursor=first["next"])
    assert {entry["value"] for entry in first["entries"] + rest} == set(range(9))
    assert len(first["entries"] + rest) == 9


def test_pages_of_windows_continue_after_long_keys(
    client: TestClient, reader: FakeReader
) -> None:
    store = reader.store("per_minute", 0)
    for number in range(5):
        store.put(f"{'k' * 20_000}{number}", 100 + number, 30 * 60_000)
    for order in ("asc", "desc"):
        entries = all_pages(client, "/stores/per_minute/windows", limit=2, order=order)
        assert len(entries) == 67
        assert {entry["value"] for entry in entries} >= set(range(100, 105))


def test_prefix_of_number_keys_is_the_first_bytes(client: TestClient, reader: FakeReader) -> None:
    for key in (1, 255, 256, 511, 2**40):
        reader.put("orders", key, reader.store("orders").get(7))
    answer = client.get("/stores/orders/entries", params={"prefix": "1"})
    assert "encoding=base64" in answer.json()["detail"]

    def keys(prefix: bytes, **more: object) -> list[object]:
        text = base64.b64encode(prefix).decode()
        entries = all_pages(
            client, "/stores/orders/entries", prefix=text, encoding="base64", limit=2, **more
        )
        return [entry["key"] for entry in entries]

    assert keys(bytes(3)) == [1, 7, 255, 256, 511]
    assert keys(bytes(7), order="desc") == [255, 7, 1]
    assert keys(bytes(6) + b"\x01") == [256, 511]
    answer = client.get("/stores/orders/entries", params={"prefix": "?", "encoding": "base64"})
    assert answer.json()["detail"].startswith("prefix is not base64")


def test_forged_and_foreign_cursors_are_refused(client: TestClient) -> None:
    cursor = client.get("/stores/counts/entries", params={"limit": 1}).json()["next"]
    for forged in (("A" if cursor[0] != "A" else "B") + cursor[1:], "AAAA", "", "é", "%00"):
        answer = client.get("/stores/counts/entries", params={"cursor": forged})
        assert answer.status_code == 400, forged
        assert answer.json()["detail"].startswith("The cursor is not valid.")
    answer = client.get("/stores/counts/entries", params={"cursor": cursor, "order": "desc"})
    assert answer.status_code == 400
    assert "another query" in answer.json()["detail"]


def test_page_size_is_limited(client: TestClient) -> None:
    for limit in (0, -1, 1_001):
        answer = client.get("/stores/counts/entries", params={"limit": limit})
        assert answer.status_code == 400
        assert answer.json()["detail"] == f"limit must be between 1 and 1000, not {limit}."


def test_windows_of_a_key(client: TestClient) -> None:
    entries = all_pages(
        client, "/stores/per_minute/windows", key="ann", limit=4,
        **{"from": "1970-01-01T00:10:00Z", "to": 15 * 60_000},
    )
    assert [entry["value"] for entry in entries] == list(range(10, 16))
    assert entries[0]["window"] == {
        "start": "1970-01-01T00:10:00.000Z", "start_ms": 600_000,
        "end": "1970-01-01T00:11:00.000Z", "end_ms": 660_000,
    }
    backward = all_pages(client, "/stores/per_minute/windows", key="ann", limit=7, order="desc")
    assert [entry["value"] for entry in backward] == list(range(29, -1, -1))


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_windows_of_all_keys_come_by_start_and_key(client: TestClient, order: str) -> None:
    entries = all_pages(client, "/stores/per_minute/windows", limit=7, order=order)
    found = [(entry["value"], entry["key"]) for entry in entries]
    expected = [(minute, key) for minute in range(30) for key in ("ann", "bob")]
    expected[2:2] = [(0, "zed"), (0, "zoe")]
    assert found == (expected if order == "asc" else expected[::-1])


def test_sessions_by_key_and_time(client: TestClient) -> None:
    entries = all_pages(client, "/stores/visits/sessions", key="ann", limit=1)
    assert [entry["value"] for entry in entries] == [1, 2, 3]
    entries = all_pages(client, "/stores/visits/sessions", limit=2, to=120)
    assert [(entry["key"], entry["window"]["start_ms"]) for entry in entries] == [
        ("ann", 0), ("bob", 5), ("ann", 100)
    ]


def test_versions_and_values_as_of_a_time(client: TestClient) -> None:
    answer = client.get("/stores/prices/keys/tea", params={"as_of": 25}).json()
    assert answer["value"] == 2.5
    early = client.get("/stores/prices/keys/tea", params={"as_of": 5})
    assert early.status_code == 404
    assert early.json()["detail"] == "Store 'prices' has no key 'tea' at 5."
    assert client.get("/stores/counts/keys/key-1", params={"as_of": 5}).status_code == 400
    page = client.get("/stores/prices/versions", params={"key": "tea", "limit": 2}).json()
    rest = client.get(
        "/stores/prices/versions", params={"key": "tea", "limit": 2, "cursor": page["next"]}
    ).json()
    versions = page["versions"] + rest["versions"]
    assert [(each["value"], each["valid_from_ms"], each["valid_to_ms"]) for each in versions] == [
        (1.5, 10, 20), (2.5, 20, 30), (3.5, 30, None)
    ]


def test_times_that_cannot_be_read_are_refused(client: TestClient) -> None:
    for text in ("yesterday", "-5", "2026-13-01"):
        answer = client.get("/stores/per_minute/windows", params={"from": text})
        assert answer.status_code == 400
        assert answer.json()["detail"].startswith("from is not a time.")
    answer = client.get("/stores/per_minute/windows", params={"from": 5, "to": 4})
    assert answer.json()["detail"] == "from (5) must not be after to (4)."


def test_stores_positions_and_locations(client: TestClient) -> None:
    stores = {each["name"]: each for each in client.get("/stores").json()["stores"]}
    assert stores["counts"] == client.get("/stores/counts").json() == {
        "name": "counts", "kind": "key-value", "key_type": "string", "value_type": "long",
        "is_global": False, "partitions": [0, 1, 2], "approximate_entries": 16,
    }
    assert client.get("/stores/counts/positions").json() == {"store": "counts", "partitions": [
        {"partition": 0, "position": 5, "end": 7, "lag": 2},
        {"partition": 1, "position": 3, "end": 3, "lag": 0},
    ]}
    assert client.get("/stores/counts/location", params={"key": "a"}).json() == {
        "key": "a", "partition": 0, "active": {"host": "one", "port": 8080}, "standbys": [],
    }


def test_location_without_an_address_has_the_partition(
    client: TestClient, reader: FakeReader
) -> None:
    reader.locate = lambda store, key: KeyLocation(2, None, ())  # type: ignore[method-assign]
    answer = client.get("/stores/counts/location", params={"key": "a"})
    assert answer.status_code == 200
    document = answer.json()
    assert "application.server" in document.pop("detail")
    assert document == {"key": "a", "partition": 2, "active": None, "standbys": []}
    standby = KeyLocation(2, None, (Host("two", 80),))
    reader.locate = lambda store, key: standby  # type: ignore[method-assign]
    document = client.get("/stores/counts/location", params={"key": "a"}).json()
    assert document["detail"].startswith("The known instances are standbys.")


def test_store_that_is_being_restored_is_unavailable(reader: FakeReader) -> None:
    from penstock.errors import InvalidStateStoreException

    def restoring(name: str, partition: int | None = None) -> object:
        raise InvalidStateStoreException(f"Store '{name}' is being restored.")

    reader.store = restoring  # type: ignore[method-assign]
    client = TestClient(create_app(reader, HttpSettings()))
    answer = client.get("/stores/counts/keys/a")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["detail"] == "Store 'counts' is being restored."


def test_values_that_json_lacks(client: TestClient, reader: FakeReader) -> None:
    reader.store("prices", 0).put("tea", float("nan"), 40)
    assert client.get("/stores/prices/keys/tea").json()["value"] == "NaN"
