"""Reads of several instances do not go back in time if they carry a position."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from engine.instances import PATIENCE_S, CreateStreams, until
from penstock import Streams
from penstock.engine.standby import follower as follower_module
from penstock.log import Log, RecordColumns, open_log
from penstock.partitioning import partition_of
from penstock.queries import (
    FailureReason,
    KeyQuery,
    Position,
    PositionBound,
    QueryResult,
    StateQueryRequest,
    instance_run,
    replica_reader,
)
from penstock.queries.http import HttpSettings, Server, create_app
from unit.queries.kinds_of_stores import EVENTS, TOPICS, all_kinds

MODES = ["batch", "continuous"]
HEADER = "Penstock-Position"
KEY = StateQueryRequest.in_store("counts").with_query(KeyQuery.with_key("tea"))
PARTITIONS = 3
NEVER_S = 10**9
#: Changes every store of `all_kinds`.
MORE = (
    ("words", "ann", "tea", 32_000), ("words", "ann", "milk", 33_000),
    ("prices", "tea", "5", 3_000), ("names", "1", "uno", 200),
)
PATHS = (
    "/stores/counts/keys/tea", "/stores/counts/entries", "/stores/plain/keys/ann",
    "/stores/windows/windows", "/stores/windows/windows?key=ann", "/stores/sessions/sessions",
    "/stores/prices/versions?key=tea", "/stores/prices/keys/tea", "/stores/names/keys/1",
)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = open_log(tmp_path / "log.db")
    for topic in TOPICS:
        log.create_topic(topic, PARTITIONS, {"retention.ms": "-1"})
    send(log, *EVENTS)
    yield log
    log.close()


def send(log: Log, *events: tuple[str, str, str, int]) -> None:
    for topic, key, value, timestamp in events:
        records = RecordColumns([key.encode()], [value.encode()], [timestamp])
        log.append(topic, partition_of(key.encode(), PARTITIONS), records)


@pytest.fixture
def _late_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries of a standby read the log at the first time only, unless a bound asks for more."""
    monkeypatch.setattr(instance_run, "UPDATE_INTERVAL_S", NEVER_S)


@pytest.fixture
def _late_followers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standbys follow the log at the start only."""
    monkeypatch.setattr(follower_module, "POLL_INTERVAL_S", NEVER_S)


def pair(
    create_streams: CreateStreams, folder: Path, mode: str, **settings: Any
) -> tuple[Streams, Streams]:
    """Start an active instance and a standby."""
    active = create_streams(all_kinds(), execution=mode)
    active.run_until_caught_up(PATIENCE_S)
    return active, standby(create_streams, folder, mode, **settings)


def standby(create_streams: CreateStreams, folder: Path, mode: str, **settings: Any) -> Streams:
    found = create_streams(all_kinds(), execution=mode, state_dir=folder, **settings)
    found.start()
    until(lambda: found.waits_for)
    return found


def result_of(streams: Streams, bound: Position | None = None) -> QueryResult[Any]:
    """The count of tea, of an instance that has reached the bound."""
    request = KEY if bound is None else KEY.with_position_bound(PositionBound.at(bound))
    found = streams.query(request).only_partition_result
    assert found is not None
    return found


@pytest.mark.usefixtures("_late_queries", "_late_followers")
@pytest.mark.parametrize("mode", MODES)
def test_standby_reaches_a_position_of_the_active_instance(
    create_streams: CreateStreams, log: Log, tmp_path: Path, mode: str
) -> None:
    active, other = pair(create_streams, tmp_path / "other", mode)
    assert result_of(other).result == 3
    send(log, *MORE)
    active.run_until_caught_up(PATIENCE_S)
    found = result_of(active)
    assert (found.result, result_of(other).result) == (4, 3)
    assert found.position is not None
    assert result_of(other, found.position).result == 4
    # The views of `store` have the same positions.
    send(log, *MORE)
    active.run_until_caught_up(PATIENCE_S)
    ours, theirs = active.store("counts"), other.store("counts", stale=True)
    assert (ours["tea"], theirs["tea"]) == (5, 4)
    seen = ours.position("tea")
    assert not theirs.has_reached(seen)
    assert theirs.reach(seen, "tea")
    assert theirs["tea"] == 5
    # The rows that the standby has read do not go back on the active instance.
    back = result_of(active, theirs.position()).result
    assert back == 5


@pytest.mark.usefixtures("_late_queries", "_late_followers")
@pytest.mark.parametrize("mode", MODES)
def test_standby_reaches_a_commit_directly_after_it_has_read_the_log(
    create_streams: CreateStreams, log: Log, tmp_path: Path, mode: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It does not read the log again at once, but it does not give up, either."""
    monkeypatch.setattr(replica_reader, "REACH_INTERVAL_S", 2.0)
    active, other = pair(create_streams, tmp_path / "other", mode)
    theirs = other.store("counts", stale=True)
    assert theirs["tea"] == 3
    send(log, *MORE)
    active.run_until_caught_up(PATIENCE_S)
    ours = active.store("counts")
    assert (ours["tea"], theirs["tea"]) == (4, 3)
    assert theirs.reach(ours.position("tea"), "tea")
    assert theirs["tea"] == 4


