"""What a task wrote, as Arrow columns, grouped by where it goes.

A result holds one tuple a record, in the order of writing. Here they become one record batch in
which the records of each place (a topic and partition, or a store) lie together, in that order.
There are many, so nothing is done for a single record but to put it into columns.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.log.arrow_types import HEADER_TYPE

#: What a batch has besides timestamp, key and value; as bits, because they travel with it.
WITH_HEADERS = 1
WITH_RUNNING_MAXIMUM = 2

#: So many rows are turned into columns at once: what they point to is still in the cache then.
_STEP = 4096
#: Up to so many rows are grouped in Python.
_FEW = 256

#: The first columns of a row: (topic, partition) or (store,).
Label = tuple[Any, ...]


@functools.cache
def schema_of(layout: int) -> pa.Schema:
    """The columns of a batch with these extras."""
    columns = [("timestamp", pa.int64()), ("key", pa.binary()), ("value", pa.binary())]
    if layout & WITH_HEADERS:
        columns.append(("headers", HEADER_TYPE))
    if layout & WITH_RUNNING_MAXIMUM:
        columns.append(("running_maximum", pa.int64()))
    return pa.schema(columns)


def layout_of(batch: pa.RecordBatch) -> int:
    """The extras a batch has."""
    names = batch.schema.names
    return (
        WITH_HEADERS * ("headers" in names)
        | WITH_RUNNING_MAXIMUM * ("running_maximum" in names)
    )


class Grouped(NamedTuple):
    """Records by place. `counts[n]` records, one after the other, go to `labels[n]`."""

    records: pa.RecordBatch
    labels: list[Label]
    counts: list[int]

    def groups(self) -> list[tuple[Label, pa.RecordBatch]]:
        """Each place with its records; nothing is copied."""
        starts = accumulate(self.counts, initial=0)
        return [
            (label, self.records.slice(start, count))
            for label, start, count in zip(self.labels, starts, self.counts, strict=False)
        ]


def grouped(rows: Sequence[tuple[Any, ...]], *, running_maximum: bool = False) -> Grouped:
    """Group rows that end in key, value, timestamp and headers by all that stands before these.

    That is a name, or a name and a number. `running_maximum` adds a column: the largest timestamp
    among a row and those written before it, wherever they go.
    """
    if len(rows) <= _FEW:
        return _grouped_few(rows, running_maximum)
    steps = [_Step(rows[at:at + _STEP]) for at in range(0, len(rows), _STEP)]
    layout = WITH_HEADERS if any(step.has_headers for step in steps) else 0
    columns = [_joined([step.columns[n] for step in steps]) for n in range(3)]
    if layout:
        columns.append(_joined([step.header_column() for step in steps]))
    if running_maximum:
        layout |= WITH_RUNNING_MAXIMUM
        columns.append(pc.cumulative_max(columns[0]))
    batch = pa.RecordBatch.from_arrays(columns, schema=schema_of(layout))
    names = list(dict.fromkeys(name for step in steps for name in step.names))
    numbers = set().union(*(step.numbers for step in steps))
    if len(names) == 1 and len(numbers) == 1:
        return Grouped(batch, [_label(rows[0])], [len(rows)])
    codes = {name: number << _NUMBER_BITS for number, name in enumerate(names)}
    places = _joined([step.places(codes) for step in steps])
    # Sorting is stable, so the order of writing is kept within a place.
    order = pc.sort_indices(places)
    _, counts = pc.value_counts(places.take(order)).flatten()
    firsts = accumulate(counts.to_pylist(), initial=0)
    positions = order.take(pa.array(list(firsts)[:-1])).to_pylist()
    return Grouped(
        batch.take(order), [_label(rows[at]) for at in positions], counts.to_pylist()
    )


def _grouped_few(rows: Sequence[tuple[Any, ...]], running_maximum: bool) -> Grouped:
    """The same, sorted in Python: setting up Arrow's machinery would take longer."""
    if not rows:
        layout = WITH_RUNNING_MAXIMUM if running_maximum else 0
        return Grouped(pa.RecordBatch.from_pylist([], schema_of(layout)), [], [])
    labels = list(map(_label, rows))
    # Names in the order in which they were first written to, as above.
    ranks = {name: rank for rank, name in enumerate(dict.fromkeys(row[0] for row in rows))}
    place = {label: (ranks[label[0]], *label[1:]) for label in labels}
    order = sorted(range(len(rows)), key=lambda at: place[labels[at]])
    step = _Step([rows[at] for at in order])
    columns, layout = list(step.columns), 0
    if step.has_headers:
        layout |= WITH_HEADERS
        columns.append(step.header_column())
    if running_maximum:
        layout |= WITH_RUNNING_MAXIMUM
        maxima = list(accumulate((row[-2] for row in rows), max))
        columns.append(pa.array([maxima[at] for at in order], pa.int64()))
    batch = pa.RecordBatch.from_arrays(columns, schema=schema_of(layout))
    counted = Counter(labels)
    places = sorted(counted, key=place.__getitem__)
    return Grouped(batch, places, [counted[place] for place in places])


#: Places are sorted by one whole number: that of the name, and below it the partition.
_NUMBER_BITS = 32


def _label(row: tuple[Any, ...]) -> Label:
    return row[:-4]


class _Step:
    """Some rows in columns; the headers wait until it is known whether any row has some."""

    __slots__ = ("_headers", "_names", "_numbers", "columns", "has_headers", "names", "numbers")

    def __init__(self, rows: Sequence[tuple[Any, ...]]) -> None:
        self._names, *number, keys, values, timestamps, self._headers = zip(*rows, strict=True)
        self._numbers: tuple[int, ...] | None = number[0] if number else None
        self.columns = (
            pa.array(timestamps, pa.int64()), pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
        )
        self.has_headers = any(self._headers)
        # In the order in which they were first written.
        self.names = tuple(dict.fromkeys(self._names))
        self.numbers = {0} if self._numbers is None else set(self._numbers)

    def places(self, codes: dict[str, int]) -> pa.Array:
        """Where each row goes, as one number."""
        if len(self.names) == 1:
            (name,) = self.names
            names = pa.repeat(pa.scalar(codes[name], pa.int64()), len(self._names))
        else:
            names = pa.array(list(map(codes.__getitem__, self._names)), pa.int64())
        if self._numbers is None:
            return names
        return pc.add(names, pa.array(self._numbers, pa.int64()))

    def header_column(self) -> pa.Array:
        """Null for a record without headers."""
        if not self.has_headers:
            return pa.nulls(len(self._headers), HEADER_TYPE)
        return pa.array([[*map(tuple, each)] or None for each in self._headers], HEADER_TYPE)


def without_running_maximum(records: pa.RecordBatch) -> pa.RecordBatch:
    """What goes to the log."""
    layout = layout_of(records)
    if not layout & WITH_RUNNING_MAXIMUM:
        return records
    return pa.RecordBatch.from_arrays(
        records.columns[:-1], schema=schema_of(layout & ~WITH_RUNNING_MAXIMUM)
    )


def _joined(arrays: list[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
