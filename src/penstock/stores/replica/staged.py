"""Staged writes: the writes of a batch to stores without a changelog.

The log does not hold the rows of these stores. The host that runs a batch therefore keeps its
writes in a file beside the replica. If the batch is committed, the plan of the next batch names its
run (batch and attempt), and the writes are applied to the replica. Otherwise no plan names the run,
and the file is deleted. A host that does not have the file, or whose replica is not at the run
before, starts with empty stores.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from penstock.stores.bytes.lmdb.rows import LmdbBytesStore
from penstock.stores.replica.files import RunFiles, RunId


class StagedChanges(msgspec.Struct):
    """The changes to one database: delete the rows below `floor`, then apply `changes`."""

    floor: bytes
    changes: list[tuple[bytes, bytes | None]]


class StagedWrites(msgspec.Struct):
    """The writes of one run of a task."""

    #: The run whose rows the task started from.
    parent: RunId
    #: Database -> its changes.
    databases: dict[str, StagedChanges]


class StagingBytesStore(LmdbBytesStore):
    """The rows of an unlogged store in a snapshot. Collects writes instead of applying them."""

    __slots__ = ("staged",)

    def start(self) -> StagingBytesStore:
        """Start to collect writes."""
        self.staged = StagedChanges(b"", [])
        return self

    def write(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Collect changes."""
        self.staged.changes += changes

    def drop_below(self, key: bytes) -> None:
        """Collect the floor."""
        self.staged.floor = max(self.staged.floor, key)


def write_staged(directory: Path, run: RunId, writes: StagedWrites) -> None:
    """Write the file of a run."""
    _files(directory).write(run, msgspec.msgpack.encode(writes))


def read_staged(directory: Path, run: RunId) -> StagedWrites | None:
    """Read the file of a run; None if this host does not have it or cannot read it."""
    try:
        return msgspec.msgpack.decode(_files(directory).read(run), type=StagedWrites)
    except (OSError, msgspec.DecodeError):
        return None


def delete_staged(directory: Path, run: RunId) -> None:
    """Delete the files of all runs up to and including this one."""
    _files(directory).delete_batches(lambda batch: batch <= run[0])


def _files(directory: Path) -> RunFiles:
    return RunFiles(directory, "aside")
