"""Lines of the user's program, for errors that are found after the step was added."""

from __future__ import annotations

import os
import sys

from penstock.errors import TopologyException

#: The directory of penstock, with a trailing separator.
_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")


def user_line() -> str:
    """Return the line outside of penstock that led to this call, as "file, line N"."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}, line {frame.f_lineno}"


def file_of_line(line: str) -> str:
    """Return the file of a line that `user_line` returned."""
    return line.rpartition(", line ")[0]


def add_location(error: TopologyException, step: str, line: str | None) -> None:
    """Say where the step of an error was added; the innermost step wins."""
    if line is not None and error.location is None:
        error.location = line
        error.add_note(f"{step} was added in {line}.")
