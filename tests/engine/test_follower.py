"""An instance that stands by keeps rows of its own, and goes on with them when it takes over."""

from __future__ import annotations

import functools
import logging
from pathlib import Path
from typing import Any

import pytest

from engine.living import PATIENCE_S, TEXT, Made, received, send, until, word_count
from penstock import (
    Processor,
    Record,
    Serdes,
    StandbyUpdateListener,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    SuspendReason,
    Topology,
)
from penstock.engine.observe.restore import replica_positions
from penstock.engine.standby import follower as following
from penstock.engine.standby.update_listener import StandbyUpdateNotifier
from penstock.log import Log, RecordColumns, TopicPartition
from penstock.record import TaskId

COUNTS = "app-counts-changelog"


class LogCapture(StandbyUpdateListener):
    """Writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []

    def on_update_start(self, *facts: Any) -> None:
        self.heard.append(("start", *facts))

    def on_batch_loaded(self, *facts: Any) -> None:
        self.heard.append(("loaded", *facts))

    def on_update_suspended(self, *facts: Any) -> None:
        self.heard.append(("suspended", *facts))


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(following, "PAUSE_S", 0.01)


def position(state: Path, task: str, store: str) -> int | None:
    """Where a store stands on a host."""
    return replica_positions(state / "app" / task).get(store)


def counted(state: Path) -> int:
    """How many changes of the word count have come to a host."""
    return sum(position(state, task, "counts") or 0 for task in ("1_0", "1_1"))


@pytest.fixture
def made(made: Made) -> Made:
    """Without a cache: every record is a change."""
    return functools.partial(made, statestore_cache_max_bytes=0)


def test_who_takes_over_has_the_rows(made: Made, log: Log, tmp_path: Path) -> None:
    first = made(word_count())
    send(log, "a b a", "b a")
    first.run_until_caught_up(PATIENCE_S)
    reports: list[Any] = []
    second = made(
        word_count(), state_dir=tmp_path / "other", num_standby_replicas=1,
        on_batch=reports.append,
    )
    second.start()
    until(lambda: counted(tmp_path / "other") == 5)
    send(log, "c")
    until(lambda: counted(tmp_path / "other") == 6)
    first.close()
    send(log, "a")
    second.run_until_caught_up(PATIENCE_S)
    assert [restored for report in reports for restored in report.restored] == []
    counts = [int.from_bytes(value, "big") for value in received(log)]
    assert sorted(counts) == [1, 1, 1, 2, 2, 3, 4]


def test_without_being_asked_it_keeps_nothing(made: Made, log: Log, tmp_path: Path) -> None:
    first = made(word_count())
    send(log, "a")
    first.run_until_caught_up(PATIENCE_S)
    second = made(word_count(), state_dir=tmp_path / "other")
    second.start()
    until(lambda: second.waits_for)
    (thread,) = second.metadata_for_local_threads()
    assert not thread.standby_tasks
    second.close()
    assert not (tmp_path / "other").exists()


def test_a_listener_hears_how_the_rows_come(made: Made, log: Log, tmp_path: Path) -> None:
    first = made(word_count())
    send(log, "a a a")
    first.run_until_caught_up(PATIENCE_S)
    second = made(word_count(), state_dir=tmp_path / "other", num_standby_replicas=1)
    listener = LogCapture()
    second.set_standby_update_listener(listener)
    second.start()
    at = next(
        TopicPartition(COUNTS, number) for number in range(2)
        if log.offsets([TopicPartition(COUNTS, number)])[TopicPartition(COUNTS, number)].end
    )
    task = TaskId(1, at.partition)
    until(lambda: ("loaded", at, "counts", task, 3, 3, 3) in listener.heard)
    assert listener.heard.index(("start", at, "counts", 0)) < listener.heard.index(
        ("loaded", at, "counts", task, 3, 3, 3)
    )
    (thread,) = second.metadata_for_local_threads()
    assert task in {each.task_id for each in thread.standby_tasks}
    send(log, "a")
    until(lambda: ("loaded", at, "counts", task, 4, 1, 4) in listener.heard)
    assert ("start", at, "counts", 3) not in listener.heard
    first.close()
    second.run_until_caught_up(PATIENCE_S)
    assert ("suspended", at, "counts", 4, 4, SuspendReason.PROMOTED) in listener.heard
    (thread,) = second.metadata_for_local_threads()
    assert not thread.standby_tasks


def test_one_that_ends_tells_that_others_have_the_rows(
    made: Made, log: Log, tmp_path: Path
) -> None:
    first = made(word_count())
    send(log, "a")
    first.run_until_caught_up(PATIENCE_S)
    second = made(word_count(), state_dir=tmp_path / "other", num_standby_replicas=1)
    listener = LogCapture()
    second.set_standby_update_listener(listener)
    second.start()
    until(lambda: any(fact[0] == "loaded" for fact in listener.heard))
    second.close()
    assert listener.heard[-1][-1] is SuspendReason.MIGRATED


def test_a_listener_that_fails_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(StandbyUpdateListener):
        def on_update_start(self, *facts: Any) -> None:
            raise RuntimeError("no ears")

    StandbyUpdateNotifier(Broken()).began(TopicPartition("t", 0), "rows", 0)
    assert "no ears" in caplog.text


def test_while_it_is_paused_nothing_is_followed(made: Made, log: Log, tmp_path: Path) -> None:
    first = made(word_count())
    send(log, "a")
    first.run_until_caught_up(PATIENCE_S)
    second = made(word_count(), state_dir=tmp_path / "other", num_standby_replicas=1)
    second.pause()
    second.start()
    until(lambda: second.waits_for)
    assert not (tmp_path / "other").exists()
    second.resume()
    until(lambda: counted(tmp_path / "other") == 1)


def test_instances_may_share_a_state_folder(made: Made, log: Log, tmp_path: Path) -> None:
    first = made(word_count(), num_standby_replicas=1)
    second = made(word_count(), num_standby_replicas=1)
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


def test_after_a_reset_the_rows_are_those_of_the_new_life(
    made: Made, log: Log, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "penstock")
    first = made(word_count())
    send(log, "a a a")
    first.run_until_caught_up(PATIENCE_S)
    second = made(word_count(), state_dir=tmp_path / "other", num_standby_replicas=1)
    second.start()
    until(lambda: counted(tmp_path / "other") == 3)
    # As a reset does it, while one stands by: the lease is held by whoever resets.
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


class Keeping(Processor[str, str]):
    """Writes to a store that a changelog tells all of, to one that it does not, and to one that
    has none."""

    def process(self, record: Record[str, str]) -> None:
        counts, recent, loose = (
            self.context.get_state_store(name) for name in ("kept", "recent", "loose")
        )
        word = record.value
        counts.put(word, (counts.get(word) or 0) + 1)
        # Reading makes a row recent, and no changelog tells.
        was_recent = recent.get(word) is not None
        if not word.islower():
            recent.get(word.lower())
        else:
            recent.put(word, word)
        loose.put(word, (loose.get(word) or 0) + 1)
        self.context.forward(record.with_value(
            f"{word} {counts.get(word)} {was_recent} {loose.get(word)}"
        ))


def keeping() -> Topology:
    builder = StreamsBuilder()
    for supplier, is_logged in (
        (Stores.persistent_key_value_store("kept"), True), (Stores.lru_map("recent", 2), True),
        (Stores.persistent_key_value_store("loose"), False),
    ):
        value = TEXT if supplier.name == "recent" else Serdes.long()
        store = Stores.key_value_store_builder(supplier, TEXT, value)
        builder.add_state_store(store if is_logged else store.with_logging_disabled())
    builder.stream("in").process(Keeping, "kept", "recent", "loose").to("out")
    return builder.build()


@pytest.mark.parametrize("shared", [True, False])
def test_what_a_changelog_does_not_tell_is_left_to_who_takes_over(
    shared: bool, made: Made, log: Log, tmp_path: Path
) -> None:
    first = made(keeping())
    send(log, "x", "y", "X")
    first.run_until_caught_up(PATIENCE_S)
    other = tmp_path / ("state" if shared else "other")
    second = made(keeping(), state_dir=other, num_standby_replicas=1)
    second.start()
    until(lambda: position(other, "0_0", "kept") == 3)
    if not shared:
        assert position(other, "0_0", "recent") is None
    send(log, "z")
    first.run_until_caught_up(PATIENCE_S)
    until(lambda: position(other, "0_0", "kept") == 4)
    first.close()
    # Of x, y and z the last two used were x (by X) and z.
    send(log, "y", "x")
    second.run_until_caught_up(PATIENCE_S)
    loose = "2" if shared else "1"
    assert [value.decode() for value in received(log)] == [
        "x 1 False 1", "y 1 False 1", "X 1 False 1", "z 1 False 1", f"y 2 False {loose}",
        # y came, and the eldest was x.
        f"x 2 False {loose}",
    ]


def test_of_a_source_topic_only_what_was_consumed_is_followed(
    made: Made, log: Log, tmp_path: Path
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
    first = made(joined(), **options)
    first.run_until_caught_up(PATIENCE_S)
    second = made(
        joined(), state_dir=tmp_path / "other", num_standby_replicas=1, **options
    )
    second.start()
    until(lambda: position(tmp_path / "other", "0_0", "table") == 1)
    first.close()
    log.append("table", 0, RecordColumns([b"k"], [b"2"], timestamps=[10]))
    log.append("in", 0, RecordColumns([b"k", b"k"], [b"a", b"b"], timestamps=[5, 15]))
    second.run_until_caught_up(PATIENCE_S)
    assert received(log) == [b"a+1", b"b+2"]
