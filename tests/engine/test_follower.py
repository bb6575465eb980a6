"""A standby keeps replicas up to date, and uses them when it takes over."""

from __future__ import annotations

import functools
import logging
from pathlib import Path
from typing import Any

import pytest

from engine.instances import PATIENCE_S, TEXT, CreateStreams, received, send, until, word_count
from penstock import (
    Processor,
    Record,
    Serdes,
    StandbyUpdateListener,
    Stores,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    SuspendReason,
    Topology,
)
from penstock.engine.observe.restore import replica_positions
from penstock.engine.standby import follower as follower_module
from penstock.engine.standby.update_listener import StandbyUpdateNotifier
from penstock.log import Log, RecordColumns, TopicPartition
from penstock.record import TaskId

COUNTS = "app-counts-changelog"


class RecordingListener(StandbyUpdateListener):
    """Records all calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def on_update_start(self, *arguments: Any) -> None:
        self.calls.append(("start", *arguments))

    def on_batch_loaded(self, *arguments: Any) -> None:
        self.calls.append(("loaded", *arguments))

    def on_update_suspended(self, *arguments: Any) -> None:
        self.calls.append(("suspended", *arguments))


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower_module, "POLL_INTERVAL_S", 0.01)
    monkeypatch.setattr(follower_module, "ERROR_PAUSE_S", 0.01)


def position(state: Path, task: str, store: str) -> int | None:
    """Return the position of a store on a host."""
    return replica_positions(state / "app" / task).get(store)


def counted(state: Path) -> int:
    """Return how many changes of the word count a host has."""
    return sum(position(state, task, "counts") or 0 for task in ("1_0", "1_1"))


@pytest.fixture
def create_streams(create_streams: CreateStreams) -> CreateStreams:
    """Create instances without a cache, so that every record is a change."""
    return functools.partial(create_streams, statestore_cache_max_bytes=0)


def of_standby(streams: Streams, name: str) -> list[Any]:
    return [value for metric, value in streams.metrics().items() if metric.name == name]


def test_promoted_standby_has_the_rows(
    create_streams: CreateStreams, log: Log, tmp_path: Path
) -> None:
    first = create_streams(word_count())
    send(log, "a b a", "b a")
    first.run_until_caught_up(PATIENCE_S)
    reports: list[Any] = []
    second = create_streams(
        word_count(), state_dir=tmp_path / "other", num_standby_replicas=1,
        on_batch=reports.append,
    )
    second.start()
    until(lambda: counted(tmp_path / "other") == 5)
    send(log, "c")
    until(lambda: counted(tmp_path / "other") == 6)
    # The follower measures after it has written.
    until(lambda: sum(of_standby(second, "update-total")) == 6)
    followed = of_standby(second, "standby-lag")
    assert of_standby(second, "standby-updating-tasks") == [len(followed)]
    until(lambda: sum(of_standby(second, "standby-lag")) == 0)
    first.close()
    send(log, "a")
    second.run_until_caught_up(PATIENCE_S)
    assert [restored for report in reports for restored in report.restored] == []
    counts = [int.from_bytes(value, "big") for value in received(log)]
    assert sorted(counts) == [1, 1, 1, 2, 2, 3, 4]
    assert of_standby(second, "standby-lag") == [], "it is no standby any more"


def test_standby_without_replicas_keeps_nothing(
    create_streams: CreateStreams, log: Log, tmp_path: Path
) -> None:
    first = create_streams(word_count())
    send(log, "a")
    first.run_until_caught_up(PATIENCE_S)
    second = create_streams(word_count(), state_dir=tmp_path / "other")
    second.start()
    until(lambda: second.waits_for)
    (thread,) = second.metadata_for_local_threads()
    assert not thread.standby_tasks
    second.close()
    assert not (tmp_path / "other").exists()


def test_listener_receives_the_updates(
    create_streams: CreateStreams, log: Log, tmp_path: Path
) -> None:
    first = create_streams(word_count())
    send(log, "a a a")
    first.run_until_caught_up(PATIENCE_S)
    second = create_streams(word_count(), state_dir=tmp_path / "other", num_standby_replicas=1)
    listener = RecordingListener()
    second.set_standby_update_listener(listener)
    second.start()
    at = next(
        TopicPartition(COUNTS, number) for number in range(2)
        if log.offsets([TopicPartition(COUNTS, number)])[TopicPartition(COUNTS, number)].end
    )
    task = TaskId(1, at.partition)
    until(lambda: ("loaded", at, "counts", task, 3, 3, 3) in listener.calls)
    assert listener.calls.index(("start", at, "counts", 0)) < listener.calls.index(
        ("loaded", at, "counts", task, 3, 3, 3)
    )
    (thread,) = second.metadata_for_local_threads()
    assert task in {each.task_id for each in thread.standby_tasks}
    send(log, "a")
    until(lambda: ("loaded", at, "counts", task, 4, 1, 4) in listener.calls)
    assert ("start", at, "counts", 3) not in listener.calls
    first.close()
    second.run_until_caught_up(PATIENCE_S)
    assert ("suspended", at, "counts", 4, 4, SuspendReason.PROMOTED) in listener.calls
    (thread,) = second.metadata_for_local_threads()
    assert not thread.standby_tasks


def test_closed_standby_reports_migrated(
    create_streams: CreateStreams, log: Log, tmp_path: Path
) -> None:
    first = create_streams(word_count())
    send(log, "a")
    first.run_until_caught_up(PATIENCE_S)
    second = create_streams(word_count(), state_dir=tmp_path / "other", num_standby_replicas=1)
    listener = RecordingListener()
    second.set_standby_update_listener(listener)
    second.start()
    until(lambda: any(call[0] == "loaded" for call in listener.calls))
    second.close()
    assert listener.calls[-1][-1] is SuspendReason.MIGRATED


def test_failing_listener_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(StandbyUpdateListener):
        def on_update_start(self, *arguments: Any) -> None:
            raise RuntimeError("listener failed")

    StandbyUpdateNotifier(Broken()).started(TopicPartition("t", 0), "rows", 0)
    assert "listener failed" in caplog.text


def test_paused_standby_updates_nothing(
    create_streams: CreateStreams, log: Log, tmp_path: Path
) -> None:
    first = create_streams(word_count())
    send(log, "a")
    first.run_until_caught_up(PATIENCE_S)
    second = create_streams(word_count(), state_dir=tmp_path / "other", num_standby_replicas=1)
    second.pause()
    second.start()
    until(lambda: second.waits_for)
    assert not (tmp_path / "other").exists()
    second.resume()
    until(lambda: counted(tmp_path / "other") == 1)


def test_instances_can_share_a_state_directory(
    create_streams: CreateStreams, log: Log, tmp_path: Path
) -> None:
    first = create_streams(word_count(), num_standby_replicas=1)
    second = create_streams(word_count(), num_standby_replicas=1)
    first.run_until_caught_up(PATIENCE_S)
    second.start()
    until(lambda: second.waits_for)
    for _ in range(30):
        send(log, "a")
        first.run_until_caught_up(PATIENCE_S)
    first.close()
    send(log, "a")
    second.run_until_caught_up(PATIENCE_S)
    assert [int.from_bytes(value, "big") for value in received(log)] == [*range(1, 32)]


def test_replicas_are_rebuilt_after_a_reset(
    create_streams: CreateStreams, log: Log, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "penstock")
    first = create_streams(word_count())
    send(log, "a a a")
    first.run_until_caught_up(PATIENCE_S)
    second = create_streams(word_count(), state_dir=tmp_path / "other", num_standby_replicas=1)
    second.start()
    until(lambda: counted(tmp_path / "other") == 3)
    # The steps of a reset, which holds the lease, while a standby exists.
    lease = log.take_lease("app", holder="a reset")
    first.close()
    for topic in log.topics():
        if topic.name.startswith("app-"):
            log.delete_topic(topic.name)
    log.delete_group("app")
    lease.release()
    until(lambda: second.state.value == "RUNNING")
    second.run_until_caught_up(PATIENCE_S)
    assert [int.from_bytes(value, "big") for value in received(log)] == [1, 2, 3, 1, 2, 3]


class WriteToStores(Processor[str, str]):
    """Writes to a logged store, to an LRU map, and to a store without a changelog."""

    def process(self, record: Record[str, str]) -> None:
        counts, recent, unlogged = (
            self.context.get_state_store(name) for name in ("kept", "recent", "unlogged")
        )
        word = record.value
        counts.put(word, (counts.get(word) or 0) + 1)
        # Reading a row makes it recent. The changelog does not contain that.
        was_recent = recent.get(word) is not None
        if not word.islower():
            recent.get(word.lower())
        else:
            recent.put(word, word)
        unlogged.put(word, (unlogged.get(word) or 0) + 1)
        self.context.forward(record.with_value(
            f"{word} {counts.get(word)} {was_recent} {unlogged.get(word)}"
        ))


def three_stores() -> Topology:
    builder = StreamsBuilder()
    for supplier, is_logged in (
        (Stores.persistent_key_value_store("kept"), True), (Stores.lru_map("recent", 2), True),
        (Stores.persistent_key_value_store("unlogged"), False),
    ):
        value = TEXT if supplier.name == "recent" else Serdes.long()
        store = Stores.key_value_store_builder(supplier, TEXT, value)
        builder.add_state_store(store if is_logged else store.with_logging_disabled())
    builder.stream("in").process(WriteToStores, "kept", "recent", "unlogged").to("out")
    return builder.build()


@pytest.mark.parametrize("shared", [True, False])
def test_state_without_a_changelog_is_left_to_the_takeover(
    shared: bool, create_streams: CreateStreams, log: Log, tmp_path: Path
) -> None:
    first = create_streams(three_stores())
    send(log, "x", "y", "X")
    first.run_until_caught_up(PATIENCE_S)
    other = tmp_path / ("state" if shared else "other")
    second = create_streams(three_stores(), state_dir=other, num_standby_replicas=1)
    second.start()
    until(lambda: position(other, "0_0", "kept") == 3)
    if not shared:
        assert position(other, "0_0", "recent") is None
    send(log, "z")
    first.run_until_caught_up(PATIENCE_S)
    until(lambda: position(other, "0_0", "kept") == 4)
    first.close()
    # Of x, y and z the last two used are x (by X) and z.
    send(log, "y", "x")
    second.run_until_caught_up(PATIENCE_S)
    unlogged = "2" if shared else "1"
    assert [value.decode() for value in received(log)] == [
        "x 1 False 1", "y 1 False 1", "X 1 False 1", "z 1 False 1", f"y 2 False {unlogged}",
        # y was added, and x was the oldest.
        f"x 2 False {unlogged}",
    ]


def test_source_changelog_is_followed_up_to_the_committed_offset(
    create_streams: CreateStreams, log: Log, tmp_path: Path
) -> None:
    def joined() -> Topology:
        builder = StreamsBuilder(StreamsConfig(
            application_id="app", topology_optimization="all", default_key_serde=TEXT,
            default_value_serde=TEXT,
        ))
        table = builder.table("table", store="table")
        builder.stream("in").join(table, lambda left, right: f"{left}+{right}").to("out")
        return builder.build()

    log.create_topic("table", 2)
    log.append("table", 0, RecordColumns([b"k"], [b"1"], timestamps=[0]))
    options: dict[str, Any] = {"topology_optimization": "all"}
    first = create_streams(joined(), **options)
    first.run_until_caught_up(PATIENCE_S)
    second = create_streams(
        joined(), state_dir=tmp_path / "other", num_standby_replicas=1, **options
    )
    second.start()
    until(lambda: position(tmp_path / "other", "0_0", "table") == 1)
    first.close()
    log.append("table", 0, RecordColumns([b"k"], [b"2"], timestamps=[10]))
    log.append("in", 0, RecordColumns([b"k", b"k"], [b"a", b"b"], timestamps=[5, 15]))
    second.run_until_caught_up(PATIENCE_S)
    assert received(log) == [b"a+1", b"b+2"]
