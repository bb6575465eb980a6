"""Captures log records in a worker, to emit them in the driver."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Self

from penstock.engine.worker.outcome import LogLine

MAX_LINES = 1000
MAX_CHARACTERS = 8192

#: These loggers report about Spark, not about the application.
_SPARK_LOGGERS = ("py4j", "pyspark")


class LogCapture:
    """A context manager that captures the lines of all loggers, up to a limit."""

    def __init__(self, level: int, *, active: bool = True) -> None:
        self._level = level
        self._active = active
        self._handler = _CapturingHandler(level)
        self._level_before = logging.NOTSET

    def __enter__(self) -> Self:
        if self._active:
            root = logging.getLogger()
            self._level_before = root.level
            root.setLevel(self._level)
            root.addHandler(self._handler)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._active:
            root = logging.getLogger()
            root.removeHandler(self._handler)
            root.setLevel(self._level_before)

    def lines(self) -> tuple[LogLine, ...]:
        """Return the captured lines. The last one counts the lines above the limit, if any."""
        handler = self._handler
        if not handler.omitted:
            return tuple(handler.lines)
        summary = LogLine(
            logging.WARNING, __name__, f"{handler.omitted} more log lines of this task are omitted."
        )
        return (*handler.lines, summary)


class _CapturingHandler(logging.Handler):
    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.lines: list[LogLine] = []
        self.omitted = 0

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith(_SPARK_LOGGERS):
            return
        if len(self.lines) >= MAX_LINES:
            self.omitted += 1
            return
        try:
            text = self.format(record)
        except Exception:
            # A mistake in a log call of the user must not fail the batch.
            self.handleError(record)
            return
        self.lines.append(LogLine(record.levelno, record.name, text[:MAX_CHARACTERS]))
