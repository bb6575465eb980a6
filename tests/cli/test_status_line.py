"""The status of `penstock run`: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import logging
import re
from io import BytesIO, StringIO

import pytest

from penstock.cli.run_logging import LogOptions, run_logging
from penstock.cli.status_line import StatusLine
from penstock.cli.terminal import Terminal
from penstock.engine.batch_report import BatchReport

#: The control sequences of the live display: cursor visibility, and erasing the line.
CONTROL = re.compile(r"\x1b\[\?25[lh]|\x1b\[1A|\x1b\[2K|\r")


def report(number: int, *, records: int = 100, seconds: float = 0.1) -> BatchReport:
    return BatchReport(
        number, records, records, outputs=0, changes=0, plan_seconds=0.0,
        compute_seconds=seconds, commit_seconds=0.0,
    )


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


@pytest.fixture(autouse=True)
def terminal_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


def create(err: StringIO, clock: Clock, **options: bool) -> StatusLine:
    terminal = Terminal(BytesIO(), err, BytesIO())
    return StatusLine(terminal, "app", clock=clock, lag=lambda: 1234, **options)


def test_plain_line_is_written_every_few_seconds_while_batches_run(clock: Clock) -> None:
    err = StringIO()
    status = create(err, clock)
    status.set_state("RUNNING")
    for number in range(1, 81):
        clock.now += 0.125
        status.add_commit(report(number, seconds=0.125))
    lines = err.getvalue().splitlines()
    assert lines == [
        "app: RUNNING",
        "app: RUNNING, batch 40, 4,000 records, 800/s, lag 1,234, 125 ms",
        "app: RUNNING, batch 80, 8,000 records, 800/s, lag 1,234, 125 ms",
    ]
    clock.now += 100
    status.tick()
    assert err.getvalue().splitlines() == lines


def test_last_batch_before_an_idle_time_gets_a_plain_line(clock: Clock) -> None:
    err = StringIO()
    status = create(err, clock)
    clock.now = 1.0
    status.add_commit(report(1))
    status.tick()
    assert err.getvalue() == ""
    clock.now = 6.0
    status.tick()
    status.tick()
    assert err.getvalue() == "app: CREATED, batch 1, 100 records, 0/s, lag 1,234, 100 ms\n"


def test_one_record_is_singular(clock: Clock) -> None:
    status = create(StringIO(), clock)
    status.add_commit(report(1, records=1))
    assert "batch 1, 1 record, " in status.text()
    status.add_commit(report(2, records=1))
    assert "batch 2, 2 records, " in status.text()


def test_single_commit_of_a_lane_has_no_high_rate(clock: Clock) -> None:
    status = create(StringIO(), clock, is_continuous=True)
    status.add_commit(report(7, records=1, seconds=0.003))
    assert status.text() == "app: CREATED, commit 7, 1 record, 1/s, lag 1,234, 3 ms"


def test_state_is_written_once(clock: Clock) -> None:
    err = StringIO()
    status = create(err, clock)
    for _ in range(2):
        status.set_state("STANDBY", "x runs the application")
    assert err.getvalue() == "app: STANDBY, x runs the application\n"


def test_quiet_writes_nothing(clock: Clock) -> None:
    err = StringIO()
    status = create(err, clock, quiet=True, every_commit=True)
    status.set_state("RUNNING")
    status.add_commit(report(1))
    status.close()
    assert err.getvalue() == ""


def test_messages_go_above_the_live_line(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    err = Tty()
    status = create(err, clock)
    status.set_state("RUNNING")
    assert CONTROL.sub("", err.getvalue()) == "app: RUNNING"
    clock.now = 1.0
    status.add_commit(report(1))
    # The line does not wrap.
    assert err.getvalue().endswith("\r\x1b[2Kapp: RUNNING, batch 1, 100 records, 1,0…")
    status.write_message("a message longer than a line of this terminal: [bold] :tea:")
    message, line = err.getvalue().splitlines()[-2:]
    assert CONTROL.sub("", message).endswith(
        "a message longer than a line of this terminal: [bold] :tea:"
    )
    assert CONTROL.sub("", line) == "app: RUNNING, batch 1, 100 records, 1,0…"
    status.close()
    assert err.getvalue().endswith("\x1b[2K")
    closed = err.getvalue()
    status.add_commit(report(2))
    assert err.getvalue() == closed


def test_dumb_terminal_gets_plain_lines(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    err = Tty()
    status = create(err, clock)
    status.set_state("RUNNING")
    status.close()
    assert err.getvalue() == "app: RUNNING\n"


def test_refresh_rate_is_limited(clock: Clock) -> None:
    err = Tty()
    status = create(err, clock)
    status.set_state("RUNNING")
    for number in range(1, 100):
        status.add_commit(report(number))
    assert "batch" not in err.getvalue()
    clock.now = 1.0
    status.tick()
    assert "batch 99" in err.getvalue()
    status.close()


def test_results_are_not_mixed_with_the_live_line(clock: Clock) -> None:
    stream = BytesIO()

    class SharedTty(Tty):
        def write(self, text: str) -> int:
            return stream.write(text.encode())

    status = StatusLine(Terminal(stream, SharedTty(), BytesIO()), "app", clock=clock)
    status.set_state("RUNNING")
    status.write_results(["[seen]: a, 1"])
    status.close()
    text = stream.getvalue().decode()
    # The line is erased before the result and drawn again after it.
    before, after = text.split("[seen]: a, 1\n")
    assert before.endswith("\x1b[2K")
    assert "app: RUNNING" in after
    assert text.endswith("\x1b[2K")


def test_restore_has_a_bar(clock: Clock) -> None:
    status = create(StringIO(), clock)
    status.update_restore("one", 0, 1000)
    status.update_restore("two", 500, 1000)
    assert status.text() == "app: CREATED, restoring [#####---------------] 500 of 2,000"
    status.update_restore("one", 1000, 1000)
    assert status.text() == "app: CREATED, restoring [##########----------] 500 of 1,000"
    status.update_restore("two", 1000, 1000)
    assert status.text() == "app: CREATED"


def test_log_records_go_above_the_line(clock: Clock) -> None:
    err = StringIO()
    status = create(err, clock)
    user, package = logging.getLogger("shop"), logging.getLogger("penstock.engine.lease")
    options = LogOptions(logging.WARNING, None, is_json=False, is_explicit=False)
    with run_logging(status, options):
        user.warning("low on tea")
        package.info("below the level")
        package.warning("lease expires soon")
        logging.getLogger("penstock.engine.stream_thread").error("printed when the command ends")
        logging.getLogger("penstock.engine.lifecycle").error("shown as the state")
    user.warning("after the block")
    assert err.getvalue() == (
        "WARNING shop: low on tea\nWARNING penstock.engine.lease: lease expires soon\n"
    )
