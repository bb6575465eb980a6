"""What goes to standard output (results) and standard error (all else)."""

from __future__ import annotations

import io
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import BinaryIO, TextIO

import msgspec

#: What a terminal would obey rather than show, and bytes that are no UTF-8.
_UNSHOWABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_UNSHOWABLE_CELL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")

Cell = str | int | None


def shown(text: str, unshowable: re.Pattern[str] = _UNSHOWABLE) -> str:
    r"""The text with `\x1b` and the like written out."""
    return unshowable.sub(_written_out, text)


def _written_out(found: re.Match[str]) -> str:
    # A byte that was no UTF-8 was decoded to a surrogate that ends in it.
    return f"\\x{ord(found[0]) & 0xFF:02x}"


class Terminal:
    """The two streams of a command. Texts go out as UTF-8, whatever the locale is."""

    def __init__(self, out: BinaryIO, err: TextIO, stdin: BinaryIO) -> None:
        self.out = out
        self.err = err
        self.stdin = stdin
        self.out_is_terminal = _is_terminal(out)
        self.err_is_terminal = _is_terminal(err)
        self.stdin_is_terminal = _is_terminal(stdin)

    @classmethod
    def of_process(cls) -> Terminal:
        """The streams that the process was started with."""
        out = sys.stdout.buffer
        if isinstance(out, io.RawIOBase):
            # Python was told not to buffer. A bare write may write a part only, and what was
            # handed over must be known from what was not.
            out = io.BufferedWriter(io.FileIO(out.fileno(), "wb", closefd=False))
        return cls(out, sys.stderr, sys.stdin.buffer)

    # Results

    def line(self, text: str = "") -> None:
        """One line of text."""
        if self.out_is_terminal:
            text = shown(text)
        self.out.write(text.encode("utf-8", "surrogateescape") + b"\n")

    def json(self, row: object) -> None:
        """One JSON object on a line of its own."""
        self.out.write(msgspec.json.encode(row) + b"\n")

    def table(self, titles: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """Columns of equal width; numbers are to the right, what is not there is a dash."""
        texts = [[_cell(cell) for cell in row] for row in rows]
        # A title stands over its numbers.
        right = [
            any(isinstance(row[n], int) for row in rows)
            and all(isinstance(row[n], int | None) for row in rows)
            for n in range(len(titles))
        ]
        widths = [max(map(len, column)) for column in zip(titles, *texts, strict=True)]
        for row in (titles, *texts):
            cells = (
                text.rjust(width) if to_the_right else text.ljust(width)
                for text, width, to_the_right in zip(row, widths, right, strict=True)
            )
            self.line("  ".join(cells).rstrip())

    def properties(self, pairs: Mapping[str, Cell]) -> None:
        """A name and a value on each line."""
        width = max(map(len, pairs), default=0) + 1
        for name, value in pairs.items():
            self.line(f"{name + ':':{width}} {_cell(value)}")

    def flush(self) -> None:
        """Hand over what was written; what the receiver refuses is raised here."""
        self.out.flush()

    # All else

    def note(self, text: str) -> None:
        """A line for people, after the results so far: both may go to the same place."""
        self.flush()
        self.err.write(shown(text) + "\n")
        self.err.flush()

    def confirmed(self, question: str) -> bool:
        """The answer of somebody at the terminal; yes if there is nobody to ask."""
        if not (self.stdin_is_terminal and self.err_is_terminal):
            return True
        self.flush()  # What is asked about is seen first.
        self.err.write(f"{shown(question)} [y/N] ")
        self.err.flush()
        answer = self.stdin.readline().decode("utf-8", "replace")
        return answer.strip().lower() in {"y", "yes"}

    @contextmanager
    def progress(self, label: str, total: int, *, enabled: bool = True) -> Iterator[Progress]:
        """A bar while the block runs; nothing unless standard error is a terminal."""
        bar = Progress(self.err if enabled and self.err_is_terminal else None, label, total)
        try:
            yield bar
        finally:
            bar.clear()


class Progress:
    """A bar on a line of its own, drawn at most ten times a second."""

    WIDTH = 30

    def __init__(self, stream: TextIO | None, label: str, total: int) -> None:
        self._stream = stream
        self._label = label
        self._total = max(total, 1)
        self._done = 0
        self._drawn_at = time.monotonic()
        self._is_drawn = False

    def advance(self, steps: int) -> None:
        """So much more is done."""
        self._done += steps
        if self._stream is not None and time.monotonic() - self._drawn_at >= 0.1:
            self._draw(self._stream)

    def _draw(self, stream: TextIO) -> None:
        share = min(self._done / self._total, 1.0)
        filled = int(share * self.WIDTH)
        bar = "#" * filled + "-" * (self.WIDTH - filled)
        stream.write(f"\r{self._label} [{bar}] {share:4.0%} ")
        stream.flush()
        self._drawn_at = time.monotonic()
        self._is_drawn = True

    def clear(self) -> None:
        """Leave the line as if nothing had been there."""
        if self._stream is not None and self._is_drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._is_drawn = False


def _cell(value: Cell) -> str:
    if value is None:
        return "-"
    # Numbers have no commas: offsets are copied into the next command.
    return str(value) if isinstance(value, int) else shown(value, _UNSHOWABLE_CELL)


def _is_terminal(stream: BinaryIO | TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # It is closed.
        return False
