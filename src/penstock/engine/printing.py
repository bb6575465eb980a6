"""Where the lines of `KStream.print` go: standard output, or files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TextIO


def to_standard_output(lines: list[str]) -> None:
    """Print the lines, so that a pipe gets them at once."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


class Printer:
    """Shows what committed batches printed. A file begins anew with each instance, as in Kafka."""

    def __init__(self, out: Callable[[list[str]], object] = to_standard_output) -> None:
        self._out = out
        self._files: dict[str, TextIO] = {}

    def show(self, printed: Iterable[tuple[str | None, str]]) -> None:
        """Lines of one batch: (file or None for standard output, line), in order."""
        out: list[str] = []
        written: set[str] = set()
        for file, line in printed:
            if file is None:
                out.append(line)
            else:
                self._file(file).write(f"{line}\n")
                written.add(file)
        if out:
            self._out(out)
        for file in written:
            self._files[file].flush()

    def close(self) -> None:
        """Close the files."""
        for stream in self._files.values():
            stream.close()
        self._files.clear()

    def _file(self, name: str) -> TextIO:
        if name not in self._files:
            self._files[name] = Path(name).open("w", encoding="utf-8")  # noqa: SIM115
        return self._files[name]
