"""Captures log records and printed lines in a worker, to emit them in the driver."""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import time
from types import TracebackType
from typing import Self, TextIO

from penstock.engine.packaging.escaping import escape_surrogates
from penstock.engine.stdout import LineStream
from penstock.engine.worker.log_lines import STDOUT, LogLine
from penstock.record import TaskId

MAX_LINES = 1000
MAX_PRINTED_LINES = 10_000
MAX_CHARACTERS = 8192

#: These loggers report about Spark, not about the application.
_SPARK_LOGGERS = ("py4j", "pyspark")


class LogCapture:
    """A context manager that captures the lines of all loggers and of `print`, up to a limit.

    Any thread may log, print and take the lines.
    """

    def __init__(self, level: int, *, active: bool = True) -> None:
        self._level = level
        self._active = active
        self._lock = threading.RLock()
        self._lines: list[LogLine] = []
        #: How many lines were logged and printed since the last `take_lines`.
        self._logged = self._printed = 0
        self._handler = _CapturingHandler(level, self)
        self._stdout = LineStream(self._add_printed)
        self._level_before = logging.NOTSET
        self._stdout_before: TextIO = sys.stdout
        self._host, self._process = socket.gethostname(), os.getpid()
        #: The task that runs, and the thread that runs it.
        self._running: tuple[str, int] = ("", 0)

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

    def set_task(self, task_id: TaskId | None) -> None:
        """Set the task that the calling thread runs from now on."""
        self._running = ("", 0) if task_id is None else (str(task_id), threading.get_ident())

    def lines(self) -> tuple[LogLine, ...]:
        """Return the captured lines in order, then the numbers of lines above the limits."""
        self._stdout.end_line()
        return self._captured()

    def _captured(self) -> tuple[LogLine, ...]:
        omitted = {
            "log": self._logged - MAX_LINES, "printed": self._printed - MAX_PRINTED_LINES,
        }
        return (*self._lines, *(
            self._line(
                logging.WARNING, __name__, f"{count} more {kind} lines of this task are omitted."
            )
            for kind, count in omitted.items() if count > 0
        ))

    def take_lines(self, *, end_line: bool = True) -> tuple[LogLine, ...]:
        """Return the lines since the last call.

        `end_line=False` keeps a printed line that has not ended.
        """
        with self._lock:
            lines = self.lines() if end_line else self._captured()
            self._lines.clear()
            self._logged = self._printed = 0
            return lines

    def add(self, record: logging.LogRecord, text: str, exception: str) -> None:
        """Add a log record."""
        with self._lock:
            self._logged += 1
            if self._logged <= MAX_LINES:
                self._lines.append(
                    self._line(record.levelno, record.name, text, record.created, exception)
                )

    def _add_printed(self, lines: list[str]) -> None:
        with self._lock:
            free = max(0, MAX_PRINTED_LINES - self._printed)
            self._printed += len(lines)
            self._lines += [self._line(logging.NOTSET, STDOUT, line) for line in lines[:free]]

    def _line(
        self, level: int, logger: str, text: str, created: float = 0.0, exception: str = ""
    ) -> LogLine:
        task, thread = self._running
        return LogLine(
            level, escape_surrogates(logger), _limited(text), created or time.time(),
            _limited(exception), self._host, self._process,
            task if thread == threading.get_ident() else "",
        )


class _CapturingHandler(logging.Handler):
    """Passes records to a capture, with the traceback apart from the message."""

    def __init__(self, level: int, capture: LogCapture) -> None:
        super().__init__(level)
        self._capture = capture
        self._formatter = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith(_SPARK_LOGGERS):
            return
        try:
            text = record.getMessage()
            parts = [record.exc_text or "", record.stack_info or ""]
            if record.exc_info and not record.exc_text:
                parts[0] = self._formatter.formatException(record.exc_info)
        except Exception:
            # A mistake in a log call of the user must not fail the batch.
            self.handleError(record)
            return
        self._capture.add(record, text, "\n".join(filter(None, parts)))


def _limited(text: str) -> str:
    return escape_surrogates(text[:MAX_CHARACTERS])
