"""Where the lines of `KStream.print` go: standard output, or files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from penstock.engine.packaging.escaping import escape_surrogates
from penstock.errors import TopologyException
from penstock.processors.stateless import Print
from penstock.topology.nodes import ProcessorNode

if TYPE_CHECKING:
    from penstock.topology.topology import Topology


def write_to_stdout(lines: list[str]) -> None:
    """Print the lines, so that a pipe gets them at once."""
    text = "".join(f"{line}\n" for line in lines)
    try:
        sys.stdout.write(text)
    except UnicodeEncodeError as error:
        # The lines are committed; one that this terminal cannot show must not cost the others.
        sys.stdout.write(text.encode(error.encoding, "backslashreplace").decode(error.encoding))
    sys.stdout.flush()


class Printer:
    """Shows what committed batches printed. A file begins anew with each instance, as in Kafka."""

    def __init__(self, out: Callable[[list[str]], object] = write_to_stdout) -> None:
        self._out = out
        #: By their names as outcomes write them, which are not always those in the file system.
        self._files: dict[str, TextIO] = {}

    def open_files(self, topology: Topology) -> None:
        """Open the files of all steps that print to one, before anything is committed.

        A file that is open already goes on. One that a `processor_wrapper` hides is not seen here:
        it is opened for its first line.
        """
        for node in topology.nodes:
            if not isinstance(node, ProcessorNode) or not isinstance(node.operator, Print):
                continue
            file = node.operator.file
            if file is None:
                continue
            try:
                self._file(file)
            except (OSError, ValueError) as error:
                raise TopologyException(
                    f"The step '{node.name}' cannot print to the file '{file}': {error}. "
                    "Its folder must be there, and the file be one that this process may write."
                ) from error

    def show(self, printed: Iterable[tuple[str | None, str]]) -> None:
        """Lines of one batch: (file or None for standard output, line), in order."""
        out: list[str] = []
        written: dict[str, TextIO] = {}
        for file, line in printed:
            if file is None:
                out.append(line)
            else:
                written[file] = stream = self._file(file)
                stream.write(f"{line}\n")
        if out:
            self._out(out)
        for stream in written.values():
            stream.flush()

    def close(self) -> None:
        """Close the files."""
        for stream in self._files.values():
            stream.close()
        self._files.clear()

    def _file(self, name: str) -> TextIO:
        known = escape_surrogates(name)
        if known not in self._files:
            self._files[known] = Path(name).open(  # noqa: SIM115
                "w", encoding="utf-8", errors="backslashreplace"
            )
        return self._files[known]
