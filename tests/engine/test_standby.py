"""Two instances of one application: one runs, the other is a standby and takes over."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import pytest

from engine.instances import (
    PATIENCE_S,
    BlockedCompute,
    CreateStreams,
    received,
    record_states,
    send,
    until,
)
from penstock import State
from penstock.engine.inline import start_inline
from penstock.engine.lease import wait_for_lease
from penstock.log import Lease, Log
from penstock.log.errors import Fenced, LogBusy


def test_second_instance_reports_the_lease_holder_and_takes_over(
    create_streams: CreateStreams, log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock")
    holders: list[str] = []
    first = create_streams(client_id="one")
    first.run_until_caught_up(PATIENCE_S)
    second = create_streams(client_id="two", on_standby=holders.append)
    second.start()
    until(lambda: holders)
    assert holders[0].startswith("one (")
    assert f"is run by {holders[0]}. This instance is a standby" in caplog.text
    assert second.state is State.REBALANCING
    assert f"standby for {holders[0]}" in str(second)
    with pytest.raises(TimeoutError, match=r"did not catch up in time. It is run by one \("):
        second.run_until_caught_up(0.01)
    send(log, "a")
    until(lambda: received(log) == [b"A"])
    first.close()
    send(log, "b")
    second.run_until_caught_up(PATIENCE_S)
    assert received(log) == [b"A", b"B"]
    assert second.state is State.RUNNING
    assert len(holders) == 1


def test_instance_that_loses_the_lease_becomes_a_standby_and_returns(
    create_streams: CreateStreams, log: Log
) -> None:
    streams = create_streams()
    states = record_states(streams)
    streams.run_until_caught_up(PATIENCE_S)
    other_lease = log.take_lease("app", holder="a thief")
    until(lambda: streams.state is State.REBALANCING)
    until(lambda: streams.waits_for == "a thief")
    send(log, "a")
    other_lease.release()
    until(lambda: received(log) == [b"A"])
    assert [new for new, _ in states] == [
        State.REBALANCING, State.RUNNING, State.REBALANCING, State.RUNNING,
    ]
    with pytest.raises(Fenced):
        other_lease.renew()


def test_lease_is_renewed_during_a_long_batch(create_streams: CreateStreams, log: Log) -> None:
    held = BlockedCompute()
    send(log, "a")
    # The heartbeat interval is much shorter than the candidate's timeout: the machine may be busy.
    streams = create_streams(compute=held.start, extra={"session.timeout.ms": "400"})
    streams.start()
    assert held.entered.wait(PATIENCE_S)
    candidate = log.candidate("app", holder="other", timeout_ms=2_000)
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        assert candidate.try_acquire() is None
        time.sleep(0.01)
    held.proceed.set()
    until(lambda: received(log) == [b"A"])


def test_instance_that_stays_in_the_group_keeps_the_lease_until_the_timeout(
    create_streams: CreateStreams, log: Log
) -> None:
    streams = create_streams()
    streams.run_until_caught_up(PATIENCE_S)
    assert streams.close(leave_group=False)
    candidate = log.candidate("app", timeout_ms=200)
    assert candidate.try_acquire() is None
    until(lambda: candidate.try_acquire() is not None)
    other = create_streams()
    other.start()
    assert other.close()


def test_batch_that_fails_after_the_lease_is_lost_is_not_a_failure(
    create_streams: CreateStreams, log: Log
) -> None:
    class StolenLease:
        """Another instance takes the lease while a batch runs, and the batch fails."""

        def __init__(self) -> None:
            self.batches = 0
            self.other_lease: Lease | None = None

        def start(self, *application: Any) -> StolenLease:
            self._inner = start_inline(*application)
            return self

        def compute(self, plan: Any) -> list[bytes]:
            self.batches += 1
            if self.batches == 1:
                self.other_lease = log.take_lease("app", holder="a thief")
                raise RuntimeError("the replica is ahead of the plan")
            return self._inner.compute(plan)

        def cancel(self) -> None:
            self._inner.cancel()

        def close(self) -> None:
            self._inner.close()

    stolen = StolenLease()
    handled: list[BaseException] = []
    # With this timeout the renewal does not notice the loss first.
    streams = create_streams(compute=stolen.start, extra={"session.timeout.ms": "600000"})
    streams.set_uncaught_exception_handler(handled.append)  # type: ignore[arg-type]
    send(log, "a")
    streams.start()
    until(lambda: streams.waits_for == "a thief")
    assert stolen.other_lease is not None
    stolen.other_lease.release()
    until(lambda: received(log) == [b"A"])
    assert handled == []


class BusyAtFirst:
    """A candidate whose log is busy twice."""

    holder = "another"

    def __init__(self, lease: Lease) -> None:
        self._results: list[Any] = [LogBusy("held"), LogBusy("held"), None, lease]

    def try_acquire(self) -> Lease | None:
        result = self._results.pop(0)
        if isinstance(result, LogBusy):
            raise result
        return result


def test_standby_survives_a_busy_log(log: Log) -> None:
    lease = log.take_lease("app")
    stopped = threading.Event()
    candidate: Any = BusyAtFirst(lease)
    assert wait_for_lease(candidate, 30, stopped=stopped) is lease
