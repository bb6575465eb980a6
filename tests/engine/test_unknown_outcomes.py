"""Commits with an unknown outcome, and outages of the log."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

import penstock.app
from engine.instances import PATIENCE_S, CreateStreams, received, send, until, word_count
from penstock.log import Log, open_log
from penstock.log.errors import LogUnavailable, OutcomeUnknown


class UncertainLog:
    """A log that loses the response to one commit.

    `commits`: whether the transaction is committed before the response is lost.
    """

    def __init__(self, inner: Log, *, commits: bool) -> None:
        self._inner = inner
        self._commits = commits
        self.is_armed = False
        self.lost = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def transaction(self, lease: Any = None) -> Any:
        return _UncertainTransaction(self._inner.transaction(lease), self)

    def finish(self, transaction: Any) -> None:
        """Commit a transaction, or lose the response."""
        if not self.is_armed:
            transaction.commit()
            return
        self.is_armed = False
        if self._commits:
            transaction.commit()
        else:
            transaction.abort()
        self.lost += 1
        raise OutcomeUnknown("The response to the commit was lost.")


class _UncertainTransaction:
    def __init__(self, inner: Any, owner: UncertainLog) -> None:
        self._inner = inner
        self._owner = owner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __enter__(self) -> Any:
        return self._inner

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is None:
            self._owner.finish(self._inner)
        else:
            self._inner.abort()


@pytest.fixture(params=[True, False], ids=["committed", "aborted"])
def uncertain(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, log: Log
) -> UncertainLog:
    """The log of the application, which closes it."""
    fake = UncertainLog(open_log(log.address), commits=request.param)
    monkeypatch.setattr(penstock.app, "open_log", lambda *_, **options: fake)
    return fake


def test_unknown_outcome_of_a_commit_is_resolved_from_the_log(
    create_streams: CreateStreams, log: Log, uncertain: UncertainLog,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "penstock")
    handled: list[BaseException] = []
    # In continuous mode the driver writes no transaction with results.
    streams = create_streams(word_count(), statestore_cache_max_bytes=0, execution="batch")
    streams.set_uncaught_exception_handler(handled.append)  # type: ignore[arg-type]
    send(log, "a b")
    streams.run_until_caught_up(PATIENCE_S)
    uncertain.is_armed = True
    send(log, "a a")
    until(lambda: uncertain.lost)
    send(log, "b a")
    streams.run_until_caught_up(PATIENCE_S)
    counts = [int.from_bytes(value) for value in received(log)]
    assert sorted(counts) == [1, 1, 2, 2, 3, 4]
    assert handled == []
    assert "The response to the commit was lost" in caplog.text
    assert "resumes from what the log holds" in caplog.text


@pytest.fixture
def outage(monkeypatch: pytest.MonkeyPatch, log: Log) -> threading.Event:
    """While the event is set, the log is unavailable to the driver, which plans batches."""
    is_down = threading.Event()
    inner = open_log(log.address)
    offsets_of = inner.offsets

    def offsets(*wanted: Any) -> Any:
        if is_down.is_set():
            raise LogUnavailable("No response from Kafka.")
        return offsets_of(*wanted)

    monkeypatch.setattr(inner, "offsets", offsets)
    monkeypatch.setattr(penstock.app, "open_log", lambda *_, **options: inner)
    return is_down


def test_application_waits_during_an_outage(
    create_streams: CreateStreams, log: Log, outage: threading.Event,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "penstock")
    streams = create_streams(word_count(), statestore_cache_max_bytes=0, execution="batch")
    send(log, "a b")
    streams.run_until_caught_up(PATIENCE_S)
    outage.set()
    send(log, "a a")
    until(lambda: caplog.text.count("No response from Kafka") > 1)
    outage.clear()
    streams.run_until_caught_up(PATIENCE_S)
    assert sorted(int.from_bytes(value) for value in received(log)) == [1, 1, 2, 3]
    assert streams.failure is None


def test_long_outage_ends_the_application(
    create_streams: CreateStreams, log: Log, outage: threading.Event
) -> None:
    streams = create_streams(word_count(), task_timeout_ms=100, execution="batch")
    send(log, "a b")
    streams.run_until_caught_up(PATIENCE_S)
    outage.set()
    send(log, "a a")
    until(lambda: streams.failure is not None)
    assert "No response from Kafka" in str(streams.failure)
