"""The restore listener: called from outcomes, and by polling the replicas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.instances import PATIENCE_S, CreateStreams, send, until, word_count
from engine.open_files import open_files
from penstock import StateRestoreListener
from penstock.engine.layout.execution_graph import build_graph_for_log
from penstock.engine.observe.restore import (
    RestoreMonitor,
    RestoreNotifier,
    replica_positions,
    restore_targets,
)
from penstock.engine.worker.outcome import RestoredStore, RestoringStore
from penstock.log import Log, TopicPartition

AT = TopicPartition("changelog", 1)


class RecordingListener(StateRestoreListener):
    """Records all calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def on_restore_start(self, *arguments: Any) -> None:
        self.calls.append(("start", *arguments))

    def on_batch_restored(self, *arguments: Any) -> None:
        self.calls.append(("batch", *arguments))

    def on_restore_end(self, *arguments: Any) -> None:
        self.calls.append(("end", *arguments))

    def on_restore_suspended(self, *arguments: Any) -> None:
        self.calls.append(("suspended", *arguments))


@pytest.fixture
def listener() -> RecordingListener:
    return RecordingListener()


def test_unmonitored_restore_is_reported_when_the_batch_is_committed(
    listener: RecordingListener
) -> None:
    notifier = RestoreNotifier(listener)
    notifier.completed([RestoredStore("rows", *AT, 3, 10, 7), RestoredStore("empty", *AT, 0, 0, 0)])
    assert listener.calls == [
        ("start", AT, "rows", 3, 10), ("batch", AT, "rows", 10, 7), ("end", AT, "rows", 7),
    ]


def test_monitored_restore_is_completed_from_the_outcome(listener: RecordingListener) -> None:
    notifier = RestoreNotifier(listener)
    notifier.started(AT, "rows", 0, 10)
    notifier.progressed(AT, "rows", 4)
    notifier.progressed(AT, "rows", 4)
    notifier.progressed(AT, "other", 9)
    notifier.completed([RestoredStore("rows", *AT, 0, 10, 9)])
    notifier.suspended()
    assert listener.calls == [
        ("start", AT, "rows", 0, 10), ("batch", AT, "rows", 4, 4), ("batch", AT, "rows", 10, 5),
        ("end", AT, "rows", 9),
    ]


def test_incomplete_restore_is_suspended(listener: RecordingListener) -> None:
    notifier = RestoreNotifier(listener)
    notifier.started(AT, "rows", 0, 10)
    notifier.progressed(AT, "rows", 4)
    notifier.suspended()
    notifier.progressed(AT, "rows", 5)
    assert listener.calls[-1] == ("suspended", AT, "rows", 4)


def test_restore_of_an_earlier_attempt_ends_with_the_batch(
    listener: RecordingListener
) -> None:
    notifier = RestoreNotifier(listener)
    notifier.started(AT, "rows", 2, 10)
    notifier.started(AT, "all", 0, 4)
    notifier.progressed(AT, "rows", 4)
    notifier.progressed(AT, "all", 4)
    # The committed attempt had nothing to restore.
    notifier.completed([])
    notifier.suspended()
    assert listener.calls[4:] == [
        ("batch", AT, "rows", 10, 6), ("end", AT, "rows", 8), ("end", AT, "all", 4),
    ]


def test_commit_of_a_lane_does_not_end_the_restores_of_other_tasks(
    listener: RecordingListener
) -> None:
    notifier = RestoreNotifier(listener)
    notifier.restoring("0_1", [RestoringStore("rows", *AT, 0, 4, 10)])
    notifier.completed([])
    notifier.restored("0_0", [])
    assert listener.calls == [("start", AT, "rows", 0, 10), ("batch", AT, "rows", 4, 4)]
    notifier.restored("0_1", [RestoredStore("rows", *AT, 0, 10, 9)])
    assert listener.calls[2:] == [("batch", AT, "rows", 10, 5), ("end", AT, "rows", 9)]


def test_restore_that_moves_to_another_lane_is_suspended(listener: RecordingListener) -> None:
    notifier = RestoreNotifier(listener)
    for position in (4, 8, 2):
        notifier.restoring("0_1", [RestoringStore("rows", *AT, 0, position, 10)])
    assert listener.calls == [
        ("start", AT, "rows", 0, 10), ("batch", AT, "rows", 4, 4), ("batch", AT, "rows", 8, 4),
        ("suspended", AT, "rows", 8), ("start", AT, "rows", 0, 10), ("batch", AT, "rows", 2, 2),
    ]


