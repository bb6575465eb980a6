"""Converts the records that a task wrote into Arrow batches, grouped by destination.

A result holds one tuple for each record, in the order of writing. They become one record batch in
which the records of each destination (a topic and partition, or a store) are adjacent, in that
order. Work per record is limited to filling columns, because there are many records.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.worker.origins import OriginColumns
from penstock.log.arrow_types import HEADER_TYPE
from penstock.native import core
from penstock.record import RecordColumns

#: The layout of a batch: the columns it has besides timestamp, key and value, as bits.
WITH_HEADERS = 1
WITH_RUNNING_MAXIMUM = 2
WITH_ORIGINS = 4

#: Rows are converted in chunks of this size, so that they are still in the CPU cache.
_CHUNK_ROWS = 4096
#: Up to this many rows, grouping in Python is faster than the setup of Arrow's functions.
_MAX_PYTHON_ROWS = 256
#: Destinations are sorted by one integer: the number of the name, shifted, plus the partition.
_PARTITION_BITS = 32

#: The first columns of a row: (topic, partition) or (store,).
Destination = tuple[Any, ...]


@functools.cache
def schema_of(layout: int) -> pa.Schema:
    """Return the schema of batches with a layout."""
    columns = [("timestamp", pa.int64()), ("key", pa.binary()), ("value", pa.binary())]
    if layout & WITH_HEADERS:
        columns.append(("headers", HEADER_TYPE))
    if layout & WITH_RUNNING_MAXIMUM:
        columns.append(("running_maximum", pa.int64()))
    if layout & WITH_ORIGINS:
        columns += [("source", pa.int32()), ("offset", pa.int64())]
    return pa.schema(columns)


def layout_of(batch: pa.RecordBatch) -> int:
    """Return the layout of a batch."""
    names = batch.schema.names
    return (
        WITH_HEADERS * ("headers" in names)
        | WITH_RUNNING_MAXIMUM * ("running_maximum" in names)
        | WITH_ORIGINS * ("source" in names)
    )


class RecordGroups(NamedTuple):
    """Records by destination: `counts[n]` consecutive records belong to `destinations[n]`."""

    records: pa.RecordBatch
    destinations: list[Destination]
    counts: list[int]

    def groups(self) -> list[tuple[Destination, pa.RecordBatch]]:
        """Return each destination with a slice of the records."""
        starts = accumulate(self.counts, initial=0)
        return [
            (destination, self.records.slice(start, count))
            for destination, start, count in zip(
                self.destinations, starts, self.counts, strict=False
            )
        ]


def group_records(
    rows: Sequence[tuple[Any, ...]], *, running_maximum: bool = False,
    origins: OriginColumns | None = None,
) -> RecordGroups:
    """Group rows that consist of a destination, key, value, timestamp and headers.

    A destination is a name, or a name and a number. `running_maximum` adds a column: the largest
    timestamp of a row and all rows before it, whatever their destinations. `origins` adds two.
    """
    if len(rows) <= _MAX_PYTHON_ROWS:
        return _group_in_python(rows, running_maximum, origins)
    chunks = [_Chunk(rows[at:at + _CHUNK_ROWS]) for at in range(0, len(rows), _CHUNK_ROWS)]
    layout = WITH_HEADERS if any(chunk.has_headers for chunk in chunks) else 0
    columns = [_concat([chunk.columns[n] for chunk in chunks]) for n in range(3)]
    if layout:
        columns.append(_concat([chunk.header_column() for chunk in chunks]))
    if running_maximum:
        layout |= WITH_RUNNING_MAXIMUM
        columns.append(pc.cumulative_max(columns[0]))
    if origins is not None:
        layout |= WITH_ORIGINS
        columns += [origins.numbers, origins.offsets]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema_of(layout))
    names = list(dict.fromkeys(name for chunk in chunks for name in chunk.names))
    numbers = set().union(*(chunk.numbers for chunk in chunks))
    if len(names) == 1 and len(numbers) == 1:
        return RecordGroups(batch, [_destination(rows[0])], [len(rows)])
    codes = {name: number << _PARTITION_BITS for number, name in enumerate(names)}
    sort_keys = _concat([chunk.sort_keys(codes) for chunk in chunks])
    # The sort is stable, so the order of writing is kept within a destination.
    order = pc.sort_indices(sort_keys)
    _, counts = pc.value_counts(sort_keys.take(order)).flatten()
    firsts = accumulate(counts.to_pylist(), initial=0)
    positions = order.take(pa.array(list(firsts)[:-1])).to_pylist()
    return RecordGroups(
        batch.take(order), [_destination(rows[at]) for at in positions], counts.to_pylist()
    )


def group_columns(rows: Sequence[tuple[Any, ...]]) -> dict[Destination, RecordColumns]:
    """Group rows like `group_records`, for a caller that passes the records to the log itself.

    Destinations are in the order in which they were first written to.
    """
    if core is not None:
        return {
            destination: RecordColumns(*columns)
            for destination, columns in core.group_columns(rows).items()
        }
    groups: dict[Destination, list[tuple[Any, ...]]] = {}
    for row in rows:
        destination = row[:-4]
        group = groups.get(destination)
        if group is None:
            groups[destination] = [row]
        else:
            group.append(row)
    return {destination: _columns(group) for destination, group in groups.items()}


def _columns(rows: list[tuple[Any, ...]]) -> RecordColumns:
    *_, keys, values, timestamps, headers = zip(*rows, strict=True)
    return RecordColumns(keys, values, timestamps, headers if any(headers) else None)


def _group_in_python(
    rows: Sequence[tuple[Any, ...]], running_maximum: bool, origins: OriginColumns | None
) -> RecordGroups:
    if not rows:
        layout = WITH_RUNNING_MAXIMUM if running_maximum else 0
        return RecordGroups(pa.RecordBatch.from_pylist([], schema_of(layout)), [], [])
    destinations = list(map(_destination, rows))
    # Names in the order in which they were first written to, as above.
    ranks = {name: rank for rank, name in enumerate(dict.fromkeys(row[0] for row in rows))}
    sort_keys = {each: (ranks[each[0]], *each[1:]) for each in destinations}
    order = sorted(range(len(rows)), key=lambda at: sort_keys[destinations[at]])
    chunk = _Chunk([rows[at] for at in order])
    columns, layout = list(chunk.columns), 0
    if chunk.has_headers:
        layout |= WITH_HEADERS
        columns.append(chunk.header_column())
    if running_maximum:
        layout |= WITH_RUNNING_MAXIMUM
        maxima = list(accumulate((row[-2] for row in rows), max))
        columns.append(pa.array([maxima[at] for at in order], pa.int64()))
    if origins is not None:
        layout |= WITH_ORIGINS
        taken = pa.array(order, pa.int64())
        columns += [origins.numbers.take(taken), origins.offsets.take(taken)]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema_of(layout))
    counted = Counter(destinations)
    distinct = sorted(counted, key=sort_keys.__getitem__)
    return RecordGroups(batch, distinct, [counted[each] for each in distinct])


def _destination(row: tuple[Any, ...]) -> Destination:
    return row[:-4]


class _Chunk:
    """Some rows as columns. The header column is built only if any row of the batch has headers."""

    __slots__ = ("_headers", "_names", "_numbers", "columns", "has_headers", "names", "numbers")

    def __init__(self, rows: Sequence[tuple[Any, ...]]) -> None:
        self._names, *number, keys, values, timestamps, self._headers = zip(*rows, strict=True)
        self._numbers: tuple[int, ...] | None = number[0] if number else None
        self.columns = (
            pa.array(timestamps, pa.int64()), pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
        )
        self.has_headers = any(self._headers)
        #: Distinct, in the order in which they were first written to.
        self.names = tuple(dict.fromkeys(self._names))
        self.numbers = {0} if self._numbers is None else set(self._numbers)

    def sort_keys(self, codes: dict[str, int]) -> pa.Array:
        """Return the destination of each row as one integer."""
        if len(self.names) == 1:
            (name,) = self.names
            names = pa.repeat(pa.scalar(codes[name], pa.int64()), len(self._names))
        else:
            names = pa.array(list(map(codes.__getitem__, self._names)), pa.int64())
        if self._numbers is None:
            return names
        return pc.add(names, pa.array(self._numbers, pa.int64()))

    def header_column(self) -> pa.Array:
        """Return the headers of each row, null for a row without headers."""
        if not self.has_headers:
            return pa.nulls(len(self._headers), HEADER_TYPE)
        return pa.array([[*map(tuple, each)] or None for each in self._headers], HEADER_TYPE)


def without_shuffle_columns(records: pa.RecordBatch) -> pa.RecordBatch:
    """Remove the columns that only the shuffle needs."""
    layout = layout_of(records)
    if not layout & (WITH_RUNNING_MAXIMUM | WITH_ORIGINS):
        return records
    schema = schema_of(layout & WITH_HEADERS)
    return pa.RecordBatch.from_arrays(records.columns[: len(schema)], schema=schema)


def _concat(arrays: list[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
