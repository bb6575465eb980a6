"""Standard output (results) and standard error (everything else) of a command.

Rich draws the live displays on standard error. It is imported when a display starts, so commands
without one start quickly. Tables are plain text: docs/decisions/2026-11-17-rich.md.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, TextIO

import msgspec

from penstock.cli.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

#: Characters that control a terminal, and surrogates that stand for bytes that are not UTF-8.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_CONTROL_IN_CELL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")

Cell = str | int | None
Advance = Callable[[int], None]


def escape_control_characters(text: str, pattern: re.Pattern[str] = _CONTROL) -> str:
    r"""Replace control characters by escapes such as `\x1b`."""
    # The low byte of a surrogate is the byte that was not UTF-8.
    return pattern.sub(lambda match: f"\\x{ord(match[0]) & 0xFF:02x}", text)


class Terminal:
    """The streams of a command. Text is written as UTF-8 in every locale."""

    def __init__(self, out: BinaryIO, err: TextIO, stdin: BinaryIO) -> None:
        self.out = out
        self.err = err
        self.stdin = stdin
        self.out_is_terminal = _is_terminal(out)
        self.err_is_terminal = _is_terminal(err)
        self.stdin_is_terminal = _is_terminal(stdin)
        #: Whether standard error is a terminal that can erase a line.
        self.shows_live_displays = self.err_is_terminal and os.environ.get("TERM") not in {
            "dumb", "unknown",
        }
        #: The console of the live display, while there is one.
        self._console: Console | None = None

    @classmethod
    def from_process(cls) -> Terminal:
        """Return the standard streams of this process."""
        out = sys.stdout.buffer
        if isinstance(out, io.RawIOBase):
            # PYTHONUNBUFFERED is set. A raw write may write only a part of the data, and `consume`
            # must know which records were written.
            out = io.BufferedWriter(io.FileIO(out.fileno(), "wb", closefd=False))
        return cls(out, sys.stderr, sys.stdin.buffer)

    # Standard output

    def write_line(self, text: str = "") -> None:
        """Write one line of text."""
        if self.out_is_terminal:
            text = escape_control_characters(text)
        self.out.write(text.encode("utf-8", "surrogateescape") + b"\n")

    def write_json(self, row: object) -> None:
        """Write one JSON object on a line."""
        self.out.write(msgspec.json.encode(row) + b"\n")

    def write_table(self, titles: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """Write aligned columns. Numbers are right-aligned, None is a dash."""
        texts = [[_cell_text(cell) for cell in row] for row in rows]
        is_number = [
            any(isinstance(row[n], int) for row in rows)
            and all(isinstance(row[n], int | None) for row in rows)
            for n in range(len(titles))
        ]
        widths = [max(map(len, column)) for column in zip(titles, *texts, strict=True)]
        for row in (titles, *texts):
            cells = (
                text.rjust(width) if right else text.ljust(width)
                for text, width, right in zip(row, widths, is_number, strict=True)
            )
            self.write_line("  ".join(cells).rstrip())

    def write_properties(self, pairs: Mapping[str, Cell]) -> None:
        """Write a name and a value on each line."""
        width = max(map(len, pairs), default=0) + 1
        for name, value in pairs.items():
            self.write_line(f"{name + ':':{width}} {_cell_text(value)}")

    def flush(self) -> None:
        """Flush standard output; raises if the receiver does not accept the data."""
        self.out.flush()

    # Standard error

    def note(self, text: str) -> None:
        """Write a message after the results so far, above the live display."""
        self.flush()
        text = escape_control_characters(text)
        if self._console is None:
            self.err.write(f"{text}\n")
            self.err.flush()
        else:
            self._console.print(text, markup=False, highlight=False, emoji=False, soft_wrap=True)

    def confirm(self, question: str) -> bool:
        """Ask the user. Raise `UsageError` if there is no terminal to ask on."""
        if not (self.stdin_is_terminal and self.err_is_terminal):
            raise UsageError(
                f"{question} There is no terminal for the question. Nothing was changed. Use --yes "
                "to carry out the command without a confirmation."
            )
        self.flush()  # The user reads the results before the question.
        self.err.write(f"{escape_control_characters(question)} [y/N] ")
        self.err.flush()
        answer = self.stdin.readline().decode("utf-8", "replace")
        return answer.strip().lower() in {"y", "yes"}

    @contextmanager
    def live_console(self) -> Iterator[Console]:
        """Return the console of a live display on standard error. `note` writes above it."""
        from rich.console import Console  # noqa: PLC0415

        self._console = Console(file=self.err)
        try:
            yield self._console
        finally:
            self._console = None

    @contextmanager
    def progress(self, label: str, total: int, *, enabled: bool = True) -> Iterator[Advance]:
        """Show a progress bar during the block if standard error is a terminal."""
        if not (enabled and self.shows_live_displays):
            yield lambda _: None
            return
        from rich.progress import (  # noqa: PLC0415
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeRemainingColumn,
        )

        columns = (
            TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(),
            TimeRemainingColumn(),
        )
        with (
            self.live_console() as console,
            Progress(
                *columns, console=console, transient=True, redirect_stdout=False,
                redirect_stderr=False,
            ) as bar,
        ):
            yield partial(bar.advance, bar.add_task(label, total=max(total, 1)))


def _cell_text(value: Cell) -> str:
    if value is None:
        return "-"
    # Numbers have no thousands separators: users copy offsets into the next command.
    return str(value) if isinstance(value, int) else escape_control_characters(
        value, _CONTROL_IN_CELL
    )


def _is_terminal(stream: BinaryIO | TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # The stream is closed.
        return False
