"""What `penstock run` shows while it runs: one line that is drawn again, or plain lines.

On a terminal the line is always there, below whatever else is written. Elsewhere a line is written
when the state changes and, while something happens, every few seconds.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from penstock.cli.terminal import Terminal, shown

#: Seconds between two plain lines, and between two drawings of the line on a terminal.
PLAIN_EVERY_S = 5.0
DRAWN_EVERY_S = 0.1
#: Records a second are those of the last while.
RATE_OVER_S = 5.0


#: Who logs, at ERROR, what ends the application.
_TOLD_AT_THE_END = ("penstock.handlers", "penstock.engine.stream_thread")


class Report(Protocol):
    """What is shown of a batch."""

    @property
    def number(self) -> int: ...

    @property
    def records(self) -> int: ...

    @property
    def outputs(self) -> int: ...

    @property
    def seconds(self) -> float: ...


class StatusLine:
    """The line. Any thread may tell it something; it is drawn by whoever tells, and by `tick`.

    `mode` is "line" on a terminal, "plain" elsewhere, "quiet" for nothing at all. With
    `every_batch` a plain line is written for each batch.
    """

    def __init__(
        self, terminal: Terminal, application: str, *, quiet: bool = False,
        every_batch: bool = False, lag: Callable[[], int | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._terminal = terminal
        self._application = application
        self._every_batch = every_batch and not quiet
        self.mode = "quiet" if quiet else "line" if terminal.err_is_terminal else "plain"
        self._lag = lag
        self._clock = clock
        self._lock = threading.RLock()
        self._state = "CREATED"
        self._detail = ""
        self._batch: Report | None = None
        self.records = 0
        self.batches = 0
        #: (when it ended, its records, its seconds) of late batches.
        self._recent: deque[tuple[float, int, float]] = deque()
        self._written_at = clock()
        self._written_batch = 0
        self._drawn = ""
        self._restoring: dict[object, tuple[int, int]] = {}

    # ---- what is told ------------------------------------------------------------------------

    def state(self, state: str, detail: str = "") -> None:
        """The application is in another state, or has something to say about it."""
        with self._lock:
            changed = (state, detail) != (self._state, self._detail)
            self._state, self._detail = state, detail
            if changed and self.mode == "plain":
                self._write(f"{self._application}: {state}{f', {detail}' if detail else ''}")
            self._draw(force=True)

    def batch(self, report: Report) -> None:
        """A batch was committed."""
        now = self._clock()
        with self._lock:
            self.batches += 1
            self.records += report.records
            self._batch = report
            self._recent.append((now, report.records, report.seconds))
            self._forget(now)
            if self._every_batch or (
                self.mode == "plain" and now - self._written_at >= PLAIN_EVERY_S
            ):
                self._write(self.text())
                self._written_at, self._written_batch = now, report.number
            self._draw()

    def restored(self, what: object, done: int, total: int) -> None:
        """So much of a store's changelog is read; all of it: the store is forgotten."""
        with self._lock:
            if done >= total:
                self._restoring.pop(what, None)
            else:
                self._restoring[what] = (done, total)
            self._draw()

    def tick(self) -> None:
        """Now and then: what was not worth a line in its time is written when all is quiet."""
        now = self._clock()
        with self._lock:
            self._forget(now)
            if (
                self.mode == "plain" and not self._every_batch and self._batch is not None
                and self._batch.number != self._written_batch
                and now - self._written_at >= PLAIN_EVERY_S
            ):
                self._write(self.text())
                self._written_at, self._written_batch = now, self._batch.number
            self._draw()

    def say(self, text: str) -> None:
        """A line for people, above the live one."""
        with self._lock:
            self._write(text)

    def out(self, lines: list[str]) -> None:
        """Lines of print steps, to standard output."""
        with self._lock:
            self._clear()
            for line in lines:
                self._terminal.line(line)
            self._terminal.flush()
            self._draw(force=True)

    def close(self) -> None:
        """Leave the place as if no line had been there; nothing is drawn any more."""
        with self._lock:
            self._clear()
            if self.mode == "line":
                self.mode = "plain"

    # ---- what is shown -----------------------------------------------------------------------

    def rate(self) -> float:
        """Records a second of late."""
        with self._lock:
            now = self._clock()
            self._forget(now)
            if not self._recent:
                return 0.0
            ended, _, took = self._recent[0]
            over = min(RATE_OVER_S, now - ended + took)
            return sum(records for _, records, _ in self._recent) / max(over, 0.001)

    def text(self) -> str:
        """The whole line."""
        with self._lock:
            parts = [f"{self._application}: {self._state}"]
            if self._detail:
                parts.append(self._detail)
            if self._restoring:
                parts.append(self._restore_bar())
            if self._batch is not None:
                parts.append(f"batch {self._batch.number:,}")
                parts.append(f"{self.records:,} record{'' if self.records == 1 else 's'}")
                parts.append(f"{self.rate():,.0f}/s")
                lag = self._lag()
                if lag is not None:
                    parts.append(f"lag {lag:,}")
                parts.append(f"{self._batch.seconds * 1000:,.0f} ms")
            return ", ".join(parts)

    def _restore_bar(self) -> str:
        done = sum(done for done, _ in self._restoring.values())
        total = max(1, sum(total for _, total in self._restoring.values()))
        filled = min(20, 20 * done // total)
        return f"restoring [{'#' * filled}{'-' * (20 - filled)}] {done:,} of {total:,}"

    def _forget(self, now: float) -> None:
        while self._recent and self._recent[0][0] <= now - RATE_OVER_S:
            self._recent.popleft()

    def _write(self, text: str) -> None:
        self._clear()
        self._terminal.note(text)
        self._draw(force=True)

    def _draw(self, *, force: bool = False) -> None:
        if self.mode != "line":
            return
        now = self._clock()
        if not force and self._drawn and now - self._written_at < DRAWN_EVERY_S:
            return
        width = shutil.get_terminal_size().columns - 1
        text = shown(self.text())[:width]
        if text != self._drawn:
            self._terminal.err.write(f"\r\x1b[K{text}")
            self._terminal.err.flush()
        self._drawn, self._written_at = text, now

    def _clear(self) -> None:
        if self._drawn:
            self._terminal.err.write("\r\x1b[K")
            self._terminal.err.flush()
            self._drawn = ""


class StatusLineHandler(logging.Handler):
    """Writes what is logged above the live line."""

    def __init__(self, live: StatusLine, level: int) -> None:
        super().__init__(level)
        self._live = live
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))

    def filter(self, record: logging.LogRecord) -> bool:
        """Leave out what the command itself shows, in its line or as the error it ends with."""
        return super().filter(record) is not False and not (
            record.name == "penstock.engine.lifecycle"
            or (record.levelno >= logging.ERROR and record.name in _TOLD_AT_THE_END)
        )

    def emit(self, record: logging.LogRecord) -> None:
        """One line, or more with a traceback."""
        try:
            self._live.say(self.format(record))
        except Exception:
            self.handleError(record)


@contextmanager
def listening(live: StatusLine, level: int) -> Iterator[None]:
    """Let what is logged go above the line."""
    root, ours = logging.getLogger(), logging.getLogger("penstock")
    handler, before = StatusLineHandler(live, level), ours.level
    root.addHandler(handler)
    ours.setLevel(level)
    try:
        yield
    finally:
        root.removeHandler(handler)
        ours.setLevel(before)