@pytest.mark.usefixtures("_late_queries")
@pytest.mark.parametrize("mode", MODES)
def test_position_of_a_standby_is_not_older_than_its_data(
    create_streams: CreateStreams, log: Log, tmp_path: Path, mode: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The follower moves the rows between two reads of the committed offsets."""
    monkeypatch.setattr(follower_module, "POLL_INTERVAL_S", 0.01)
    active, first = pair(create_streams, tmp_path / "first", mode, num_standby_replicas=1)
    second = standby(create_streams, tmp_path / "second", mode)
    assert (result_of(first).result, result_of(second).result) == (3, 3)
    send(log, *MORE)
    active.run_until_caught_up(PATIENCE_S)
    until(lambda: result_of(first).result == 4)
    seen = result_of(first).position
    assert seen is not None
    assert result_of(second).result == 3
    assert result_of(second, seen).result == 4


@pytest.mark.parametrize("mode", MODES)
def test_position_beyond_the_log_is_not_reached(
    create_streams: CreateStreams, log: Log, tmp_path: Path, mode: str
) -> None:
    beyond = PositionBound.at(Position({"app-counts-changelog": dict.fromkeys(range(3), 10**6)}))
    for streams in pair(create_streams, tmp_path / "other", mode):
        results = streams.query(KEY.with_position_bound(beyond)).partition_results
        assert {each.failure_reason for each in results.values()} == {
            FailureReason.NOT_UP_TO_BOUND
        }


def get(url: str, position: str | None = None) -> tuple[int, Any, str]:
    """Return the status, the document and the position of a response."""
    headers = {} if position is None else {HEADER: position}
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer), answer.headers[HEADER]
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error), error.headers[HEADER]


@pytest.mark.usefixtures("_late_queries", "_late_followers")
@pytest.mark.parametrize("mode", MODES)
def test_client_that_sends_its_position_changes_to_a_standby_over_http(
    create_streams: CreateStreams, log: Log, tmp_path: Path, mode: str
) -> None:
    instances = pair(create_streams, tmp_path / "other", mode)
    settings = HttpSettings(port=0, requests_per_second=None, bound_timeout_s=0.2)
    with ExitStack() as stack:
        active, other = (
            stack.enter_context(Server(create_app(each, settings), settings)).url
            for each in instances
        )
        until(lambda: get(f"{other}/ready")[0] == 200)
        before = [get(other + path)[1] for path in PATHS]
        send(log, *MORE)
        instances[0].run_until_caught_up(PATIENCE_S)
        position: str | None = None
        for path, old in zip(PATHS, before, strict=True):
            assert get(active + path)[1] != old, path
            _, document, position = get(active + path, position)
            assert get(other + path, position)[:2] == (200, document), path
        # One header has the positions of all stores that the client has read.
        assert len(json.loads(position or "")) == 6
        status, problem, _ = get(
            f"{other}/stores/counts/keys/tea", '{"app-counts-changelog":{"0":999,"1":999,"2":999}}'
        )
        assert (status, problem["reason"]) == (503, "NOT_UP_TO_BOUND")
        # The offset of a record that a program has appended bounds a store that reads the topic.
        number = partition_of(b"ann", PARTITIONS)
        written = json.dumps({"words": {number: 2}})
        status, _, position = get(f"{other}/stores/plain/keys/ann", written)
        assert status == 200
        assert "words" not in json.loads(position)
