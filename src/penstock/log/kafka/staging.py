"""Records put aside in files of this host.

A broker has no place where records can wait out of sight, so a blob is a file: an Arrow stream in
a folder that the processes of the host share, named by the blob's token. A blob that was made on
another host is gone here: results of workers on other hosts travel with their answer instead.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from penstock.log.arrow_types import HEADER_TYPE
from penstock.log.errors import LogFull, StagedRecordsGone
from penstock.log.kafka.encoding import CheckedColumns, check_columns
from penstock.log.types import StagedRecords

#: A blob is not larger than this, but for a single record, so that it can be sent in steps.
_BLOB_RECORDS = 16_384
_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")
_HOST = zlib.crc32(socket.gethostname().encode())


class Blobs:
    """The blobs in one folder. May be used by many processes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, rows: CheckedColumns) -> list[StagedRecords]:
        """Put records aside, in pieces."""
        return [
            self._put(_slice(rows, begin, begin + _BLOB_RECORDS))
            for begin in range(0, len(rows), _BLOB_RECORDS)
        ]

    def _put(self, rows: CheckedColumns) -> StagedRecords:
        blob = StagedRecords(_HOST, uuid.uuid4().hex, len(rows))
        names, columns = ["key", "value"], [
            pa.array(rows.keys, pa.binary()), pa.array(rows.values, pa.binary()),
        ]
        if rows.timestamps is not None:
            names.append("timestamp")
            columns.append(pa.array(rows.timestamps, pa.int64()))
        if rows.headers is not None:
            names.append("headers")
            columns.append(pa.array([list(pairs) for pairs in rows.headers], HEADER_TYPE))
        table = pa.Table.from_arrays(columns, names=names)
        path = self._path(blob)
        try:
            # The folder is this user's own: records may be anybody's secrets.
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            opened = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            with (
                open(opened, "wb") as file,
                pa.ipc.new_stream(file, table.schema, options=_LZ4) as writer,
            ):
                writer.write_table(table)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise LogFull(f"A blob cannot be written to '{path}': {error}.") from error
        return blob

    def check(self, blob: StagedRecords) -> None:
        """Raise `StagedRecordsGone` if it is not there."""
        if blob.id != _HOST or not blob.token.isalnum() or not self._path(blob).exists():
            raise StagedRecordsGone(
                f"Blob {blob.token} is not there: it was used, dropped, swept because nobody used "
                "it for too long, or made on another host. Nothing was written; make it again."
            )

    def rows(self, blob: StagedRecords) -> Iterator[CheckedColumns]:
        """What was put aside, a piece at a time."""
        self.check(blob)
        with open(self._path(blob), "rb") as file, pa.ipc.open_stream(file) as stream:
            for batch in stream:
                yield check_columns(batch)

    def drop(self, blobs: Iterable[StagedRecords]) -> None:
        """Remove them; what is gone already is gone."""
        for blob in blobs:
            self._path(blob).unlink(missing_ok=True)

    def sweep(self, unused_ms: int) -> tuple[int, int]:
        """Remove what nobody used for so long; answers how many, and their bytes."""
        count = size = 0
        oldest = time.time() - unused_ms / 1000
        for path in self._folder.glob("*.arrow"):
            try:
                found = path.stat()
                if found.st_mtime < oldest:
                    path.unlink()
                    count, size = count + 1, size + found.st_size
            except FileNotFoundError:
                continue
        return count, size

    def _path(self, blob: StagedRecords) -> Path:
        return self._folder / f"{blob.token}.arrow"


def _slice(rows: CheckedColumns, begin: int, end: int) -> CheckedColumns:
    if begin == 0 and end >= len(rows):
        return rows
    return CheckedColumns(
        rows.keys[begin:end], rows.values[begin:end],
        None if rows.timestamps is None else rows.timestamps[begin:end],
        headers=None if rows.headers is None else rows.headers[begin:end],
        size=rows.size, longest=rows.longest,
    )
