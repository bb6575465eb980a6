"""The entry: finds the command, runs it, and turns what it raises into messages and exit codes.

| code | meaning |
|---|---|
| 0 | done |
| 1 | failure; standard error says why |
| 2 | wrong usage; nothing was done |
| 130 | interrupted (ctrl-C) |
| 141 | the receiver of standard output went away |
| 143 | terminated (SIGTERM) |
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

from penstock.cli.commands import (
    broker,
    consume,
    describe,
    groups,
    produce,
    reset,
    run,
    topics,
)
from penstock.cli.errors import UsageError
from penstock.cli.parsing import LOG_VARIABLE, Parser, add_commands, add_common
from penstock.cli.terminal import Terminal
from penstock.errors import StreamsException

DONE = 0
FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 128 + 2
RECEIVER_GONE = 128 + 13
TERMINATED = 128 + 15

#: In the order of the help.
COMMANDS = (run, topics, produce, consume, groups, describe, reset, broker)

_EXAMPLES = """
  penstock run app.py --application-id orders --log orders.db
  penstock topics create orders --partitions 4 --log orders.db
  echo 'store-1:{"amount": 12}' | penstock produce orders --key-separator : --log orders.db
  penstock consume orders --format key-value --log orders.db
  penstock groups list --log orders.db
  penstock describe app.py
"""


def parser() -> Parser:
    """The parser of the whole command line."""
    root = Parser(
        prog="penstock",
        description="Kafka Streams for Python: topics, records, groups and topologies.",
        examples=f"{_EXAMPLES}\nWith {LOG_VARIABLE} set, --log can be left out. "
        "'penstock COMMAND --help' has more.\n\n"
        "exit codes: 0 done, 1 failure, 2 wrong usage, 130 interrupted",
    )
    root.add_argument(
        "--version", action=_ShowVersion, nargs=0, help="show the version and exit"
    )
    add_common(root)
    commands = add_commands(root)
    for module in COMMANDS:
        module.add(commands)
    return root


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; answers the exit code."""
    terminal = Terminal.of_process()
    try:
        args = parser().parse_args(arguments)
    except SystemExit as told:  # Help, the version, or wrong usage: argparse has said it.
        return _flushed(terminal, told.code if isinstance(told.code, int) else FAILED)
    with _Terminable():
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
        _forget_output()
        return RECEIVER_GONE
    except KeyboardInterrupt:
        return _stopped(terminal, INTERRUPTED)
    except _Terminated:
        return _stopped(terminal, TERMINATED)
    except UsageError as error:
        return _told(terminal, f"{error}\nSee '{args.prog} --help'.", WRONG_USAGE)
    except StreamsException as error:
        return _told(terminal, str(error), FAILED)
    except OSError as error:
        return _told(terminal, _of_system(error), FAILED)
    except Exception as error:  # A mistake of penstock's own: say so in a line, too.
        hint = "" if debug else " --debug shows where."
        return _told(terminal, f"{type(error).__name__}: {error}{hint}", FAILED)
    return DONE


def _told(terminal: Terminal, message: str, code: int) -> int:
    code = _flushed(terminal, code)
    terminal.note(f"penstock: error: {message}")
    return code


def _stopped(terminal: Terminal, code: int) -> int:
    """After a signal: results that were written are handed over, as far as they are taken."""
    if terminal.err_is_terminal:
        terminal.note("")  # The shell's prompt goes below the ^C.
    return _flushed(terminal, code)


def _flushed(terminal: Terminal, code: int) -> int:
    """Hand over what was written before; if nobody takes it, that is not the first trouble."""
    try:
        terminal.flush()
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_output()
        return code or RECEIVER_GONE
    except OSError:
        _forget_output()
        return code or FAILED
    return code


def _of_system(error: OSError) -> str:
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}." if error.filename else f"{reason}."


def _forget_output() -> None:
    """Let Python's own flush at the end find nobody who could refuse."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        pass


class _ShowVersion(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: object,
        option_string: str | None = None,
    ) -> NoReturn:
        from importlib import metadata  # noqa: PLC0415  (nobody else needs it)

        print(f"penstock {metadata.version('penstock')}")
        parser.exit()


class _Terminated(BaseException):
    """SIGTERM, as an exception: places in groups are given up on the way out."""


class _Terminable:
    """Turns SIGTERM into `_Terminated` while a command runs in the main thread."""

    def __enter__(self) -> None:
        self._before = None
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._raise)

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)

    def _raise(self, number: int, frame: FrameType | None) -> None:
        raise _Terminated
