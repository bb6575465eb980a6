"""The line of `penstock run`: drawn again on a terminal, plain lines elsewhere."""

from __future__ import annotations

import logging
from io import BytesIO, StringIO
from typing import NamedTuple

import pytest

from penstock.cli.status_line import StatusLine, listening
from penstock.cli.terminal import Terminal


class Report(NamedTuple):
    number: int
    records: int = 100
    outputs: int = 0
    seconds: float = 0.1


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Tty(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock() -> Clock:
    return Clock()


def made(err: StringIO, clock: Clock, **options: bool) -> StatusLine:
    return StatusLine(
        Terminal(BytesIO(), err, BytesIO()), "app", clock=clock, lag=lambda: 1234, **options
    )


def test_elsewhere_a_line_is_written_every_few_seconds_while_something_happens(
    clock: Clock,
) -> None:
    err = StringIO()
    live = made(err, clock)
    live.state("RUNNING")
    for number in range(1, 81):
        clock.now += 0.125
        live.batch(Report(number, seconds=0.125))
    lines = err.getvalue().splitlines()
    assert lines == [
        "app: RUNNING",
        "app: RUNNING, batch 40, 4,000 records, 800/s, lag 1,234, 125 ms",
        "app: RUNNING, batch 80, 8,000 records, 800/s, lag 1,234, 125 ms",
    ]
    clock.now += 100
    live.tick()
    assert err.getvalue().splitlines() == lines


def test_the_last_batch_before_a_quiet_time_is_told_too(clock: Clock) -> None:
    err = StringIO()
    live = made(err, clock)
    clock.now = 1.0
    live.batch(Report(1))
    live.tick()
    assert err.getvalue() == ""
    clock.now = 6.0
    live.tick()
    live.tick()
    assert err.getvalue() == "app: CREATED, batch 1, 100 records, 0/s, lag 1,234, 100 ms\n"


def test_one_record_is_no_records(clock: Clock) -> None:
    live = made(StringIO(), clock)
    live.batch(Report(1, records=1))
    assert "batch 1, 1 record, " in live.text()
    live.batch(Report(2, records=1))
    assert "batch 2, 2 records, " in live.text()


def test_a_state_is_told_once(clock: Clock) -> None:
    err = StringIO()
    live = made(err, clock)
    for _ in range(2):
        live.state("STANDBY", "x runs the application")
    assert err.getvalue() == "app: STANDBY, x runs the application\n"


def test_quiet_writes_nothing(clock: Clock) -> None:
    err = StringIO()
    live = made(err, clock, quiet=True, every_batch=True)
    live.state("RUNNING")
    live.batch(Report(1))
    live.close()
    assert err.getvalue() == ""


def test_on_a_terminal_lines_go_above_the_one_that_is_drawn_again(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    err = Tty()
    live = made(err, clock)
    live.state("RUNNING")
    assert err.getvalue() == "\r\x1b[Kapp: RUNNING"
    clock.now = 1.0
    live.batch(Report(1))
    assert err.getvalue().endswith("\r\x1b[Kapp: RUNNING, batch 1, 100 records, 1,0")
    live.say("look")
    assert "\r\x1b[Klook\n\r\x1b[Kapp: RUNNING" in err.getvalue()
    live.close()
    assert err.getvalue().endswith("\r\x1b[K")
    live.batch(Report(2))
    assert err.getvalue().endswith("\r\x1b[K")


def test_results_are_not_mixed_with_the_line(clock: Clock) -> None:
    err, out = Tty(), BytesIO()
    live = StatusLine(Terminal(out, err, BytesIO()), "app", clock=clock)
    live.state("RUNNING")
    live.out(["[seen]: a, 1"])
    assert out.getvalue() == b"[seen]: a, 1\n"
    assert err.getvalue() == "\r\x1b[Kapp: RUNNING\r\x1b[K\r\x1b[Kapp: RUNNING"


def test_a_restore_has_a_bar(clock: Clock) -> None:
    live = made(StringIO(), clock)
    live.restored("one", 0, 1000)
    live.restored("two", 500, 1000)
    assert live.text() == "app: CREATED, restoring [#####---------------] 500 of 2,000"
    live.restored("one", 1000, 1000)
    assert live.text() == "app: CREATED, restoring [##########----------] 500 of 1,000"
    live.restored("two", 1000, 1000)
    assert live.text() == "app: CREATED"


def test_what_is_logged_goes_above_the_line(clock: Clock) -> None:
    err = StringIO()
    live = made(err, clock)
    user, ours = logging.getLogger("shop"), logging.getLogger("penstock.engine.lease")
    with listening(live, logging.WARNING):
        user.warning("low on tea")
        ours.info("not worth a line")
        ours.warning("look out")
        logging.getLogger("penstock.engine.stream_thread").error("told at the end anyway")
        logging.getLogger("penstock.engine.lifecycle").error("shown as the state")
    user.warning("not any more")
    assert err.getvalue() == (
        "WARNING shop: low on tea\nWARNING penstock.engine.lease: look out\n"
    )
