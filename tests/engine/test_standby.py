"""Two instances of one application: one runs, the other stands by and takes over."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import pytest

from engine.living import PATIENCE_S, HeldBack, Made, received, send, until, watch_of
from penstock import State
from penstock.engine.inline import start_inline
from penstock.engine.lease import take_lease
from penstock.log import Lease, Log
from penstock.log.errors import Fenced, LogBusy


def test_a_second_instance_says_for_whom_it_waits_and_takes_over(
    made: Made, log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock")
    holders: list[str] = []
    first = made(client_id="one")
    first.run_until_caught_up(PATIENCE_S)
    second = made(client_id="two", on_standby=holders.append)
    second.start()
    until(lambda: holders)
    assert holders[0].startswith("one (")
    assert f"is run by {holders[0]}. This instance stands by" in caplog.text
    assert second.state is State.REBALANCING
    assert f"stands by for {holders[0]}" in str(second)
    with pytest.raises(TimeoutError, match=r"has not caught up in time. one \("):
        second.run_until_caught_up(0.01)
    send(log, "a")
    until(lambda: received(log) == [b"A"])
    first.close()
    send(log, "b")
    second.run_until_caught_up(PATIENCE_S)
    assert received(log) == [b"A", b"B"]
    assert second.state is State.RUNNING
    assert len(holders) == 1


def test_who_loses_the_lease_stands_by_and_comes_back(made: Made, log: Log) -> None:
    streams = made()
    heard = watch_of(streams)
    streams.run_until_caught_up(PATIENCE_S)
    thief = log.take_lease("app", holder="a thief")
    until(lambda: streams.state is State.REBALANCING)
    until(lambda: streams.waits_for == "a thief")
    send(log, "a")
    thief.release()
    until(lambda: received(log) == [b"A"])
    assert [new for new, _ in heard] == [
        State.REBALANCING, State.RUNNING, State.REBALANCING, State.RUNNING,
    ]
    with pytest.raises(Fenced):
        thief.renew()


def test_the_lease_is_renewed_through_a_long_batch(made: Made, log: Log) -> None:
    held = HeldBack()
    send(log, "a")
    # The heartbeat interval is much shorter than the candidate's timeout: the machine may be busy.
    streams = made(compute=held.start, extra={"session.timeout.ms": "400"})
    streams.start()
    assert held.entered.wait(PATIENCE_S)
    candidate = log.candidate("app", holder="other", timeout_ms=2_000)
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        assert candidate.try_acquire() is None
        time.sleep(0.01)
    held.go_on.set()
    until(lambda: received(log) == [b"A"])


def test_who_remains_in_the_group_is_missed_only_after_the_timeout(made: Made, log: Log) -> None:
    streams = made()
    streams.run_until_caught_up(PATIENCE_S)
    assert streams.close(leave_group=False)
    candidate = log.candidate("app", timeout_ms=200)
    assert candidate.try_acquire() is None
    until(lambda: candidate.try_acquire() is not None)
    other = made()
    other.start()
    assert other.close()


def test_a_batch_that_fails_without_the_lease_is_no_failure(made: Made, log: Log) -> None:
    class Stolen:
        """The lease is taken while a batch runs, and the batch fails for it."""

        def __init__(self) -> None:
            self.batches = 0
            self.thief: Lease | None = None

        def start(self, *application: Any) -> Stolen:
            self._inner = start_inline(*application)
            return self

        def compute(self, plan: Any) -> list[bytes]:
            self.batches += 1
            if self.batches == 1:
                self.thief = log.take_lease("app", holder="a thief")
                raise RuntimeError("the replica is ahead of the plan")
            return self._inner.compute(plan)

        def cancel(self) -> None:
            self._inner.cancel()

        def close(self) -> None:
            self._inner.close()

    stolen = Stolen()
    asked: list[BaseException] = []
    # The renewing thread must not be the one that notices.
    streams = made(compute=stolen.start, extra={"session.timeout.ms": "600000"})
    streams.set_uncaught_exception_handler(asked.append)  # type: ignore[arg-type]
    send(log, "a")
    streams.start()
    until(lambda: streams.waits_for == "a thief")
    assert stolen.thief is not None
    stolen.thief.release()
    until(lambda: received(log) == [b"A"])
    assert asked == []


class BusyAtFirst:
    """A candidate whose log is held by another process, twice."""

    holder = "another"

    def __init__(self, lease: Lease) -> None:
        self._answers: list[Any] = [LogBusy("held"), LogBusy("held"), None, lease]

    def try_acquire(self) -> Lease | None:
        answer = self._answers.pop(0)
        if isinstance(answer, LogBusy):
            raise answer
        return answer


def test_one_that_stands_by_outlasts_a_log_that_is_kept_busy(log: Log) -> None:
    lease = log.take_lease("app")
    ended = threading.Event()
    assert take_lease(BusyAtFirst(lease), 30, ended=ended) is lease  # type: ignore[arg-type]
