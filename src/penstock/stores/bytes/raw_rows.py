"""Changelog records as rows: for stores that keep their content in a way of their own.

The row of a record has the record's key; its value is offset, timestamp, headers and value. So the
rows are the changelog as compaction would leave it, and a store is filled from them in the order
of the offsets, as it would be from the changelog.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Any

from penstock.record import NO_HEADERS, Rows
from penstock.stores.bytes.store import BytesStore
from penstock.stores.bytes.value_formats import read_headers, write_headers

_PLACE = Struct(">qq")


def raw_changes(records: Rows) -> Iterator[tuple[bytes, bytes | None]]:
    """The changes of rows that records mean, in order."""
    headers = records.headers or [NO_HEADERS] * len(records)
    for key, value, offset, timestamp, pairs in zip(
        records.keys, records.values, records.offsets, records.timestamps, headers, strict=True
    ):
        if key is None:
            continue
        if value is None:
            yield key, None
        else:
            yield key, b"".join((_PLACE.pack(offset, timestamp), write_headers(pairs), value))


def fill(store: Any, rows: BytesStore) -> None:
    """Give a store the records that the rows stand for."""
    found = sorted((_PLACE.unpack_from(row), key, row) for key, row in rows.scan(None, None))
    for (_, timestamp), key, row in found:
        rest = row[16:]
        headers, at = read_headers(rest)
        store.restore(key, rest[at:], timestamp, headers)
