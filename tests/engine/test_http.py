"""The state of running instances and of query nodes over HTTP."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from engine.instances import (
    PATIENCE_S,
    TEXT,
    BlockedCompute,
    CreateStreams,
    send,
    until,
    word_count,
)
from penstock import (
    Materialized,
    SessionWindows,
    State,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    TimeWindows,
    Topology,
)
from penstock.log import Log, RecordColumns
from penstock.partitioning import partition_of
from penstock.queries.http import HttpSettings, Server, create_app
from penstock.queries.node import QueryNode
from unit.queries.kinds_of_stores import TOPICS, all_kinds

SETTINGS = HttpSettings(port=0, requests_per_second=None)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def serve(stack: ExitStack, application: Any) -> str:
    """Serve an application until the end of the test. Returns its address."""
    return stack.enter_context(Server(create_app(application, SETTINGS), SETTINGS)).url


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.load(answer)


def status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def node_for(stack: ExitStack, log: Log, folder: Path, topology: Topology) -> QueryNode:
    config = StreamsConfig(application_id="app", log=log.address, state_dir=str(folder))
    return stack.enter_context(QueryNode(topology, config))


def count_of(url: str, word: str) -> int | None:
    path = f"{url}/stores/counts/keys/{word}"
    return None if status(path) == 404 else int(get(path)["value"])


def test_running_instance_is_served(
    stack: ExitStack, create_streams: CreateStreams, log: Log
) -> None:
    streams = create_streams(word_count())
    url = serve(stack, streams)
    assert status(f"{url}/ready") == 503
    assert status(f"{url}/stores/counts/keys/a") == 503
    send(log, "a b a")
    streams.run_until_caught_up(PATIENCE_S)
    assert status(f"{url}/ready") == 200
    assert count_of(url, "a") == 2
    send(log, "a c")
    streams.run_until_caught_up(PATIENCE_S)
    assert count_of(url, "a") == 3
    entries = get(f"{url}/stores/counts/entries")["entries"]
    assert [(entry["key"], entry["value"]) for entry in entries] == [("a", 3), ("b", 1), ("c", 1)]
    (store,) = get(f"{url}/stores")["stores"]
    assert (store["kind"], store["approximate_entries"]) == ("key-value", 3)
    location = get(f"{url}/stores/counts/location?key=a")
    assert (location["partition"], location["active"]) == (
        partition_of(b"a", len(store["partitions"])), None
    )
    streams.close()
    assert status(f"{url}/health") == 503
    assert status(f"{url}/stores/counts/keys/a") == 503


def test_metrics_of_an_instance_are_legal(
    stack: ExitStack, create_streams: CreateStreams, log: Log
) -> None:
    streams = create_streams(word_count())
    send(log, "a b a")
    streams.run_until_caught_up(PATIENCE_S)
    url = serve(stack, streams)
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        text = answer.read().decode()
    families = {each.name: each for each in text_string_to_metric_families(text)}
    assert len(families) > 20
    (total,) = families["penstock_stream_thread_process"].samples
    assert total.value >= 1
    (state,) = families["penstock_stream_state_info"].samples
    assert state.labels["value"] == "RUNNING"


def test_query_node_follows_a_running_application(
    stack: ExitStack, create_streams: CreateStreams, log: Log, tmp_path: Path
) -> None:
    streams = create_streams(word_count())
    send(log, "a b a")
    streams.run_until_caught_up(PATIENCE_S)
    url = serve(stack, node_for(stack, log, tmp_path / "node", word_count()))
    until(lambda: status(f"{url}/ready") == 200)
    assert count_of(url, "a") == 2
    send(log, "a", "d")
    streams.run_until_caught_up(PATIENCE_S)
    until(lambda: count_of(url, "a") == 3 and count_of(url, "d") == 1)
    lags = get(f"{url}/positions")["stores"]
    assert [store["store"] for store in lags] == ["counts"]


def test_positions_of_a_global_store_are_those_of_its_topic(
    stack: ExitStack, create_streams: CreateStreams, log: Log
) -> None:
    for topic in TOPICS:
        log.create_topic(topic, 2)
    log.append("names", 1, RecordColumns([b"1", b"2"], [b"one", b"two"]))
    streams = create_streams(all_kinds())
    streams.run_until_caught_up(PATIENCE_S)
    url = serve(stack, streams)
    assert get(f"{url}/stores/names/keys/1")["value"] == "one"
    assert get(f"{url}/stores/names/positions")["partitions"] == [
        {"partition": 0, "position": 0, "end": 0, "lag": 0},
        {"partition": 1, "position": 2, "end": 2, "lag": 0},
    ]


def test_query_node_serves_a_stopped_application_and_writes_nothing(
    stack: ExitStack, create_streams: CreateStreams, log: Log, tmp_path: Path
) -> None:
    streams = create_streams(word_count())
    send(log, "a b a")
    streams.run_until_caught_up(PATIENCE_S)
    streams.close()

    def content() -> object:
        return [
            (topic.name, topic.partitions, [
                [batch.columns() for batch in log.read(topic.name, number, 0)]
                for number in range(topic.partitions)
            ])
            for topic in log.topics()
        ], log.groups()

    before = content()
    first = serve(stack, node_for(stack, log, tmp_path / "one", word_count()))
    second = serve(stack, node_for(stack, log, tmp_path / "two", word_count()))
    for url in (first, second):
        until(lambda url=url: status(f"{url}/ready") == 200)
        assert count_of(url, "a") == 2
    assert content() == before
    # The lease is free: the application starts at once.
    again = create_streams(word_count())
    send(log, "a")
    again.run_until_caught_up(PATIENCE_S)
    until(lambda: count_of(first, "a") == 3 and count_of(second, "a") == 3)


def test_query_node_waits_for_the_first_start(
    stack: ExitStack, create_streams: CreateStreams, log: Log, tmp_path: Path
) -> None:
    url = serve(stack, node_for(stack, log, tmp_path / "node", word_count()))
    assert status(f"{url}/health") == 200
    assert status(f"{url}/ready") == 503
    assert status(f"{url}/stores/counts/keys/a") == 503
    assert status(f"{url}/metrics") in (200, 503)
    streams = create_streams(word_count())
    send(log, "a")
    streams.run_until_caught_up(PATIENCE_S)
    until(lambda: status(f"{url}/ready") == 200)
    assert count_of(url, "a") == 1


def test_standby_serves_every_key(
    stack: ExitStack, create_streams: CreateStreams, log: Log, tmp_path: Path
) -> None:
    first = create_streams(word_count())
    send(log, "a b a")
    first.run_until_caught_up(PATIENCE_S)
    second = create_streams(word_count(), state_dir=tmp_path / "other", num_standby_replicas=1)
    second.start()
    until(lambda: second.waits_for)
    url = serve(stack, second)
    until(lambda: status(f"{url}/ready") == 200)
    until(lambda: count_of(url, "a") == 2)


def test_standby_that_takes_over_serves_its_replicas_until_it_runs(
    stack: ExitStack, create_streams: CreateStreams, log: Log, tmp_path: Path
) -> None:
    first = create_streams(word_count())
    send(log, "a b a")
    first.run_until_caught_up(PATIENCE_S)
    held = BlockedCompute()
    second = create_streams(
        word_count(), state_dir=tmp_path / "other", compute=held.start, num_standby_replicas=1
    )
    stack.callback(held.proceed.set)
    second.start()
    until(lambda: second.waits_for)
    url = serve(stack, second)
    until(lambda: status(f"{url}/ready") == 200)
    first.close()
    send(log, "a")
    assert held.entered.wait(PATIENCE_S)
    assert second.state is State.REBALANCING
    assert status(f"{url}/ready") == 200
    assert count_of(url, "a") == 2
    held.proceed.set()
    until(lambda: count_of(url, "a") == 3)
    assert second.state is State.RUNNING


def test_instance_that_has_never_been_ready_is_not_ready_before_it_runs(
    stack: ExitStack, create_streams: CreateStreams, log: Log
) -> None:
    held = BlockedCompute()
    streams = create_streams(word_count(), compute=held.start)
    stack.callback(held.proceed.set)
    send(log, "a")
    streams.start()
    assert held.entered.wait(PATIENCE_S)
    url = serve(stack, streams)
    assert status(f"{url}/ready") == 503
    held.proceed.set()
    until(lambda: status(f"{url}/ready") == 200)


@pytest.mark.parametrize("is_mounted", [True, False])
def test_standby_that_serves_queries_becomes_ready_without_standby_replicas(
    stack: ExitStack, create_streams: CreateStreams, log: Log, tmp_path: Path, is_mounted: bool
) -> None:
    first = create_streams(word_count())
    send(log, " ".join(f"word-{number}" for number in range(10_010)))
    first.run_until_caught_up(PATIENCE_S)
    second = create_streams(
        word_count(), state_dir=tmp_path / "other",
        application_server="" if is_mounted else "127.0.0.1:1",
    )
    second.start()
    until(lambda: second.waits_for)
    if is_mounted:
        url = serve(stack, second)
        until(lambda: status(f"{url}/ready") == 200)
        assert count_of(url, "word-7") == 1
    until(lambda: {
        lag.offset_lag for partitions in second.all_local_store_partition_lags().values()
        for lag in partitions.values()
    } == {0})


def test_changes_of_a_running_application(
    stack: ExitStack, create_streams: CreateStreams, log: Log
) -> None:
    streams = create_streams(word_count(), statestore_cache_max_bytes=0)
    send(log, "a b a")
    streams.run_until_caught_up(PATIENCE_S)
    url = serve(stack, streams)
    with urllib.request.urlopen(
        f"{url}/stores/counts/changes?start=beginning&follow=false&key=a"
    ) as answer:
        lines = answer.read().decode().splitlines()
    found = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data")]
    assert [(change["key"], change["value"]) for change in found] == [("a", 1), ("a", 2)]


def every_kind() -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("in", key=TEXT, value=TEXT).group_by(
        lambda word: word, key=TEXT, value=TEXT
    )
    words.windowed_by(TimeWindows.of(1_000, grace=60_000)).count(store="windows")
    words.windowed_by(SessionWindows.of(5, grace=60_000)).count(store="sessions")
    supplier = Stores.persistent_versioned_key_value_store("versions", history_retention=10**12)
    words.reduce(lambda old, new: f"{old}+{new}", store=Materialized(supplier=supplier))
    builder.global_table("names", key=TEXT, value=TEXT, store="names")
    return builder.build()


def test_every_kind_of_store_is_served(
    stack: ExitStack, create_streams: CreateStreams, log: Log, tmp_path: Path
) -> None:
    log.create_topic("names", 2)
    log.append("names", 1, RecordColumns([b"x"], [b"Xenia"]))
    streams = create_streams(every_kind())
    log.append("in", 0, RecordColumns(
        [None] * 4, [b"a", b"a", b"b", b"a"], [1_000, 1_003, 1_004, 2_500]
    ))
    streams.run_until_caught_up(PATIENCE_S)
    node = node_for(stack, log, tmp_path / "node", every_kind())
    until(lambda: node.not_ready_reason() is None)
    for application in (streams, node):
        url = serve(stack, application)
        kinds = {each["name"]: each["kind"] for each in get(f"{url}/stores")["stores"]}
        assert kinds == {
            "windows": "window", "sessions": "session", "versions": "versioned",
            "names": "key-value",
        }
        assert rows(get(f"{url}/stores/windows/windows?limit=2")) == [
            ("a", 1_000, 2), ("b", 1_000, 1)
        ]
        assert rows(get(f"{url}/stores/windows/windows?key=a")) == [
            ("a", 1_000, 2), ("a", 2_000, 1)
        ]
        assert rows(get(f"{url}/stores/sessions/sessions")) == [
            ("a", 1_000, 2), ("b", 1_004, 1), ("a", 2_500, 1)
        ]
        versions = get(f"{url}/stores/versions/versions?key=a")["versions"]
        assert [(each["value"], each["valid_from_ms"]) for each in versions] == [
            ("a", 1_000), ("a+a", 1_003), ("a+a+a", 2_500)
        ]
        assert get(f"{url}/stores/versions/keys/a?as_of=2000")["value"] == "a+a"
        assert get(f"{url}/stores/names/keys/x")["value"] == "Xenia"
        assert rows_of_changes(f"{url}/stores/sessions/changes") == {
            ("a", 1_000, 1_003), ("b", 1_004, 1_004), ("a", 2_500, 2_500)
        }
        assert rows_of_changes(f"{url}/stores/windows/changes") == {
            ("a", 1_000, 2_000), ("b", 1_000, 2_000), ("a", 2_000, 3_000)
        }


def rows(page: Any) -> list[tuple[str, int, int]]:
    return [
        (entry["key"], entry["window"]["start_ms"], entry["value"]) for entry in page["entries"]
    ]


def rows_of_changes(url: str) -> set[tuple[str, int, int]]:
    """Return key, start and end of the windows that have changed and were not deleted."""
    with urllib.request.urlopen(f"{url}?start=beginning&follow=false") as answer:
        lines = answer.read().decode().splitlines()
    found = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data")]
    return {
        (each["key"], each["window"]["start_ms"], each["window"]["end_ms"]) for each in found
        if not each["deleted"]
    }
