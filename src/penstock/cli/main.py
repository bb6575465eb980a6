"""The entry point: runs a command and turns exceptions into messages and exit codes."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from types import FrameType
from typing import NoReturn

from penstock.cli.commands import (
    broker,
    consume,
    dashboard,
    demo,
    describe,
    groups,
    new,
    prepare,
    produce,
    query,
    reset,
    run,
    serve,
    topics,
    upgrade,
)
from penstock.cli.errors import UsageError
from penstock.cli.parsing import LOG_VARIABLE, Parser, add_common_options, add_subcommands
from penstock.cli.terminal import Terminal
from penstock.errors import StreamsException


class ExitCode(IntEnum):
    """The exit codes. Those above 128 are the shell's codes for signals."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    INTERRUPTED = 128 + 2
    BROKEN_PIPE = 128 + 13
    TERMINATED = 128 + 15


#: In the order of the help.
COMMANDS = (
    run, serve, dashboard, new, demo, topics, produce, consume, groups, query, describe, upgrade,
    reset, broker, prepare,
)

_EXAMPLES = """
  penstock run app.py --application-id orders --log orders.db
  penstock topics create orders --partitions 4 --log orders.db
  echo 'store-1:{"amount": 12}' | penstock produce orders --key-separator : --log orders.db
  penstock consume orders --format key-value --log orders.db
  penstock groups list --log orders.db
  penstock describe app.py
"""


def build_parser() -> Parser:
    """Return the parser of the command line."""
    parser = Parser(
        prog="penstock",
        description="Kafka Streams for Python: topics, records, groups and topologies.",
        examples=f"{_EXAMPLES}\nIf {LOG_VARIABLE} is set, --log is optional. "
        "For more see 'penstock COMMAND --help'.\n\n"
        "exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted",
    )
    parser.add_argument(
        "--version", action=_VersionAction, nargs=0, help="show the version and exit"
    )
    add_common_options(parser)
    subparsers = add_subcommands(parser)
    for module in COMMANDS:
        module.add(subparsers)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    terminal = Terminal.from_process()
    try:
        args = build_parser().parse_args(arguments)
    except SystemExit as exit_:  # argparse has printed the help, the version or an error.
        return _flush(terminal, exit_.code if isinstance(exit_.code, int) else ExitCode.FAILURE)
    with _raise_on_sigterm():
        return _run(args, terminal)


def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    debug = getattr(args, "debug", False)
    try:
        try:
            args.run(args, terminal)
            terminal.flush()
        except BaseException:
            if debug:
                traceback.print_exc()
            raise
    except BrokenPipeError:
        _discard_output()
        return ExitCode.BROKEN_PIPE
    except KeyboardInterrupt:
        return _end_after_signal(terminal, ExitCode.INTERRUPTED)
    except _Terminated:
        return _end_after_signal(terminal, ExitCode.TERMINATED)
    except UsageError as error:
        return _fail(terminal, f"{error}\nSee '{args.prog} --help'.", ExitCode.USAGE)
    except StreamsException as error:
        return _fail(terminal, str(error), ExitCode.FAILURE)
    except OSError as error:
        return _fail(terminal, _os_error_text(error), ExitCode.FAILURE)
    except Exception as error:  # A bug in penstock. Users get one line here, too.
        hint = "" if debug else " Use --debug for the traceback."
        return _fail(terminal, f"{type(error).__name__}: {error}{hint}", ExitCode.FAILURE)
    return ExitCode.OK


def _fail(terminal: Terminal, message: str, code: int) -> int:
    code = _flush(terminal, code)
    terminal.note(f"penstock: error: {message}")
    return code


def _end_after_signal(terminal: Terminal, code: int) -> int:
    if terminal.err_is_terminal:
        terminal.note("")  # The prompt of the shell goes below the ^C.
    return _flush(terminal, code)


def _flush(terminal: Terminal, code: int) -> int:
    """Flush standard output. A failure to do so does not replace an earlier failure."""
    try:
        terminal.flush()
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        return code or ExitCode.BROKEN_PIPE
    except OSError:
        _discard_output()
        return code or ExitCode.FAILURE
    return code


def _os_error_text(error: OSError) -> str:
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}." if error.filename else f"{reason}."


def _discard_output() -> None:
    """Redirect standard output to nowhere, so that Python's flush at exit does not fail."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError):
        pass


class _VersionAction(argparse.Action):
    """Prints the version and which core runs: the native one or pure Python."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: object,
        option_string: str | None = None,
    ) -> NoReturn:
        from importlib import metadata  # noqa: PLC0415

        from penstock import native  # noqa: PLC0415

        print(f"penstock {metadata.version('penstock')}, core: {native.in_use()}")
        parser.exit()


class _Terminated(BaseException):
    """SIGTERM was received."""


@contextmanager
def _raise_on_sigterm() -> Iterator[None]:
    """Raise `_Terminated` on SIGTERM, so that commands clean up and leave their groups."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def raise_terminated(number: int, frame: FrameType | None) -> None:
        raise _Terminated

    previous = signal.signal(signal.SIGTERM, raise_terminated)
    try:
        yield
    finally:
        if previous is not None:
            signal.signal(signal.SIGTERM, previous)
