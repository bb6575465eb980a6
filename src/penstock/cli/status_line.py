"""The status of `penstock run`: a live line on a terminal, plain lines elsewhere.

On a terminal the line stays below all other output. Elsewhere, a line is written when the state
changes and every few seconds while records are processed.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from penstock.cli.terminal import Terminal, escape_control_characters

if TYPE_CHECKING:
    from rich.live import Live

    from penstock.engine.batch_report import BatchReport

PLAIN_INTERVAL_S = 5.0
REFRESH_INTERVAL_S = 0.1
#: The record rate is the average over this time.
RATE_WINDOW_S = 5.0


class StatusLine:
    """Shows the state, the commits and the restores of an application. Thread-safe.

    `mode` is "live" on a terminal, "plain" elsewhere, "quiet" for no output. With `every_commit`
    each commit (of a batch, or of a lane) writes a plain line.
    """

    def __init__(
        self, terminal: Terminal, application: str, *, quiet: bool = False,
        every_commit: bool = False, is_continuous: bool = False,
        lag: Callable[[], int | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._terminal = terminal
        self._application = application
        self._every_commit = every_commit and not quiet
        #: The noun that is counted.
        self.unit = "commit" if is_continuous else "batch"
        # A lane commits single records within milliseconds, which is no rate.
        self._shortest_window_s = 1.0 if is_continuous else 0.001
        self.mode = "quiet" if quiet else "live" if terminal.shows_live_displays else "plain"
        self._lag = lag
        self._clock = clock
        self._lock = threading.RLock()
        self._state = "CREATED"
        self._detail = ""
        self._last: BatchReport | None = None
        self.records = 0
        self.commits = 0
        #: (end time, records, seconds) of the commits within the rate window.
        self._recent: deque[tuple[float, int, float]] = deque()
        self._written_at = clock()
        self._written_commit = 0
        self._live: Live | None = None
        self._refreshed_at = 0.0
        self._exit_stack = ExitStack()
        self._restores: dict[object, tuple[int, int]] = {}

    def set_state(self, state: str, detail: str = "") -> None:
        """Show a state of the application."""
        with self._lock:
            changed = (state, detail) != (self._state, self._detail)
            self._state, self._detail = state, detail
            if changed and self.mode == "plain":
                self._terminal.note(
                    f"{self._application}: {state}{f', {detail}' if detail else ''}"
                )
            self._refresh(force=True)

    def add_commit(self, report: BatchReport) -> None:
        """Count a commit."""
        now = self._clock()
        with self._lock:
            self.commits += 1
            self.records += report.input_records
            self._last = report
            self._recent.append((now, report.input_records, report.seconds))
            self._expire(now)
            if self._every_commit or self._is_due(now):
                self._write_commit(report, now)
            self._refresh()

    def update_restore(self, store: object, done: int, total: int) -> None:
        """Show the progress of a store's restore, until it is complete."""
        with self._lock:
            if done >= total:
                self._restores.pop(store, None)
            else:
                self._restores[store] = (done, total)
            self._refresh()

    def tick(self) -> None:
        """Refresh the line. Writes the last commit if it has not had a plain line yet."""
        now = self._clock()
        with self._lock:
            self._expire(now)
            if (
                not self._every_commit and self._last is not None
                and self._last.number != self._written_commit and self._is_due(now)
            ):
                self._write_commit(self._last, now)
            self._refresh()

    def write_message(self, text: str) -> None:
        """Write a message above the live line."""
        with self._lock:
            self._terminal.note(text)

    def write_results(self, lines: list[str]) -> None:
        """Write the lines of print steps to standard output."""
        with self._lock:
            # Both streams may be the same terminal, and Rich protects only its own.
            if self._live is not None:
                self._live.stop()
            for line in lines:
                self._terminal.write_line(line)
            self._terminal.flush()
            if self._live is not None:
                self._live.start(refresh=True)

    def close(self) -> None:
        """Remove the live line."""
        with self._lock:
            self._exit_stack.close()
            self._live = None
            if self.mode == "live":
                self.mode = "plain"

    def rate(self) -> float:
        """Return the records per second within the rate window."""
        with self._lock:
            now = self._clock()
            self._expire(now)
            if not self._recent:
                return 0.0
            ended, _, seconds = self._recent[0]
            window = max(self._shortest_window_s, min(RATE_WINDOW_S, now - ended + seconds))
            return sum(records for _, records, _ in self._recent) / window

    def text(self) -> str:
        """Return the status as one line."""
        with self._lock:
            parts = [f"{self._application}: {self._state}"]
            if self._detail:
                parts.append(self._detail)
            if self._restores:
                parts.append(self._restore_bar())
            if self._last is not None:
                parts.append(f"{self.unit} {self._last.number:,}")
                parts.append(f"{self.records:,} record{'' if self.records == 1 else 's'}")
                parts.append(f"{self.rate():,.0f}/s")
                lag = self._lag()
                if lag is not None:
                    parts.append(f"lag {lag:,}")
                parts.append(f"{self._last.seconds * 1000:,.0f} ms")
            return ", ".join(parts)

    def _restore_bar(self) -> str:
        done = sum(done for done, _ in self._restores.values())
        total = max(1, sum(total for _, total in self._restores.values()))
        filled = min(20, 20 * done // total)
        return f"restoring [{'#' * filled}{'-' * (20 - filled)}] {done:,} of {total:,}"

    def _expire(self, now: float) -> None:
        while self._recent and self._recent[0][0] <= now - RATE_WINDOW_S:
            self._recent.popleft()

    def _is_due(self, now: float) -> bool:
        return self.mode == "plain" and now - self._written_at >= PLAIN_INTERVAL_S

    def _write_commit(self, report: BatchReport, now: float) -> None:
        self._terminal.note(self.text())
        self._written_at, self._written_commit = now, report.number

    def _refresh(self, *, force: bool = False) -> None:
        if self.mode != "live":
            return
        now = self._clock()
        if self._live is None:
            self._live = self._start_live()
        elif not force and now - self._refreshed_at < REFRESH_INTERVAL_S:
            return
        from rich.text import Text  # noqa: PLC0415

        line = Text(escape_control_characters(self.text()), no_wrap=True, overflow="ellipsis")
        self._live.update(line, refresh=True)
        self._refreshed_at = now

    def _start_live(self) -> Live:
        from rich.live import Live  # noqa: PLC0415

        console = self._exit_stack.enter_context(self._terminal.live_console())
        return self._exit_stack.enter_context(Live(
            console=console, auto_refresh=False, transient=True, redirect_stdout=False,
            redirect_stderr=False,
        ))
