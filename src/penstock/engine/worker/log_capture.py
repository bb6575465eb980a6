"""What is logged while a task runs in a worker, for the driver's own logger."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Self

from penstock.engine.worker.outcome import LogLine

MAX_LINES = 1000
MAX_CHARACTERS = 8192

#: What these say is about Spark, not about the application.
_NOT_THE_APPLICATION = ("py4j", "pyspark")


class LogCapture:
    """Listens to all loggers of the process while it is entered; keeps the first lines."""

    def __init__(self, level: int, *, active: bool = True) -> None:
        self._level = level
        self._active = active
        self._handler = _Keeping(level)
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
        """What was said, and how much more there was."""
        kept = self._handler
        if not kept.left_out:
            return tuple(kept.lines)
        more = LogLine(
            logging.WARNING, __name__, f"{kept.left_out} more lines of this task were left out."
        )
        return (*kept.lines, more)


class _Keeping(logging.Handler):
    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.lines: list[LogLine] = []
        self.left_out = 0

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith(_NOT_THE_APPLICATION):
            return
        if len(self.lines) >= MAX_LINES:
            self.left_out += 1
            return
        try:
            text = self.format(record)
        except Exception:
            # What cannot be formatted is the user's mistake in a log call; the batch goes on.
            self.handleError(record)
            return
        self.lines.append(LogLine(record.levelno, record.name, text[:MAX_CHARACTERS]))
