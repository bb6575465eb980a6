"""The routes of the dashboard, with an application in this process."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import msgspec
import pytest
from starlette.testclient import TestClient

from penstock import Serdes, Streams, StreamsBuilder, StreamsConfig, Topology
from penstock.log import Log, RecordColumns, open_log
from penstock.log.types import TopicPartition
from penstock.queries.http import HttpSettings, Server
from penstock.queries.http.application import reader_of
from penstock.queries.http.authentication import DASHBOARD_FILES
from penstock.queries.node import QueryNode
from penstock.web.dashboard import create_dashboard
from penstock.web.records import decode
from penstock.web.store_rows import StoreRows

HOSTILE = b"<script>alert(1)</script>"
LOCAL = "http://127.0.0.1"


@dataclass
class Reading:
    sensor: str
    heat: int


def topology() -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("words", key=str, value=str)
    words.group_by_key().count(store="counts")
    words.map_values(int, name="parse").to("numbers", key=str, value=int)
    return builder.build()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "log.db") as log:
        for name in ("words", "numbers", "dead"):
            log.create_topic(name, 1)
        yield log


@pytest.fixture
def streams(log: Log, tmp_path: Path) -> Iterator[Streams]:
    log.append("words", 0, RecordColumns([b"a", b"b", b"a"], [b"1", HOSTILE, b"3"]))
    config = StreamsConfig(
        application_id="app", log=log.address, state_dir=tmp_path / "state",
        errors_dead_letter_queue_topic_name="dead", processing_exception_handler="continue",
        extra={"sasl.password": "hush", "basic.auth.user.info": "ann:hush"},
    )
    with Streams(topology(), config, master="inline") as streams:
        streams.run_until_caught_up(60)
        yield streams


def client_of(streams: Streams, **options: Any) -> TestClient:
    token = options.pop("token", None)
    return TestClient(
        create_dashboard(streams, HttpSettings(token=token), **options), base_url=LOCAL
    )


@pytest.fixture
def client(streams: Streams) -> Iterator[TestClient]:
    with client_of(streams) as client:
        yield client


def test_page_and_its_files_are_served_with_a_strict_policy(client: TestClient) -> None:
    for path in DASHBOARD_FILES:
        found = client.get(path)
        assert found.status_code == 200, path
        policy = found.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
    for path in ("overview", "settings", "records?topic=words", "topology.svg", "nothing"):
        data = client.get(f"/dashboard/{path}").headers
        assert "default-src 'none'" in data["content-security-policy"], path
        assert (data["x-content-type-options"], data["cache-control"]) == ("nosniff", "no-store")
    page = client.get("/").text
    assert "<title>penstock</title>" in page
    # Everything is a file of the package: no inline script or style, nothing from elsewhere.
    assert not re.search(r"<script(?![^>]*src=)|<style|style=|https?://| on\w+=", page)


def test_all_static_files_are_listed() -> None:
    names = {each.name for each in resources.files("penstock.web").joinpath("static").iterdir()}
    assert set(DASHBOARD_FILES.values()) == names


def test_overview_shows_topics_stores_and_metrics(client: TestClient) -> None:
    found = client.get("/dashboard/overview").json()
    assert (found["application"], found["state"]) == ("app", "RUNNING")
    assert found["runs_tasks"]
    topics = {each["name"]: each for each in found["topics"]}
    assert topics["words"]["lag"] == 0
    assert (topics["words"]["end"], topics["numbers"]["end"], topics["dead"]["end"]) == (3, 2, 1)
    assert [(each["name"], each["kind"]) for each in found["stores"]] == [("counts", "key-value")]
    assert found["tasks"]["0_0"]["records"] >= 3
    assert found["tasks"]["0_0"]["restore"] is None
    assert "KSTREAM-SOURCE-0000000000" in found["nodes"]
    assert {tuple(each[:2]) for each in found["edges"]} >= {("words", "KSTREAM-SOURCE-0000000000")}
    assert found["dead_letter_topics"] == ["dead"]
    [thread] = found["threads"]
    assert (thread["tasks"], thread["host"]) == (["0_0"], socket.gethostname())
    assert str(os.getpid()) in found["lease_holder"]


def test_stores_have_the_changes_per_second_of_their_changelogs(
    streams: Streams, log: Log
) -> None:
    rows, reader = StoreRows(), reader_of(streams)
    [first] = rows.read(reader, 100.0)
    # Nothing to compare with.
    assert first["changes_per_s"] is None
    log.append("words", 0, RecordColumns([b"c", b"d"], [b"1", b"2"]))
    streams.run_until_caught_up(60)
    [second] = rows.read(reader, 104.0)
    assert second["changes_per_s"] == 0.5
    assert rows.read(reader, 109.0)[0]["changes_per_s"] == 0.0


def test_page_of_a_query_node_does_not_say_that_the_application_runs(
    streams: Streams, log: Log, tmp_path: Path
) -> None:
    streams.close()
    config = StreamsConfig(application_id="app", log=log.address, state_dir=tmp_path / "node")
    with QueryNode(topology(), config) as node, TestClient(
        create_dashboard(node), base_url=LOCAL
    ) as client:
        found = client.get("/dashboard/overview").json()
    assert not found["runs_tasks"]
    assert found["lease_holder"] is None


def test_page_of_a_query_node_is_shown_before_the_application_has_run(
    log: Log, tmp_path: Path
) -> None:
    config = StreamsConfig(application_id="new", log=log.address, state_dir=tmp_path / "node")
    with QueryNode(topology(), config) as node, TestClient(
        create_dashboard(node), base_url=LOCAL
    ) as client:
        found = client.get("/dashboard/overview").json()
        assert "has never run" in found["not_ready"]
        assert {each["name"] for each in found["topics"]} >= {"words", "numbers"}
        rows = client.get("/dashboard/metrics").json()["metrics"]
        assert [name for _, name, _, _ in rows] == ["state", "application-id"]


def test_all_metrics_have_a_request_of_their_own(client: TestClient) -> None:
    assert "metrics" not in client.get("/dashboard/overview").json()
    rows = client.get("/dashboard/metrics").json()["metrics"]
    totals = [value for _, name, _, value in rows if name == "process-total"]
    assert max(totals) >= 3


def test_overview_is_shown_before_the_application_runs(log: Log, tmp_path: Path) -> None:
    config = StreamsConfig(
        application_id="app", log=log.address, state_dir=tmp_path / "state",
    )
    # It is not started.
    with client_of(Streams(topology(), config, master="inline")) as client:
        found = client.get("/dashboard/overview")
        assert found.status_code == 200
        assert found.json()["state"] == "CREATED"
        assert found.json()["not_ready"] is not None


def test_overviews_are_pushed(client: TestClient) -> None:
    with client.stream("GET", "/dashboard/events") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        line = next(each for each in response.iter_lines() if each)
        assert line.startswith('data: {"application":"app"')


def test_secrets_of_the_configuration_are_hidden(client: TestClient) -> None:
    settings = client.get("/dashboard/settings").json()
    assert settings["application.id"] == "app"
    assert settings["sasl.password"] == settings["basic.auth.user.info"] == "(hidden)"
    assert "hush" not in client.get("/dashboard/settings").text


def test_picture_has_no_styles(client: TestClient) -> None:
    picture = client.get("/dashboard/topology.svg").text
    assert picture.startswith("<svg")
    assert "<style" not in picture
    assert "topic words" in picture
    assert 'data-from="topic words" data-to="source KSTREAM-SOURCE-0000000000"' in picture


def test_records_are_read_from_an_offset(client: TestClient) -> None:
    found = client.get("/dashboard/records", params={"topic": "words", "offset": 1}).json()
    assert (found["start"], found["end"]) == (0, 3)
    assert [each["offset"] for each in found["records"]] == [1, 2]
    assert found["records"][0]["value"]["text"] == HOSTILE.decode()
    last = client.get("/dashboard/records", params={"topic": "words", "limit": 1}).json()
    assert [each["offset"] for each in last["records"]] == [2]


@pytest.mark.parametrize(("parameters", "status"), [
    ({"topic": "nothing"}, 404), ({"topic": "words", "partition": 7}, 404),
    ({"topic": "words", "limit": 10**6}, 422), ({"topic": "words", "value_as": "pickle"}, 422),
])
def test_wrong_requests_are_refused(
    client: TestClient, parameters: dict[str, Any], status: int
) -> None:
    assert client.get("/dashboard/records", params=parameters).status_code == status


def test_actions_need_permission_and_the_header(streams: Streams, log: Log) -> None:
    with client_of(streams) as client:
        refused = client.post("/dashboard/actions/pause", headers={"X-Penstock-Action": "1"})
        assert refused.status_code == 403
        assert "--allow-actions" in refused.json()["detail"]
    with client_of(streams, allow_actions=True) as client:
        assert client.post("/dashboard/actions/pause").status_code == 403
        headers = {"X-Penstock-Action": "1"}
        assert client.post("/dashboard/actions/pause", headers=headers).status_code == 200
        assert streams.is_paused
        assert client.post("/dashboard/actions/resume", headers=headers).status_code == 200
        assert not streams.is_paused
        assert client.post("/dashboard/actions/delete", headers=headers).status_code == 404
        letter = {"topic": "dead", "partition": 0, "offset": 0}
        sent = client.post("/dashboard/actions/replay", params=letter, headers=headers).json()
        assert sent == {"topic": "words", "partition": 0, "offset": 3}
        rows = next(log.read("words", 0, 3)).columns()
        assert (rows.keys[0], rows.values[0]) == (b"b", HOSTILE)
        assert not [
            name for name, _ in (rows.headers or [()])[0] if name.startswith("__streams.errors")
        ]
        wrong = client.post(
            "/dashboard/actions/replay", params={"topic": "words"}, headers=headers
        )
        assert wrong.status_code == 403
        assert "not a dead letter topic" in wrong.json()["detail"]
        # The replayed record becomes another dead letter at any time.
        added = log.append("dead", 0, RecordColumns([b"a"], [b"1"])).base_offset
        unknown = client.post(
            "/dashboard/actions/replay", params=letter | {"offset": added}, headers=headers
        )
        assert unknown.status_code == 409


def test_web_site_that_may_read_cannot_act(streams: Streams) -> None:
    """A browser asks before it sends the header of an action for another site."""
    site = "https://shop.example"
    settings = HttpSettings(cors_origins=(site,))
    with TestClient(create_dashboard(streams, settings, allow_actions=True),
                    base_url=LOCAL) as client:
        def asked(header: str) -> int:
            return client.options("/dashboard/actions/pause", headers={
                "Origin": site, "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": header,
            }).status_code

        assert asked("content-type") == 200
        assert asked("x-penstock-action") == 400


@pytest.mark.parametrize(("source", "detail"), [
    ({"topic": b"words", "partition": b"x"}, "do not name a topic"),
    ({"topic": b"\xff", "partition": b"0"}, "do not name a topic"),
    ({"topic": b"words"}, "does not name the topic"),
    ({"topic": b"words", "partition": b"9"}, "has no partition 9"),
    ({"topic": b"numbers", "partition": b"0"}, "which the application does not read"),
    ({"topic": b"elsewhere", "partition": b"0"}, "which the application does not read"),
])
def test_replay_writes_to_topics_of_the_application_only(
    streams: Streams, log: Log, source: dict[str, bytes], detail: str
) -> None:
    headers = [(f"__streams.errors.{name}", text) for name, text in source.items()]
    offset = log.append("dead", 0, RecordColumns([b"a"], [b"1"], None, [headers])).base_offset
    ends = [log.offsets([TopicPartition(each, 0)]) for each in ("words", "numbers")]
    with client_of(streams, allow_actions=True) as client:
        refused = client.post(
            "/dashboard/actions/replay", headers={"X-Penstock-Action": "1"},
            params={"topic": "dead", "partition": 0, "offset": offset},
        )
    assert (refused.status_code, detail in refused.json()["detail"]) == (409, True)
    assert ends == [log.offsets([TopicPartition(each, 0)]) for each in ("words", "numbers")]


def test_topics_of_a_pattern_have_lag_and_are_replayed_to(log: Log, tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile("w.*"), key=str, value=str).map_values(int, name="parse") \
        .to("numbers", key=str, value=int)
    log.append("words", 0, RecordColumns([b"a", b"b"], [b"1", HOSTILE]))
    config = StreamsConfig(
        application_id="app", log=log.address, state_dir=tmp_path / "state",
        errors_dead_letter_queue_topic_name="dead", processing_exception_handler="continue",
    )
    with Streams(builder.build(), config, master="inline") as streams:
        streams.run_until_caught_up(60)
        with client_of(streams, allow_actions=True) as client:
            found = client.get("/dashboard/overview").json()
            assert found["patterns"] == {"/w.*/": ["words"]}
            rows = {each["name"]: each for each in found["topics"]}
            assert (rows["words"]["end"], rows["words"]["lag"]) == (2, 0)
            sent = client.post(
                "/dashboard/actions/replay", headers={"X-Penstock-Action": "1"},
                params={"topic": "dead", "partition": 0, "offset": 0},
            )
            assert sent.json()["topic"] == "words"


def test_charts_have_values_from_before_the_page_was_opened(client: TestClient) -> None:
    """The first sample is taken when the server starts."""
    deadline = time.monotonic() + 60
    while not (samples := client.get("/dashboard/history").json()["samples"]):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert samples[0].keys() == {"time", "records_per_s", "latency_ms", "commit_ms", "lag"}
    assert samples[0]["lag"] == 0


def test_more_streams_than_allowed_are_refused(streams: Streams) -> None:
    settings = HttpSettings(port=0, max_event_streams=1)
    with Server(create_dashboard(streams, settings), settings) as server:
        with urlopen(f"{server.url}/dashboard/events") as first:
            assert first.readline().startswith(b"data: ")
            with pytest.raises(HTTPError) as refused:
                urlopen(f"{server.url}/dashboard/events")
            assert refused.value.code == 503
            refused.value.close()
        # The first one has ended.
        deadline = time.monotonic() + 60
        while True:
            try:
                with urlopen(f"{server.url}/dashboard/events") as again:
                    assert again.readline().startswith(b"data: ")
                break
            except HTTPError as busy:
                busy.close()
                assert time.monotonic() < deadline
                time.sleep(0.05)


def test_token_protects_the_data_but_not_the_page(streams: Streams) -> None:
    with client_of(streams, token="s3cret") as client:
        assert client.get("/dashboard").status_code == 200
        assert client.get("/dashboard/dashboard.js").status_code == 200
        for path in ("overview", "metrics", "events", "settings", "topics", "topology.svg"):
            assert client.get(f"/dashboard/{path}").status_code == 401, path
        allowed = client.get(
            "/dashboard/overview", headers={"Authorization": "Bearer s3cret"}
        )
        assert allowed.status_code == 200


@pytest.mark.parametrize(("data", "how", "text", "kind"), [
    (b'{"a":1}', "auto", '{\n  "a": 1\n}', "json"), (b"plain", "auto", "plain", "string"),
    (b"\xff\x00", "auto", "ff 00", "hex"), (bytes(7) + b"\x05", "long", "5", "long"),
    (b"12", "string", "12", "string"), (b"12", "hex", "31 32", "hex"),
    (b"not eight", "long", "not eight", "string"), (b"", "auto", "", "string"),
])
def test_payloads_are_decoded(data: bytes, how: Any, text: str, kind: str) -> None:
    found = decode(data, how)
    assert found is not None
    assert (found["text"], found["as"], found["cut"]) == (text, kind, False)


def test_bytes_with_control_characters_are_no_text() -> None:
    """An Avro string of five characters has the length 0x0a, which is also a line feed."""
    for data in (b"\0\0\0\0\1\x0ahello", b"a\x1b[2J", b"\x7f\n"):
        assert (decode(data, "auto") or {})["as"] == "hex"
        assert (decode(data, "string") or {})["as"] == "string"
    assert (decode(b"a\tb\r\nc", "auto") or {})["as"] == "string"


def test_headers_of_an_error_are_text(client: TestClient, log: Log) -> None:
    message = b'{"a":  1}'
    log.append("dead", 0, RecordColumns(
        [b"a"], [b"1"], None, [[("__streams.errors.message", message), ("other", message)]]
    ))
    [record] = client.get("/dashboard/records?topic=dead&limit=1").json()["records"]
    shown = {name: value["text"] for name, value in record["headers"]}
    assert shown["__streams.errors.message"] == message.decode()
    assert msgspec.json.decode(shown["other"]) == {"a": 1}


def test_large_payloads_are_cut() -> None:
    found = decode(b"x" * 100_000, "string")
    assert found is not None
    assert (len(found["text"]), found["cut"], found["bytes"]) == (20_000, True, 100_000)
    assert decode(None, "auto") is None


def test_serde_of_the_topology_reads_its_topics(log: Log, tmp_path: Path) -> None:
    packed = Serdes.msgpack(Reading)
    builder = StreamsBuilder()
    builder.stream("words", key=int, value=packed).to("numbers")
    data = packed.serialize(Reading("kiln", 3))
    log.append("words", 0, RecordColumns([bytes(7) + b"\x05", None], [data, b"\xc1"]))
    config = StreamsConfig(
        application_id="app", log=log.address, state_dir=tmp_path / "state",
        deserialization_exception_handler="continue",
    )
    with Streams(builder.build(), config, master="inline") as streams, client_of(streams) as client:
        streams.run_until_caught_up(60)
        for topic in ("words", "numbers"):
            url = f"/dashboard/records?topic={topic}&offset=0&limit=1"
            [record] = client.get(f"{url}&key_as=serde").json()["records"]
            assert (record["key"]["text"], record["key"]["as"]) == ("5", "serde")
            assert msgspec.json.decode(record["value"]["text"]) == {"sensor": "kiln", "heat": 3}
            assert record["value"]["as"] == "serde"
        # A value that the serde cannot read, and a topic that the topology does not know.
        [broken] = client.get("/dashboard/records?topic=words&offset=1").json()["records"]
        assert (broken["value"]["text"], broken["value"]["as"]) == ("c1", "hex")
        # A dead letter is read as a record of its source.
        source = [[("__streams.errors.topic", b"words")]]
        log.append("dead", 0, RecordColumns([None], [data], None, source))
        [dead] = client.get("/dashboard/records?topic=dead&limit=1").json()["records"]
        assert msgspec.json.decode(dead["value"]["text"]) == {"sensor": "kiln", "heat": 3}
        log.append("dead", 0, RecordColumns([None], [data]))
        [dead] = client.get(
            "/dashboard/records?topic=dead&value_as=serde&limit=1"
        ).json()["records"]
        assert dead["value"]["as"] == "hex"
