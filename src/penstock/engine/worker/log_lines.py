"""Lines that user code has logged or printed in a worker, emitted again in the driver."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple

from penstock.engine.stdout import write_to_stdout

#: Stands for a logger: the line was printed to standard output.
STDOUT = "<stdout>"


class LogLine(NamedTuple):
    """A line that was logged or printed in a worker."""

    level: int
    #: The name of the logger, or `STDOUT`.
    logger: str
    text: str
    #: When it was logged, in seconds since the epoch.
    created: float = 0.0
    #: The traceback, if there is one.
    exception: str = ""
    host: str = ""
    process: int = 0
    #: The task that ran, if it is known.
    task: str = ""


def replay_log_lines(lines: Iterable[LogLine], lane: int | None = None) -> None:
    """Log and print lines, with the loggers of the same names and the original times.

    Log records have the attributes `host` and `process` of the worker, and `task` and `lane` if
    they are known.
    """
    for line in lines:
        if line.logger == STDOUT:
            write_to_stdout([line.text])
            continue
        logger = logging.getLogger(line.logger)
        if logger.isEnabledFor(line.level):
            logger.handle(_record(line, lane))


def _record(line: LogLine, lane: int | None) -> logging.LogRecord:
    origin = {"host": line.host, "process": line.process, "task": line.task, "lane": lane}
    fields = {name: value for name, value in origin.items() if value not in (None, "", 0)}
    if line.created:
        start = logging.makeLogRecord({})
        fields |= {
            "created": line.created, "msecs": float(int(line.created % 1 * 1000)),
            "relativeCreated": start.relativeCreated + (line.created - start.created) * 1000,
        }
    return logging.makeLogRecord({
        "name": line.logger, "levelno": line.level, "levelname": logging.getLevelName(line.level),
        "msg": line.text, "exc_text": line.exception or None, **fields,
    })
