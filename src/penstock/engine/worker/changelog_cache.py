"""What a run of a task wrote to its changelogs, kept on this host until the next run.

A replica catches up with what the last batch has changed. On a remote log it would read back, over
the network, what this host has just sent there. So a run leaves its changes in a file beside the
replica, and if that very run is the one that was committed, they are taken from there. The log is
the truth: a file that is missing, of another run, or from before a crash of the host is not used.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa

from penstock.log.types import as_header_pairs
from penstock.record import Headers, PartitionColumns
from penstock.stores.replica.files import RunFiles, RunId
from penstock.stores.replica.generations import boot_id

log = logging.getLogger(__name__)


class _Changes(msgspec.Struct):
    """What is in a file."""

    #: Of the replica: which log, which life of the application, which layout of stores.
    identity: str
    boot: str
    #: Store -> where its changelog ended before the run, and the records as Arrow bytes.
    stores: dict[str, tuple[int, bytes]]


@dataclass(frozen=True, slots=True)
class KeptBatch:
    """The changes of one store; satisfies `ChangelogBatch`.

    Only the holder of the lease writes to a changelog, so what it holds between its end before the
    run and its end after the commit are the records of the run, and marks of the log.
    """

    start: int
    next_offset: int
    records: pa.RecordBatch
    tombstones_removed_to: int = 0

    def __len__(self) -> int:
        return int(self.records.num_rows)

    def columns(self) -> PartitionColumns:
        """The records."""
        records = self.records
        headers: list[Headers] | None = None
        if "headers" in records.schema.names:
            headers = [as_header_pairs(pairs) for pairs in records.column("headers").to_pylist()]
        return PartitionColumns(
            topic=None, partition=0, offsets=range(self.start, self.start + records.num_rows),
            timestamps=records.column("timestamp").to_pylist(),
            keys=records.column("key").to_pylist(), values=records.column("value").to_pylist(),
            headers=headers,
        )


class ChangelogCache:
    """The files of one task on this host."""

    def __init__(self, directory: Path, identity: str) -> None:
        self._files = RunFiles(directory, "changes")
        self._identity = identity

    def keep(
        self, run: RunId, positions: Mapping[str, int],
        changes: Iterable[tuple[str, pa.RecordBatch]],
    ) -> None:
        """Leave what a run has changed. `positions`: where the changelogs ended before it."""
        stores = {
            store: (positions.get(store, 0), _encoded(records)) for store, records in changes
        }
        try:
            # Of this batch another attempt may have left some. Higher numbers are of an earlier
            # life of the application.
            self._files.delete_batches(lambda batch: batch != run[0])
            if stores:
                kept = _Changes(self._identity, boot_id(), stores)
                self._files.write(run, msgspec.msgpack.encode(kept))
            else:
                # A file of that name would be another's.
                self._files.delete(run)
        except OSError as error:
            # They will have to be read from the log.
            log.warning("The changes of a batch are not kept on this host: %s", error)

    def of(self, run: RunId) -> dict[str, tuple[int, pa.RecordBatch]]:
        """Store -> where its changelog ended before the run, and what the run wrote there."""
        try:
            kept = msgspec.msgpack.decode(self._files.read(run), type=_Changes)
            if (kept.identity, kept.boot) != (self._identity, boot_id()):
                return {}
            return {
                store: (start, _decoded(data)) for store, (start, data) in kept.stores.items()
            }
        except (OSError, msgspec.DecodeError, pa.ArrowException):
            return {}


def _encoded(records: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, records.schema) as writer:
        writer.write_batch(records)
    return bytes(sink.getvalue())


def _decoded(data: bytes) -> pa.RecordBatch:
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_next_batch()
