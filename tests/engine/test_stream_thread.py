"""The stream thread: waiting for input, the commit interval, outages, and the lease."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from engine.instances import PATIENCE_S, TEXT, BlockedCompute, CreateStreams, received, send, until
from penstock import (
    Processor,
    PunctuationType,
    Record,
    State,
    StreamsBuilder,
    Topology,
)
from penstock.engine import lease as leases
from penstock.engine import stream_thread
from penstock.engine.exception_handler import ShutdownMonitor
from penstock.engine.lease import HeldLease
from penstock.engine.lifecycle import IllegalTransition
from penstock.log import Log, RecordColumns
from penstock.log.embedded.log import EmbeddedLog
from penstock.log.errors import LogBusy, LogUnavailable

AN_HOUR_MS = 3_600_000


# ---- catching up -----------------------------------------------------------------------------


def joined() -> Topology:
    builder = StreamsBuilder()
    table = builder.table("table", key=TEXT, value=TEXT)
    builder.stream("in", key=TEXT, value=TEXT).left_join(
        table, lambda left, right: f"{left}+{right}"
    ).to("out", key=TEXT, value=TEXT)
    return builder.build()


def test_catching_up_includes_delayed_input(create_streams: CreateStreams, log: Log) -> None:
    log.create_topic("table", 2)
    log.append("in", 0, RecordColumns([b"k"], [b"a"]))
    streams = create_streams(joined(), max_task_idle_ms=300, metrics_recording_level="DEBUG")
    streams.run_until_caught_up(PATIENCE_S)
    assert received(log) == [b"a+None"]
    enforced = [
        value for name, value in streams.metrics().items()
        if name.name == "enforced-processing-total"
    ]
    assert enforced == [1]


def test_catching_up_does_not_include_later_input(create_streams: CreateStreams, log: Log) -> None:
    send(log, "first")
    # There is always more input.
    streams = create_streams(on_batch=lambda report: send(log, "more"))
    streams.run_until_caught_up(PATIENCE_S)
    send(log, "second")
    streams.run_until_caught_up(PATIENCE_S)
    assert {b"FIRST", b"SECOND"} <= {*received(log)}


def errors_when_closed(create_streams: CreateStreams, log: Log) -> list[BaseException]:
    """Return the errors of a caller that waits while the application is closed."""
    held = BlockedCompute()
    streams = create_streams(compute=held.start)
    streams.start()
    send(log, "a")
    assert held.entered.wait(PATIENCE_S)
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            streams.run_until_caught_up()
        except BaseException as error:
            errors.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    thread: Any = streams._thread
    until(lambda: thread.catch_up.is_awaited)
    threading.Thread(target=streams.close).start()
    until(lambda: streams.state is State.PENDING_SHUTDOWN)
    held.proceed.set()
    waiting.join(PATIENCE_S)
    return errors


def test_waiting_caller_learns_that_the_application_was_closed(
    create_streams: CreateStreams, log: Log
) -> None:
    for _ in range(5):
        (error,) = errors_when_closed(create_streams, log)
        assert isinstance(error, IllegalTransition)
        assert "was closed before" in str(error)


# ---- the commit interval ---------------------------------------------------------------------


class Ticking(Processor[str, str]):
    """Forwards a record every 10 ms."""

    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(
            timedelta(milliseconds=10), PunctuationType.WALL_CLOCK_TIME,
            lambda now: context.forward(Record(None, "tick", now)),
        )

    def process(self, record: Record[str, str]) -> None:
        pass


def test_punctuation_interrupts_the_commit_interval_of_batches(
    create_streams: CreateStreams, log: Log
) -> None:
    """Lanes punctuate on time as well, but commit at the interval, as Kafka Streams does."""
    builder = StreamsBuilder()
    builder.stream("in").process(Ticking).to("out")
    streams = create_streams(
        builder.build(), commit_interval_ms=AN_HOUR_MS, execution="batch"
    )
    streams.start()
    send(log, "a")
    until(lambda: len(received(log)) > 3)


@pytest.mark.parametrize("execution", ["batch", "continuous"])
def test_catching_up_interrupts_the_commit_interval(
    create_streams: CreateStreams, log: Log, execution: str
) -> None:
    streams = create_streams(commit_interval_ms=AN_HOUR_MS, execution=execution)
    for value in ("a", "b", "c"):
        send(log, value)
        streams.run_until_caught_up(PATIENCE_S)
    assert received(log) == [b"A", b"B", b"C"]


def test_lost_lease_interrupts_the_commit_interval(create_streams: CreateStreams, log: Log) -> None:
    streams = create_streams(commit_interval_ms=AN_HOUR_MS)
    send(log, "a")
    streams.run_until_caught_up(PATIENCE_S)
    thief = log.take_lease("app", holder="a thief")
    until(lambda: streams.waits_for == "a thief")
    thief.release()


# ---- listeners -------------------------------------------------------------------------------


def test_state_listener_can_close_a_starting_application(create_streams: CreateStreams) -> None:
    streams = create_streams()
    streams.set_state_listener(lambda new, old: streams.close() and None)
    streams.start()
    assert streams.wait(PATIENCE_S)
    assert streams.state is State.NOT_RUNNING


def test_state_listener_can_close_an_application_that_was_never_started(
    create_streams: CreateStreams
) -> None:
    streams = create_streams()
    streams.set_state_listener(lambda new, old: streams.close() and None)
    assert streams.close()
    assert streams.state is State.NOT_RUNNING


def test_failing_on_standby_does_not_end_the_standby(
    create_streams: CreateStreams, log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(holder: str) -> None:
        raise RuntimeError("callback failed")

    lease = log.take_lease("app", holder="another")
    streams = create_streams(on_standby=fail)
    streams.start()
    until(lambda: "callback failed" in caplog.text)
    send(log, "a")
    lease.release()
    streams.run_until_caught_up(PATIENCE_S)


# ---- outages of the log ----------------------------------------------------------------------


class Outage(LogUnavailable):
    """A temporary outage."""

    may_pass = True


def failing_once(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, error: Exception) -> None:
    method, left = getattr(owner, name), [error]

    def call(self: Any, *arguments: Any) -> Any:
        if left:
            raise left.pop()
        return method(self, *arguments)

    monkeypatch.setattr(owner, name, call)


@pytest.mark.parametrize("name", ["__init__", "poll"])
def test_outage_before_the_lease_is_acquired_is_survived(
    name: str, create_streams: CreateStreams, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_once(monkeypatch, ShutdownMonitor, name, Outage("unavailable"))
    send(log, "a")
    create_streams().run_until_caught_up(PATIENCE_S)
    assert received(log) == [b"A"]


def test_outage_right_after_the_lease_was_acquired_is_survived(
    create_streams: CreateStreams, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    poll, calls = ShutdownMonitor.poll, [0]

    def second_fails(self: Any) -> Any:
        calls[0] += 1
        if calls[0] == 2:
            raise Outage("unavailable")
        return poll(self)

    monkeypatch.setattr(ShutdownMonitor, "poll", second_fails)
    send(log, "a")
    create_streams().run_until_caught_up(PATIENCE_S)
    assert received(log) == [b"A"]


@pytest.mark.parametrize("error", [Outage("unavailable"), LogBusy("busy")])
def test_task_timeout_starts_with_the_outage(
    error: Exception, create_streams: CreateStreams, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time before the outage and the duration of batches do not count."""
    clock = [0.0]
    # Lanes keep the real clock.
    thread_time = SimpleNamespace(monotonic=lambda: clock[0], time_ns=time.time_ns)
    monkeypatch.setattr(stream_thread, "time", thread_time)
    streams = create_streams(task_timeout_ms=1000, on_batch=lambda report: None)
    send(log, "a")
    streams.start()
    until(lambda: received(log) == [b"A"])
    streams.pause()
    clock[0] += 60
    failing_once(monkeypatch, EmbeddedLog, "offsets", error)
    streams.resume()
    send(log, "b")
    until(lambda: received(log) == [b"A", b"B"] or streams.state.has_ended)
    assert streams.state is State.RUNNING


# ---- the lease -------------------------------------------------------------------------------


def test_lease_is_renewed_often_enough_for_the_default_timeout(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    class CountingLease:
        name, renewed = "app", 0

        def renew(self) -> None:
            self.renewed += 1

    monkeypatch.setattr(leases, "DEFAULT_TIMEOUT_MS", 30)
    lease: Any = CountingLease()
    held = HeldLease(lease, AN_HOUR_MS)
    until(lambda: lease.renewed > 2)
    held.abandon()


# ---- the size of a batch ---------------------------------------------------------------------


def test_large_records_do_not_exceed_the_batch_size(
    create_streams: CreateStreams, log: Log
) -> None:
    values = [f"{number:03}" + "x" * 3_500 for number in range(40)]
    send(log, *values)
    batches: list[int] = []
    streams = create_streams(
        extra={"penstock.batch.max.bytes": "4000"}, execution="batch",
        on_batch=lambda report: batches.append(report.records),
    )
    streams.run_until_caught_up(PATIENCE_S)
    # Four records of the expected size fit, and ranges are cut at twice their bytes.
    assert max(batches) == 2
    assert received(log) == [value.upper().encode() for value in values]
