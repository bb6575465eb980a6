"""Server-sent events of changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from penstock.log import open_log
from penstock.queries.http import HttpSettings, create_app
from unit.queries.http.fakes import FakeReader


@pytest.fixture
def logged(reader: FakeReader, tmp_path: Path) -> Iterator[FakeReader]:
    with open_log(tmp_path / "log.db") as log:
        log.create_topic("counts", 3)
        reader.log = log
        yield reader


def events(text: str) -> list[dict[str, str]]:
    """Parse a stream of events."""
    return [
        dict(line.split(": ", 1) for line in block.splitlines())  # type: ignore[misc]
        for block in text.strip().split("\n\n")
    ]


def changes(client: TestClient, last: str | None = None, **parameters: Any) -> list[Any]:
    """Return (id, data) of all changes up to the end."""
    headers = {} if last is None else {"Last-Event-ID": last}
    answer = client.get(
        "/stores/counts/changes", params={"follow": "false", **parameters}, headers=headers
    )
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    return [
        (each["id"], json.loads(each["data"])) for each in events(answer.text) if "data" in each
    ]


def test_changes_of_a_store_with_their_positions(client: TestClient, logged: FakeReader) -> None:
    logged.append("counts", 0, ("a", 1, 10), ("a", 2, 20))
    logged.append("counts", 2, ("c", None, 30))
    found = changes(client, start="beginning")
    assert [position for position, _ in found] == ["0:1,1:0,2:0", "0:2,1:0,2:0", "0:2,1:0,2:1"]
    assert found[0][1] == {
        "key": "a", "value": 1, "deleted": False, "timestamp": "1970-01-01T00:00:00.010Z",
        "timestamp_ms": 10, "partition": 0, "offset": 0,
    }
    assert found[2][1]["deleted"]
    assert found[2][1]["value"] is None


def test_stream_resumes_after_the_last_event(client: TestClient, logged: FakeReader) -> None:
    logged.append("counts", 0, ("a", 1, 10), ("a", 2, 20), ("b", 3, 30))
    first = changes(client, start="beginning")
    logged.append("counts", 1, ("d", 4, 40))
    rest = changes(client, last=first[0][0])
    assert [data["value"] for _, data in rest] == [2, 3, 4]


def test_stream_starts_at_the_end(client: TestClient, logged: FakeReader) -> None:
    logged.append("counts", 0, ("a", 1, 10))
    answer = client.get("/stores/counts/changes", params={"follow": "false"})
    assert events(answer.text) == [{"retry": "1000", "id": "0:1,1:0,2:0"}]


def test_changes_of_one_key(client: TestClient, logged: FakeReader) -> None:
    logged.append("counts", 0, ("a", 1, 10), ("b", 2, 20), ("a", 3, 30))
    found = changes(client, start="beginning", key="a")
    assert [data["value"] for _, data in found] == [1, 3]


@pytest.mark.parametrize("last", ["x", "0", "0:1,", "9:1", "0:-1", "0:99999999999999999999", "é"])
def test_unknown_ids_are_refused(client: TestClient, logged: FakeReader, last: str) -> None:
    answer = client.get(
        "/stores/counts/changes", params={"follow": "false"},
        headers={"Last-Event-ID": last.encode()},
    )
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith("Last-Event-ID is not an id")


def test_id_beyond_the_end_waits_for_new_changes(client: TestClient, logged: FakeReader) -> None:
    logged.append("counts", 0, ("a", 1, 10))
    assert changes(client, last="0:5,1:0,2:0") == []


def test_records_that_the_log_has_removed_are_left_out(
    client: TestClient, logged: FakeReader
) -> None:
    logged.append("counts", 0, ("a", 1, 10), ("a", 2, 20), ("a", 3, 30))
    assert logged.log is not None
    logged.log.delete_records("counts", 0, 2)
    assert [data["value"] for _, data in changes(client, start="beginning")] == [3]


def test_store_without_changelog_is_named(client: TestClient) -> None:
    answer = client.get("/stores/counts/changes")
    assert (answer.status_code, answer.json()["detail"]) == (
        409, "Store 'counts' has no changelog, so its changes cannot be followed."
    )


def test_missing_changelog_topic_is_unavailable(client: TestClient, logged: FakeReader) -> None:
    answer = client.get("/stores/orders/changes")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")


def test_number_of_streams_is_limited(logged: FakeReader) -> None:
    client = TestClient(create_app(logged, HttpSettings(max_event_streams=1)))
    for _ in range(3):  # A stream that has ended does not count.
        assert changes(client) == []
