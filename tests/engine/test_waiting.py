"""What an instance waits for, what ends the waiting, and how much it takes at a time."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest

from engine.living import PATIENCE_S, TEXT, HeldBack, Made, received, send, until
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


# ---- until all is processed ------------------------------------------------------------------


def joined() -> Topology:
    builder = StreamsBuilder()
    table = builder.table("table", key=TEXT, value=TEXT)
    builder.stream("in", key=TEXT, value=TEXT).left_join(
        table, lambda left, right: f"{left}+{right}"
    ).to("out", key=TEXT, value=TEXT)
    return builder.build()


def test_input_that_waits_for_other_input_is_waited_for(made: Made, log: Log) -> None:
    log.create_topic("table", 2)
    log.append("in", 0, RecordColumns([b"k"], [b"a"]))
    streams = made(joined(), max_task_idle_ms=300)
    streams.run_until_caught_up(PATIENCE_S)
    assert received(log) == [b"a+None"]


def test_input_that_comes_later_is_not_waited_for(made: Made, log: Log) -> None:
    send(log, "first")
    # There is always more.
    streams = made(on_batch=lambda report: send(log, "more"))
    streams.run_until_caught_up(PATIENCE_S)
    send(log, "second")
    streams.run_until_caught_up(PATIENCE_S)
    assert {b"FIRST", b"SECOND"} <= {*received(log)}


def told_when_closed(made: Made, log: Log) -> list[BaseException]:
    """What one hears who waits while the application is closed."""
    held = HeldBack()
    streams = made(compute=held.start)
    streams.start()
    send(log, "a")
    assert held.entered.wait(PATIENCE_S)
    heard: list[BaseException] = []

    def wait() -> None:
        try:
            streams.run_until_caught_up()
        except BaseException as error:
            heard.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    thread: Any = streams._thread
    until(lambda: thread._goals)
    threading.Thread(target=streams.close).start()
    until(lambda: streams.state is State.PENDING_SHUTDOWN)
    held.go_on.set()
    waiting.join(PATIENCE_S)
    return heard


def test_who_waits_hears_that_the_application_was_closed(made: Made, log: Log) -> None:
    for _ in range(5):
        (error,) = told_when_closed(made, log)
        assert isinstance(error, IllegalTransition)
        assert "was closed before" in str(error)


# ---- the rest between two batches ------------------------------------------------------------


class Ticking(Processor[str, str]):
    """Forwards something now and then."""

    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(
            timedelta(milliseconds=10), PunctuationType.WALL_CLOCK_TIME,
            lambda now: context.forward(Record(None, "tick", now)),
        )

    def process(self, record: Record[str, str]) -> None:
        pass


def test_a_punctuation_does_not_wait_for_the_commit_interval(made: Made, log: Log) -> None:
    builder = StreamsBuilder()
    builder.stream("in").process(Ticking).to("out")
    streams = made(builder.build(), commit_interval_ms=AN_HOUR_MS)
    streams.start()
    send(log, "a")
    until(lambda: len(received(log)) > 3)


def test_who_waits_does_not_wait_for_the_commit_interval(made: Made, log: Log) -> None:
    streams = made(commit_interval_ms=AN_HOUR_MS)
    for value in ("a", "b", "c"):
        send(log, value)
        streams.run_until_caught_up(PATIENCE_S)
    assert received(log) == [b"A", b"B", b"C"]


def test_a_lost_lease_is_noticed_in_the_commit_interval(made: Made, log: Log) -> None:
    streams = made(commit_interval_ms=AN_HOUR_MS)
    send(log, "a")
    streams.run_until_caught_up(PATIENCE_S)
    thief = log.take_lease("app", holder="a thief")
    until(lambda: streams.waits_for == "a thief")
    thief.release()


# ---- listeners -------------------------------------------------------------------------------


def test_a_listener_may_close_an_application_that_starts(made: Made) -> None:
    streams = made()
    streams.set_state_listener(lambda new, old: streams.close() and None)
    streams.start()
    assert streams.wait(PATIENCE_S)
    assert streams.state is State.NOT_RUNNING


def test_a_listener_may_close_one_that_was_never_started(made: Made) -> None:
    streams = made()
    streams.set_state_listener(lambda new, old: streams.close() and None)
    assert streams.close()
    assert streams.state is State.NOT_RUNNING


def test_a_hook_that_fails_does_not_end_who_stands_by(
    made: Made, log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(holder: str) -> None:
        raise RuntimeError("no ears")

    lease = log.take_lease("app", holder="another")
    streams = made(on_standby=fail)
    streams.start()
    until(lambda: "no ears" in caplog.text)
    send(log, "a")
    lease.release()
    streams.run_until_caught_up(PATIENCE_S)


# ---- a log that is away ----------------------------------------------------------------------


class Away(LogUnavailable):
    """For a moment."""

    may_pass = True


def failing_once(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, error: Exception) -> None:
    method, left = getattr(owner, name), [error]

    def call(self: Any, *arguments: Any) -> Any:
        if left:
            raise left.pop()
        return method(self, *arguments)

    monkeypatch.setattr(owner, name, call)


@pytest.mark.parametrize("name", ["__init__", "asked"])
def test_a_log_that_is_away_for_a_moment_does_not_end_who_wants_the_lease(
    name: str, made: Made, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_once(monkeypatch, ShutdownMonitor, name, Away("away"))
    send(log, "a")
    made().run_until_caught_up(PATIENCE_S)
    assert received(log) == [b"A"]


def test_nor_right_after_the_lease_was_taken(
    made: Made, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, calls = ShutdownMonitor.asked, [0]

    def second_fails(self: Any) -> Any:
        calls[0] += 1
        if calls[0] == 2:
            raise Away("away")
        return asked(self)

    monkeypatch.setattr(ShutdownMonitor, "asked", second_fails)
    send(log, "a")
    made().run_until_caught_up(PATIENCE_S)
    assert received(log) == [b"A"]


@pytest.mark.parametrize("error", [Away("away"), LogBusy("busy")])
def test_patience_begins_with_the_trouble(
    error: Exception, made: Made, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long everything had been well, or a batch had taken."""
    clock = [0.0]
    monkeypatch.setattr(stream_thread.time, "monotonic", lambda: clock[0])
    streams = made(task_timeout_ms=1000, on_batch=lambda report: None)
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


def test_a_holder_is_seen_to_live_however_patient_the_others_are(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    class Counting:
        name, renewed = "app", 0

        def renew(self) -> None:
            self.renewed += 1

    monkeypatch.setattr(leases, "DEFAULT_TIMEOUT_MS", 30)
    lease: Any = Counting()
    held = HeldLease(lease, AN_HOUR_MS)
    until(lambda: lease.renewed > 2)
    held.forget()




# ---- how much a batch takes ------------------------------------------------------------------


def test_records_that_are_larger_than_expected_make_no_larger_batch(made: Made, log: Log) -> None:
    values = [f"{number:03}" + "x" * 3_500 for number in range(40)]
    send(log, *values)
    taken: list[int] = []
    streams = made(
        extra={"penstock.batch.max.bytes": "4000"},
        on_batch=lambda report: taken.append(report.records),
    )
    streams.run_until_caught_up(PATIENCE_S)
    # Four records of the expected size would be read, and twice their bytes.
    assert max(taken) == 2
    assert received(log) == [value.upper().encode() for value in values]
