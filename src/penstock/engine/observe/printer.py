"""The output of `KStream.print`: standard output, or files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from penstock.engine.packaging.escaping import escape_surrogates
from penstock.engine.stdout import write_to_stdout
from penstock.errors import TopologyException
from penstock.processors.stateless import Print
from penstock.topology.nodes import ProcessorNode

if TYPE_CHECKING:
    from penstock.topology.topology import Topology


class Printer:
    """Writes the printed lines of committed batches. An instance truncates its files, as Kafka
    Streams does."""

    def __init__(self, out: Callable[[list[str]], object] = write_to_stdout) -> None:
        self._out = out
        #: Name as in outcomes -> open file. The name in the file system may differ from it.
        self._files: dict[str, TextIO] = {}

    def open_files(self, topology: Topology) -> None:
        """Open the files of all print operators, before anything is committed.

        Files that are open stay open. A print operator that a `processor_wrapper` hides is not
        found here; its file is opened with its first line.
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
                    f"Processor '{node.name}' cannot print to the file '{file}': {error}. "
                    "The folder must exist, and this process must be able to write the file."
                ) from error

    def write(self, printed: Iterable[tuple[str | None, str]]) -> None:
        """Write the lines of a batch: (file, or None for standard output, line), in order."""
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
        encoded = escape_surrogates(name)
        if encoded not in self._files:
            self._files[encoded] = Path(name).open(  # noqa: SIM115
                "w", encoding="utf-8", errors="backslashreplace"
            )
        return self._files[encoded]
