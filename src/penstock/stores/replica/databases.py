"""The LMDB databases of a replica.

The rows of a store are in one database for each bytes store that it opens. A store that manages its
own state has a database of changelog records instead: the row key is the key of the record, and the
value holds offset, timestamp, headers and value. These rows are the changelog as compaction would
leave it. The store is restored from them in the order of the offsets.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Any

from penstock.record import NO_HEADERS, PartitionColumns
from penstock.stores.bytes.store import BytesStore, InMemoryBytesStore
from penstock.stores.bytes.value_formats import read_headers, write_headers
from penstock.stores.replica.protocol import ReplicaStore

_OFFSET_AND_TIMESTAMP = Struct(">qq")


def bytes_store_names(store: ReplicaStore) -> list[str]:
    """The names of the bytes stores that a store opens."""
    names: list[str] = []

    def collect_name(name: str) -> BytesStore:
        names.append(name)
        return InMemoryBytesStore()

    if store.build is not None:
        store.build(collect_name).close()
    return names


def rows_database(name: str) -> str:
    """The database of a bytes store."""
    return f"rows/{name}"


def changelog_database(store: str) -> str:
    """The database with the changelog records of a store that manages its own state."""
    return f"raw/{store}"


def changelog_rows(records: PartitionColumns) -> Iterator[tuple[bytes, bytes | None]]:
    """Convert changelog records into row changes, in order."""
    headers = records.headers or [NO_HEADERS] * len(records)
    for key, value, offset, timestamp, pairs in zip(
        records.keys, records.values, records.offsets, records.timestamps, headers, strict=True
    ):
        if key is None:
            continue
        if value is None:
            yield key, None
        else:
            yield key, b"".join(
                (_OFFSET_AND_TIMESTAMP.pack(offset, timestamp), write_headers(pairs), value)
            )


def restore_from_rows(store: Any, rows: BytesStore) -> None:
    """Restore a store from the changelog records in a database."""
    records = sorted(
        (_OFFSET_AND_TIMESTAMP.unpack_from(row), key, row) for key, row in rows.scan(None, None)
    )
    for (_, timestamp), key, row in records:
        rest = row[_OFFSET_AND_TIMESTAMP.size :]
        headers, at = read_headers(rest)
        store.restore(key, rest[at:], timestamp, headers)
