"""Captures log records and printed lines in a worker, to emit them in the driver."""

from __future__ import annotations

import logging
import sys
from types import TracebackType
from typing import Self, TextIO

from penstock.engine.stdout import LineStream
from penstock.engine.worker.outcome import STDOUT, LogLine

MAX_LINES = 1000
MAX_PRINTED_LINES = 10_000
MAX_CHARACTERS = 8192

#: These loggers report about Spark, not about the application.
_SPARK_LOGGERS = ("py4j", "pyspark")


class LogCapture:
    """A context manager that captures the lines of all loggers and of `print`, up to a limit."""

    def __init__(self, level: int, *, active: bool = True) -> None:
        self._level = level
        self._active = active
        self._lines: list[LogLine] = []
        self._handler = _CapturingHandler(level, self._lines)
        self._stdout = LineStream(self._add_printed)
        self._printed = 0
        self._level_before = logging.NOTSET
        self._stdout_before: TextIO = sys.stdout

    def __enter__(self) -> Self:
        if self._active:
            root = logging.getLogger()
            self._level_before = root.level
            root.setLevel(self._level)
            root.addHandler(self._handler)
            self._stdout_before, sys.stdout = sys.stdout, self._stdout
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._active:
            root = logging.getLogger()
            root.removeHandler(self._handler)
            root.setLevel(self._level_before)
            sys.stdout = self._stdout_before

    def lines(self) -> tuple[LogLine, ...]:
        """Return the captured lines in order, then the numbers of lines above the limits."""
        self._stdout.end_line()
        omitted = {
            "log": self._handler.omitted, "printed": max(0, self._printed - MAX_PRINTED_LINES),
        }
        return (*self._lines, *(
            LogLine(
                logging.WARNING, __name__, f"{count} more {kind} lines of this task are omitted."
            )
            for kind, count in omitted.items() if count
        ))

    def take_lines(self) -> tuple[LogLine, ...]:
        """Return the lines since the last call."""
        lines = self.lines()
        self._lines.clear()
        self._handler.reset()
        self._printed = 0
        return lines

    def _add_printed(self, lines: list[str]) -> None:
        free = max(0, MAX_PRINTED_LINES - self._printed)
        self._printed += len(lines)
        self._lines += [
            LogLine(logging.NOTSET, STDOUT, line[:MAX_CHARACTERS]) for line in lines[:free]
        ]


class _CapturingHandler(logging.Handler):
    def __init__(self, level: int, lines: list[LogLine]) -> None:
        super().__init__(level)
        self._lines = lines
        self.reset()

    def reset(self) -> None:
        """Count the lines from 0 again."""
        self._count = 0
        self.omitted = 0

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith(_SPARK_LOGGERS):
            return
        if self._count >= MAX_LINES:
            self.omitted += 1
            return
        try:
            text = self.format(record)
        except Exception:
            # A mistake in a log call of the user must not fail the batch.
            self.handleError(record)
            return
        self._count += 1
        self._lines.append(LogLine(record.levelno, record.name, text[:MAX_CHARACTERS]))
