"""A log that cannot say whether a commit has happened: the next plan is made from what is there."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

import penstock.app
from engine.living import PATIENCE_S, Made, received, send, until, word_count
from penstock.log import Log, open_log
from penstock.log.errors import LogUnavailable, OutcomeUnknown


class Uncertain:
    """A log whose answer to one commit of a batch is lost; the rest is a real one's.

    `happens`: whether the commit has happened before the answer was lost.
    """

    def __init__(self, inner: Log, *, happens: bool) -> None:
        self._inner = inner
        self._happens = happens
        self.is_armed = False
        self.lost = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def transaction(self, lease: Any = None) -> Any:
        return _Unanswered(self._inner.transaction(lease), self)

    def end_of(self, transaction: Any) -> None:
        """What the end of a transaction does."""
        if not self.is_armed:
            transaction.commit()
            return
        self.is_armed = False
        if self._happens:
            transaction.commit()
        else:
            transaction.abort()
        self.lost += 1
        raise OutcomeUnknown("Nobody has said whether the transaction was committed.")


class _Unanswered:
    def __init__(self, inner: Any, owner: Uncertain) -> None:
        self._inner = inner
        self._owner = owner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __enter__(self) -> Any:
        return self._inner

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is None:
            self._owner.end_of(self._inner)
        else:
            self._inner.abort()


@pytest.fixture(params=[True, False], ids=["it has happened", "it has not"])
def uncertain(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, log: Log
) -> Uncertain:
    """The log of the application, which closes it at its end."""
    fake = Uncertain(open_log(log.address), happens=request.param)
    monkeypatch.setattr(penstock.app, "open_log", lambda *_, **options: fake)
    return fake


def test_a_commit_of_unknown_outcome_leads_to_a_plan_from_the_log(
    made: Made, log: Log, uncertain: Uncertain, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "penstock")
    asked: list[BaseException] = []
    streams = made(word_count(), statestore_cache_max_bytes=0)
    streams.set_uncaught_exception_handler(asked.append)  # type: ignore[arg-type]
    send(log, "a b")
    streams.run_until_caught_up(PATIENCE_S)
    uncertain.is_armed = True
    send(log, "a a")
    until(lambda: uncertain.lost)
    send(log, "b a")
    streams.run_until_caught_up(PATIENCE_S)
    counts = [int.from_bytes(value) for value in received(log)]
    assert sorted(counts) == [1, 1, 2, 2, 3, 4]
    assert asked == []
    assert "Nobody has said" in caplog.text
    assert "goes on from what the log holds" in caplog.text


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch, log: Log) -> threading.Event:
    """While it is set, the application's log does not answer."""
    gone = threading.Event()
    inner = open_log(log.address)
    really = inner.offsets

    def offsets(*wanted: Any) -> Any:
        if gone.is_set():
            raise LogUnavailable("No answer from Kafka.")
        return really(*wanted)

    monkeypatch.setattr(inner, "offsets", offsets)
    monkeypatch.setattr(penstock.app, "open_log", lambda *_, **options: inner)
    return gone


def test_an_application_waits_for_a_log_that_is_away(
    made: Made, log: Log, away: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "penstock")
    streams = made(word_count(), statestore_cache_max_bytes=0)
    send(log, "a b")
    streams.run_until_caught_up(PATIENCE_S)
    away.set()
    send(log, "a a")
    until(lambda: caplog.text.count("No answer from Kafka") > 1)
    away.clear()
    streams.run_until_caught_up(PATIENCE_S)
    assert sorted(int.from_bytes(value) for value in received(log)) == [1, 1, 2, 3]
    assert streams.failure is None


def test_a_log_that_stays_away_ends_the_application(
    made: Made, log: Log, away: threading.Event
) -> None:
    streams = made(word_count(), task_timeout_ms=100)
    send(log, "a b")
    streams.run_until_caught_up(PATIENCE_S)
    away.set()
    send(log, "a a")
    until(lambda: streams.failure is not None)
    assert "No answer from Kafka" in str(streams.failure)
