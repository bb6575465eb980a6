"""Rows of stores without a changelog, from the end of a batch to its commit and a little beyond.

Nothing in the log tells what such a store holds, so the host that ran a batch keeps its writes in
a file beside the replica. If the batch is committed, the plan of the next one names it (batch and
attempt), and the writes go into the replica; if not, nobody names it and it is removed. A host that
does not have the file, or whose replica is not at the batch before, starts with empty stores.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from penstock.stores.bytes.lmdb import LmdbRows
from penstock.stores.replica.run_files import Run, RunFiles


class StagedRows(msgspec.Struct):
    """What is to be done with one database: rows below the floor go, then the changes."""

    floor: bytes
    changes: list[tuple[bytes, bytes | None]]


class Staged(msgspec.Struct):
    """The writes of one run of a task."""

    #: The run that the task went on from.
    parent: Run
    #: Database -> what is to be done with it.
    databases: dict[str, StagedRows]


class CapturingRows(LmdbRows):
    """Rows of an unlogged store in a snapshot: what is written goes to be put aside."""

    __slots__ = ("captured",)

    def hold(self) -> CapturingRows:
        """Begin with nothing."""
        self.captured = StagedRows(b"", [])
        return self

    def write(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Remember changes."""
        self.captured.changes += changes

    def drop_below(self, key: bytes) -> None:
        """Remember the floor."""
        self.captured.floor = max(self.captured.floor, key)


def put_aside(directory: Path, run: Run, aside: Staged) -> None:
    """Write the file of a run."""
    _files(directory).write(run, msgspec.msgpack.encode(aside))


def take_aside(directory: Path, run: Run) -> Staged | None:
    """What a run put aside on this host; None if it did not, or it cannot be read."""
    try:
        return msgspec.msgpack.decode(_files(directory).read(run), type=Staged)
    except (OSError, msgspec.DecodeError):
        return None


def sweep_aside(directory: Path, run: Run) -> None:
    """Remove what runs up to and with this one put aside."""
    _files(directory).sweep(lambda batch: batch <= run[0])


def _files(directory: Path) -> RunFiles:
    return RunFiles(directory, "aside")
