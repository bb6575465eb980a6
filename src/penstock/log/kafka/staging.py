"""Staged records, in files of this host.

Brokers cannot store records invisibly, so staged records are a file: an Arrow stream in a directory
that the processes of the host share, named by its token. The token ends with the checksum of the
file. Other hosts cannot read it; results of workers on other hosts are sent with their outcome
instead.
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
from penstock.log.errors import LogDamaged, LogFull, StagedRecordsGone
from penstock.log.kafka.encoding import CheckedColumns, check_columns
from penstock.log.types import StagedRecords

#: The most records of a file, so that it can be sent in steps.
_FILE_RECORDS = 16_384
_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")
_CHECKSUM_DIGITS = 8
_HOST = zlib.crc32(socket.gethostname().encode())


class StagingDirectory:
    """The staged records in one directory. Several processes may use it."""

    def __init__(self, path: Path) -> None:
        self._directory = path

    def stage(self, columns: CheckedColumns) -> list[StagedRecords]:
        """Write records to files."""
        return [
            self._write(columns.slice(begin, begin + _FILE_RECORDS))
            for begin in range(0, len(columns), _FILE_RECORDS)
        ]

    def _write(self, columns: CheckedColumns) -> StagedRecords:
        names, arrays = ["key", "value"], [
            pa.array(columns.keys, pa.binary()), pa.array(columns.values, pa.binary()),
        ]
        if columns.timestamps is not None:
            names.append("timestamp")
            arrays.append(pa.array(columns.timestamps, pa.int64()))
        if columns.headers is not None:
            names.append("headers")
            arrays.append(pa.array([list(pairs) for pairs in columns.headers], HEADER_TYPE))
        data = _encode(pa.Table.from_arrays(arrays, names=names))
        token = f"{uuid.uuid4().hex}{zlib.crc32(data):0{_CHECKSUM_DIGITS}x}"
        staged = StagedRecords(_HOST, token, len(columns))
        path = self._path(staged)
        try:
            # Only this user may read the records.
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            opened = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            with open(opened, "wb") as file:
                file.write(data)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise LogFull(f"Staged records cannot be written to '{path}': {error}.") from error
        return staged

    def check(self, staged: StagedRecords) -> None:
        """Raise `StagedRecordsGone` if the file does not exist."""
        if staged.id != _HOST or not staged.token.isalnum() or not self._path(staged).exists():
            raise StagedRecordsGone(
                f"The staged records {staged.token} do not exist. They were appended or dropped, "
                "they expired, or they were staged on another host. Nothing was written; stage "
                "the records again."
            )

    def read(self, staged: StagedRecords) -> Iterator[CheckedColumns]:
        """Yield the staged records in pieces."""
        self.check(staged)
        path = self._path(staged)
        data = path.read_bytes()
        if f"{zlib.crc32(data):0{_CHECKSUM_DIGITS}x}" != staged.token[-_CHECKSUM_DIGITS:]:
            raise LogDamaged(
                f"The staged records in '{path}' are damaged. Check the disk of this directory."
            )
        with pa.ipc.open_stream(data) as stream:
            for batch in stream:
                yield check_columns(batch)

    def drop(self, staged: Iterable[StagedRecords]) -> None:
        """Delete staged records. Files that do not exist are ignored."""
        for part in staged:
            self._path(part).unlink(missing_ok=True)

    def delete_unused(self, unused_ms: int) -> tuple[int, int]:
        """Delete files older than this. Returns how many, and their size in bytes."""
        count = size = 0
        oldest = time.time() - unused_ms / 1000
        for path in self._directory.glob("*.arrow"):
            try:
                found = path.stat()
                if found.st_mtime < oldest:
                    path.unlink()
                    count, size = count + 1, size + found.st_size
            except FileNotFoundError:
                continue
        return count, size

    def _path(self, staged: StagedRecords) -> Path:
        return self._directory / f"{staged.token}.arrow"


def _encode(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_LZ4) as writer:
        writer.write_table(table)
    return sink.getvalue()
