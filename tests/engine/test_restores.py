"""What a restore listener hears: from outcomes, and from watching the replicas grow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.living import PATIENCE_S, Made, send, until, word_count
from engine.open_files import open_files
from penstock import StateRestoreListener
from penstock.engine.layout.execution_graph import build_graph_for_log
from penstock.engine.observe.restore import (
    RestoreMonitor,
    RestoreNotifier,
    replica_positions,
    restore_targets,
)
from penstock.engine.worker.outcome import RestoredStore
from penstock.log import Log, TopicPartition

AT = TopicPartition("changelog", 1)


class LogCapture(StateRestoreListener):
    """Writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []

    def on_restore_start(self, *facts: Any) -> None:
        self.heard.append(("start", *facts))

    def on_batch_restored(self, *facts: Any) -> None:
        self.heard.append(("batch", *facts))

    def on_restore_end(self, *facts: Any) -> None:
        self.heard.append(("end", *facts))

    def on_restore_suspended(self, *facts: Any) -> None:
        self.heard.append(("suspended", *facts))


@pytest.fixture
def listener() -> LogCapture:
    return LogCapture()


def test_what_was_not_watched_is_told_when_it_is_over(listener: LogCapture) -> None:
    restores = RestoreNotifier(listener)
    restores.done([RestoredStore("rows", *AT, 3, 10, 7), RestoredStore("empty", *AT, 0, 0, 0)])
    assert listener.heard == [
        ("start", AT, "rows", 3, 10), ("batch", AT, "rows", 10, 7), ("end", AT, "rows", 7),
    ]


def test_what_was_watched_is_told_to_its_end(listener: LogCapture) -> None:
    restores = RestoreNotifier(listener)
    restores.began(AT, "rows", 0, 10)
    restores.moved(AT, "rows", 4)
    restores.moved(AT, "rows", 4)
    restores.moved(AT, "other", 9)
    restores.done([RestoredStore("rows", *AT, 0, 10, 9)])
    restores.given_up()
    assert listener.heard == [
        ("start", AT, "rows", 0, 10), ("batch", AT, "rows", 4, 4), ("batch", AT, "rows", 10, 5),
        ("end", AT, "rows", 9),
    ]


def test_a_restore_that_came_to_nothing_is_suspended(listener: LogCapture) -> None:
    restores = RestoreNotifier(listener)
    restores.began(AT, "rows", 0, 10)
    restores.moved(AT, "rows", 4)
    restores.given_up()
    restores.moved(AT, "rows", 5)
    assert listener.heard[-1] == ("suspended", AT, "rows", 4)


def test_what_an_earlier_run_of_the_batch_has_filled_is_ended_with_the_batch(
    listener: LogCapture
) -> None:
    restores = RestoreNotifier(listener)
    restores.began(AT, "rows", 2, 10)
    restores.began(AT, "all", 0, 4)
    restores.moved(AT, "rows", 4)
    restores.moved(AT, "all", 4)
    # The run that was committed has found everything in its place.
    restores.done([])
    restores.given_up()
    assert listener.heard[4:] == [
        ("batch", AT, "rows", 10, 6), ("end", AT, "rows", 8), ("end", AT, "all", 4),
    ]


def test_a_listener_that_fails_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(StateRestoreListener):
        def on_restore_start(self, *facts: Any) -> None:
            raise ValueError("oh")

    RestoreNotifier(Broken()).done([RestoredStore("rows", *AT, 0, 1, 1)])
    assert "The restore listener failed" in caplog.text


def test_the_replicas_of_this_host_are_watched_while_they_are_filled(
    made: Made, log: Log, listener: LogCapture
) -> None:
    send(log, *(f"word{n}" for n in range(500)))
    with made(word_count()) as streams:
        streams.run_until_caught_up(PATIENCE_S)
    streams.clean_up()
    config = streams.config
    directory = Path(config.state_dir) / config.application_id
    wanted = restore_targets(log, build_graph_for_log(log, word_count(), config), {})
    ends = {at: end for stores in wanted.values() for at, _, end in stores.values()}
    assert sum(ends.values()) == 500
    restores = RestoreNotifier(listener)
    watch = RestoreMonitor(directory, restores, wanted)
    with made(word_count()) as again:
        again.run_until_caught_up(PATIENCE_S)
        until(lambda: sum(facts[-1] for facts in listener.heard if facts[0] == "batch") == 500)
        watch.close()
        for at, end in ends.items():
            told = [facts for facts in listener.heard if facts[1] == at]
            assert told[0] == ("start", at, "counts", 0, end)
            assert told[-1][:4] == ("batch", at, "counts", end)
        # Nothing has to be filled a second time, so there is nothing to watch.
        listener.heard.clear()
        RestoreMonitor(directory, restores, wanted).close()
    assert listener.heard == []


def test_rows_that_a_crash_of_the_host_may_have_lost_are_watched_when_they_are_filled_anew(
    made: Made, log: Log, listener: LogCapture
) -> None:
    send(log, *(f"word{n}" for n in range(50)))
    with made(word_count()) as streams:
        streams.run_until_caught_up(PATIENCE_S)
    directory = Path(streams.config.state_dir) / streams.config.application_id
    for mark in directory.rglob("unsynced"):
        mark.write_text("another boot")
    wanted = restore_targets(log, build_graph_for_log(log, word_count(), streams.config), {})
    watch = RestoreMonitor(directory, RestoreNotifier(listener), wanted)
    with made(word_count()) as again:
        again.run_until_caught_up(PATIENCE_S)
        until(lambda: sum(facts[-1] for facts in listener.heard if facts[0] == "batch") == 50)
    watch.close()
    filled = [at for stores in wanted.values() for at, start, end in stores.values() if end > start]
    told = [facts[1] for facts in listener.heard if facts[0] == "start"]
    assert sorted(told) == sorted(filled)


def test_who_has_watched_has_no_files_open(made: Made, log: Log, listener: LogCapture) -> None:
    send(log, *(f"word{n}" for n in range(50)))
    with made(word_count()) as streams:
        streams.run_until_caught_up(PATIENCE_S)
    directory = Path(streams.config.state_dir) / streams.config.application_id
    wanted = restore_targets(log, build_graph_for_log(log, word_count(), streams.config), {})
    # There is nothing to watch, but that had to be seen.
    RestoreMonitor(directory, RestoreNotifier(listener), wanted).close()
    assert open_files(directory) == []
    streams.clean_up()
    watch = RestoreMonitor(directory, RestoreNotifier(listener), wanted)
    with made(word_count()) as again:
        again.run_until_caught_up(PATIENCE_S)
        until(lambda: sum(facts[-1] for facts in listener.heard if facts[0] == "batch") == 50)
        watch.close()
        # Those of the application, which are in use.
        assert open_files(directory)
        send(log, "word")
        again.run_until_caught_up(PATIENCE_S)
    assert open_files(directory) == []


def test_a_directory_without_a_replica_has_no_positions(tmp_path: Path) -> None:
    assert replica_positions(tmp_path) == {}
    (tmp_path / "current").write_text("gnothing")
    assert replica_positions(tmp_path) == {}
