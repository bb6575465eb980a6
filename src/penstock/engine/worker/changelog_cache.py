"""Keeps the changelog records of a task's last run on this host.

Before a batch a replica catches up with the changes of the last one. On a remote log it would read
back over the network what this host has just sent. Therefore a run saves its changes in a file
beside the replica. If exactly this run was committed, the replica reads them from the file.

The log stays the source of truth. A file that is missing, belongs to another run, or was written
before a crash of the host is ignored.
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


class _CachedRun(msgspec.Struct):
    """The content of a file."""

    #: Of the replica: log, incarnation of the application, layout of the stores.
    identity: str
    boot: str
    #: Store -> the end of its changelog before the run, and the records as Arrow bytes.
    stores: dict[str, tuple[int, bytes]]


@dataclass(frozen=True, slots=True)
class CachedBatch:
    """The changes of one store; satisfies `ChangelogBatch`.

    Only the holder of the lease writes to a changelog. Therefore the changelog holds nothing
    between its end before the run and its end after the commit except the records of the run and
    transaction markers.
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

    def save(
        self, run: RunId, positions: Mapping[str, int],
        changes: Iterable[tuple[str, pa.RecordBatch]],
    ) -> None:
        """Save the changes of a run. `positions` are the ends of the changelogs before it."""
        stores = {
            store: (positions.get(store, 0), _encode(records)) for store, records in changes
        }
        try:
            # Other attempts of this batch keep their files: one of them may be committed. Higher
            # batch numbers belong to an earlier incarnation of the application.
            self._files.delete_batches(lambda batch: batch != run[0])
            if stores:
                cached = _CachedRun(self._identity, boot_id(), stores)
                self._files.write(run, msgspec.msgpack.encode(cached))
            else:
                # An existing file of this name belongs to another run.
                self._files.delete(run)
        except OSError as error:
            # The next batch reads the changes from the log.
            log.warning("Cannot cache the changelog records of a batch on this host: %s", error)

    def load(self, run: RunId) -> dict[str, tuple[int, pa.RecordBatch]]:
        """Return for each store the end of its changelog before the run, and the changes.

        The result is empty if nothing valid is cached.
        """
        try:
            cached = msgspec.msgpack.decode(self._files.read(run), type=_CachedRun)
            if (cached.identity, cached.boot) != (self._identity, boot_id()):
                return {}
            return {
                store: (start, _decode(data)) for store, (start, data) in cached.stores.items()
            }
        except (OSError, msgspec.DecodeError, pa.ArrowException):
            return {}


def _encode(records: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, records.schema) as writer:
        writer.write_batch(records)
    return bytes(sink.getvalue())


def _decode(data: bytes) -> pa.RecordBatch:
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_next_batch()
