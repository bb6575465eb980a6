"""Restores in continuous mode: their progress and their end, also without new input."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.instances import PATIENCE_S, until, word_count
from penstock import State, StateRestoreListener, Streams, StreamsConfig
from penstock.engine.continuous import restorer
from penstock.engine.worker.changelogs import LogChangelogs
from penstock.log import Log, RecordColumns, open_log
from penstock.metrics import MetricName
from penstock.stores.replica import task_replica

WORDS = 500


class Recording(StateRestoreListener):
    """Records all calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def on_restore_start(self, *arguments: Any) -> None:
        self.calls.append(("start", *arguments[1:]))

    def on_batch_restored(self, *arguments: Any) -> None:
        self.calls.append(("batch", *arguments[1:]))

    def on_restore_end(self, *arguments: Any) -> None:
        self.calls.append(("end", *arguments[1:]))


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(str(tmp_path / "log.db")) as log:
        log.create_topic("in")
        log.create_topic("out")
        log.append("in", 0, RecordColumns(
            [None] * WORDS, [f"word{n}".encode() for n in range(WORDS)]
        ))
        yield log


def create(log: Log, directory: Path, listener: StateRestoreListener) -> Streams:
    config = StreamsConfig(
        application_id="app", log=log.address, state_dir=str(directory), execution="continuous",
        metrics_recording_level="DEBUG",
    )
    streams = Streams(word_count(), config, master="inline")
    streams.set_global_state_restore_listener(listener)
    return streams


@pytest.fixture
def without_state(log: Log, tmp_path: Path) -> Path:
    """An application that has processed its input, and has lost its state."""
    with create(log, tmp_path / "state", StateRestoreListener()) as streams:
        streams.run_until_caught_up(PATIENCE_S)
    shutil.rmtree(tmp_path / "state")
    return tmp_path / "state"


def of_tasks(streams: Streams, name: str) -> list[Any]:
    return [value for metric, value in streams.metrics().items() if _is(metric, name)]


def created(streams: Streams) -> Any:
    return next(
        value for metric, value in streams.metrics().items() if metric.name == "task-created-total"
    )


def _is(metric: MetricName, name: str) -> bool:
    return (metric.group, metric.name) == ("stream-task-metrics", name)


def test_restore_of_an_idle_application_is_reported_without_a_commit(
    log: Log, without_state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    listener = Recording()
    caplog.set_level("INFO")
    with create(log, without_state, listener) as streams:
        until(lambda: streams.state is State.RUNNING)
        until(lambda: of_tasks(streams, "restore-total") == [WORDS])
        assert of_tasks(streams, "restore-remaining-records-total") == [0]
        assert of_tasks(streams, "restore-progress") == [1.0]
        # Two sub-topologies with one partition each.
        assert created(streams) == 2
    assert listener.calls == [
        ("start", "counts", 0, WORDS), ("batch", "counts", WORDS, WORDS), ("end", "counts", WORDS),
    ]
    lines = [line for line in caplog.messages if line.startswith("Restored from changelogs")]
    assert len(lines) == 1
    assert lines[0].endswith(f"counts ({WORDS} records in 1 partition).")


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changelogs are read and applied 100 records at a time, and each time is reported."""
    read = LogChangelogs.read

    def read_slices(
        self: LogChangelogs, store: str, start: int, end: int, since: int | None = None
    ) -> Iterator[Any]:
        for first in range(start, end, 100):
            yield from read(self, store, first, min(first + 100, end), since)

    monkeypatch.setattr(LogChangelogs, "read", read_slices)
    monkeypatch.setattr(task_replica, "CHUNK_RECORDS", 100)
    monkeypatch.setattr(restorer, "PROGRESS_INTERVAL_S", 0.0)


@pytest.mark.usefixtures("small_batches")
def test_progress_of_a_long_restore_is_reported(log: Log, without_state: Path) -> None:
    seen: list[list[Any]] = []

    class Observing(Recording):
        """Reads the metrics at each call."""

        def on_batch_restored(self, *arguments: Any) -> None:
            super().on_batch_restored(*arguments)
            seen.append(of_tasks(running_now[0], "restore-remaining-records-total"))

    listener, running_now = Observing(), list[Streams]()
    streams = create(log, without_state, listener)
    running_now.append(streams)
    with streams:
        streams.run_until_caught_up(PATIENCE_S)
    assert listener.calls == [
        ("start", "counts", 0, WORDS),
        *(("batch", "counts", position, 100) for position in range(100, WORDS + 1, 100)),
        ("end", "counts", WORDS),
    ]
    assert seen == [[WORDS - position] for position in range(100, WORDS + 1, 100)]
