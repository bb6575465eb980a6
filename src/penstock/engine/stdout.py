"""Standard output of the application's code."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable


def write_to_stdout(lines: list[str]) -> None:
    """Write lines to standard output and flush it, so that a pipe receives them at once."""
    text = "".join(f"{line}\n" for line in lines)
    try:
        sys.stdout.write(text)
    except UnicodeEncodeError as error:
        # The lines are committed. A character that the terminal cannot show must not lose them.
        sys.stdout.write(text.encode(error.encoding, "backslashreplace").decode(error.encoding))
    sys.stdout.flush()


class LineStream(io.TextIOBase):
    """A replacement for `sys.stdout` that passes on complete lines."""

    encoding = "utf-8"

    def __init__(self, write_lines: Callable[[list[str]], object]) -> None:
        self._write_lines = write_lines
        self._unfinished = ""

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: str) -> int:
        """Pass on the lines that the text completes."""
        *complete, self._unfinished = (self._unfinished + text).split("\n")
        if complete:
            self._write_lines(complete)
        return len(text)

    def end_line(self) -> None:
        """Pass on a line that has not ended."""
        if self._unfinished:
            self.write("\n")