def test_failing_listener_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(StateRestoreListener):
        def on_restore_start(self, *arguments: Any) -> None:
            raise ValueError("failed")

    RestoreNotifier(Broken()).completed([RestoredStore("rows", *AT, 0, 1, 1)])
    assert "The restore listener failed" in caplog.text


def test_monitor_reports_the_progress_of_replicas_on_this_host(
    create_streams: CreateStreams, log: Log, listener: RecordingListener
) -> None:
    send(log, *(f"word{n}" for n in range(500)))
    with create_streams(word_count()) as streams:
        streams.run_until_caught_up(PATIENCE_S)
    streams.clean_up()
    config = streams.config
    directory = Path(config.state_dir) / config.application_id
    targets = restore_targets(log, build_graph_for_log(log, word_count(), config), {})
    ends = {at: end for stores in targets.values() for _, at, _, end in stores.values()}
    assert sum(ends.values()) == 500
    notifier = RestoreNotifier(listener)
    monitor = RestoreMonitor(directory, notifier, targets)
    with create_streams(word_count()) as again:
        again.run_until_caught_up(PATIENCE_S)
        until(lambda: sum(call[-1] for call in listener.calls if call[0] == "batch") == 500)
        monitor.close()
        for at, end in ends.items():
            calls = [call for call in listener.calls if call[1] == at]
            assert calls[0] == ("start", at, "counts", 0, end)
            assert calls[-1][:4] == ("batch", at, "counts", end)
        # Nothing is restored a second time, so nothing is reported.
        listener.calls.clear()
        RestoreMonitor(directory, notifier, targets).close()
    assert listener.calls == []


def test_restore_after_a_host_crash_is_monitored(
    create_streams: CreateStreams, log: Log, listener: RecordingListener
) -> None:
    send(log, *(f"word{n}" for n in range(50)))
    with create_streams(word_count()) as streams:
        streams.run_until_caught_up(PATIENCE_S)
    directory = Path(streams.config.state_dir) / streams.config.application_id
    for mark in directory.rglob("unsynced"):
        mark.write_text("another boot")
    targets = restore_targets(log, build_graph_for_log(log, word_count(), streams.config), {})
    monitor = RestoreMonitor(directory, RestoreNotifier(listener), targets)
    with create_streams(word_count()) as again:
        again.run_until_caught_up(PATIENCE_S)
        until(lambda: sum(call[-1] for call in listener.calls if call[0] == "batch") == 50)
    monitor.close()
    restored = [
        at for stores in targets.values() for _, at, start, end in stores.values() if end > start
    ]
    calls = [call[1] for call in listener.calls if call[0] == "start"]
    assert sorted(calls) == sorted(restored)


def test_monitor_closes_its_files(
    create_streams: CreateStreams, log: Log, listener: RecordingListener
) -> None:
    send(log, *(f"word{n}" for n in range(50)))
    with create_streams(word_count()) as streams:
        streams.run_until_caught_up(PATIENCE_S)
    directory = Path(streams.config.state_dir) / streams.config.application_id
    targets = restore_targets(log, build_graph_for_log(log, word_count(), streams.config), {})
    # Nothing is restored, but the monitor has opened the replicas to find that out.
    RestoreMonitor(directory, RestoreNotifier(listener), targets).close()
    assert open_files(directory) == []
    streams.clean_up()
    monitor = RestoreMonitor(directory, RestoreNotifier(listener), targets)
    with create_streams(word_count()) as again:
        again.run_until_caught_up(PATIENCE_S)
        until(lambda: sum(call[-1] for call in listener.calls if call[0] == "batch") == 50)
        monitor.close()
        # The application has open files.
        assert open_files(directory)
        send(log, "word")
        again.run_until_caught_up(PATIENCE_S)
    assert open_files(directory) == []


def test_directory_without_a_replica_has_no_positions(tmp_path: Path) -> None:
    assert replica_positions(tmp_path) == {}
    (tmp_path / "current").write_text("gnothing")
    assert replica_positions(tmp_path) == {}
