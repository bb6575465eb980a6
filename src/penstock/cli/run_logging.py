"""The log and the printed lines of `penstock run`: where they go, and in which form."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from penstock.engine.stdout import LineStream

if TYPE_CHECKING:
    from penstock.cli.status_line import StatusLine

#: Loggers whose errors end the application. The command prints these errors itself.
_FATAL_LOGGERS = ("penstock.handlers", "penstock.engine.stream_thread")
#: Loggers of libraries that report every call at INFO or DEBUG.
_NOISY_LOGGERS = ("py4j", "pyspark")
LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The logging options of the command line."""

    level: int
    #: The file that gets the log lines; None: standard error.
    file: str | None
    is_json: bool
    #: Whether an option was given that applies to applications with their own configuration, too.
    is_explicit: bool

    @classmethod
    def of(cls, args: argparse.Namespace) -> LogOptions:
        """Read the options. JSON lines include the states, which are informational."""
        is_json = args.log_format == "json"
        default = "info" if args.verbose or (is_json and not args.quiet) else "warning"
        return cls(
            getattr(logging, (args.log_level or default).upper()), args.log_file, is_json,
            is_json or args.log_level is not None or args.log_file is not None,
        )


def add_log_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `LogOptions` reads, except --quiet and --verbose."""
    parser.add_argument(
        "--log-level", choices=LEVELS, metavar="LEVEL",
        help=f"show log messages from this level on: {', '.join(LEVELS)} (default: warning, or "
        "info with --verbose)",
    )
    parser.add_argument(
        "--log-file", metavar="FILE",
        help="append log messages to FILE instead of showing them",
    )
    parser.add_argument(
        "--log-format", choices=("text", "json"), default="text",
        help="json: write log messages, including changes of the state, as one JSON object per "
        "line, without a status line",
    )


@contextmanager
def run_logging(status: StatusLine, options: LogOptions) -> Iterator[None]:
    """Apply the options to all loggers during the block."""
    handler = _handler(status, options)
    handler.setFormatter(_formatter(options))
    root = logging.getLogger()
    levels = {
        root: options.level, logging.getLogger("penstock"): options.level,
        **{logging.getLogger(name): max(options.level, logging.WARNING)
           for name in _NOISY_LOGGERS},
    }
    previous = {logger: logger.level for logger in levels}
    root.addHandler(handler)
    for logger, level in levels.items():
        logger.setLevel(level)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()
        for logger, level in previous.items():
            logger.setLevel(level)


@contextmanager
def print_to_status_line(status: StatusLine) -> Iterator[None]:
    """Write what the application prints above the live line, to standard output."""
    stream = LineStream(status.write_results)
    with redirect_stdout(stream):
        try:
            yield
        finally:
            stream.end_line()


def _handler(status: StatusLine, options: LogOptions) -> logging.Handler:
    if options.file is not None:
        return logging.FileHandler(options.file, encoding="utf-8", errors="backslashreplace")
    return StatusLineHandler(status, shows_everything=options.is_json)


def _formatter(options: LogOptions) -> logging.Formatter:
    if options.is_json:
        return JsonFormatter()
    time = "%(asctime)s " if options.file is not None else ""
    return logging.Formatter(f"{time}%(levelname)s %(name)s: %(message)s")


class JsonFormatter(logging.Formatter):
    """Formats a log record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object as text."""
        moment = datetime.fromtimestamp(record.created, UTC)
        row: dict[str, object] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname, "logger": record.name,
            "message": _encodable(record.getMessage()),
        }
        # Lines of workers, see `replay_log_lines`, have the text of their exceptions.
        exception = record.exc_text
        if record.exc_info:
            exception = self.formatException(record.exc_info)
        if exception:
            row["exception"] = _encodable(exception)
        if hasattr(record, "host"):
            row |= {
                name: getattr(record, name) for name in ("host", "process", "lane", "task")
                if hasattr(record, name)
            }
        return msgspec.json.encode(row).decode()


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


class StatusLineHandler(logging.Handler):
    """Writes log records above the live line."""

    def __init__(self, status: StatusLine, *, shows_everything: bool = False) -> None:
        """`shows_everything`: also what the command shows by itself, if there is no status line."""
        super().__init__()
        self._status = status
        self._shows_everything = shows_everything

    def filter(self, record: logging.LogRecord) -> bool:
        """Drop records that the command shows itself: states, and the error that it ends with."""
        return super().filter(record) is not False and (self._shows_everything or not (
            record.name == "penstock.engine.lifecycle"
            or (record.levelno >= logging.ERROR and record.name in _FATAL_LOGGERS)
        ))

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record, with its traceback if it has one."""
        try:
            self._status.write_message(self.format(record))
        except Exception:
            self.handleError(record)
