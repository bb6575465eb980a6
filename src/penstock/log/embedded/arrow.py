"""Records as Arrow bytes, and back.

A blob is one Arrow IPC record batch message, lz4 unless it is small, without its schema: the layout
says which of four it has. Timestamps and keys and values are always there; headers only if a record
has some; offsets only after compaction.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.log.arrow_types import HEADER_TYPE, READ_SCHEMA, TYPES
from penstock.log.errors import InvalidRecord, LogDamaged
from penstock.log.types import as_header_pairs, record_size
from penstock.record import RecordColumns

HEADERS = 1
OFFSETS = 2

#: No stored batch is larger than this, but for a single record; so no step of a reader is.
BATCH_RECORDS = 16_384
BATCH_BYTES = 4 * 1024 * 1024

_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")
_COUNTING = pa.array(range(BATCH_RECORDS), pa.int64())
_END_OF_STREAM_BYTES = 8
#: Below these, setting up the machinery costs more than it gains.
_PLAIN_BYTES = 8192
_FEW_RECORDS = 16


@functools.cache
def schema_of(layout: int) -> pa.Schema:
    """The columns that a blob of this layout holds."""
    names = ["timestamp", "key", "value"]
    if layout & HEADERS:
        names.append("headers")
    if layout & OFFSETS:
        names.append("offset")
    return pa.schema([(name, TYPES[name]) for name in names])


@functools.cache
def _schema_bytes(layout: int) -> int:
    """The size of the schema's message, which opens a stream."""
    return int(schema_of(layout).serialize().size)


class BatchInfo(NamedTuple):
    """What a batch's row says of its blob, and what a topic has to know before it takes it."""

    layout: int
    records: int
    #: As stored.
    bytes: int
    min_timestamp: int
    max_timestamp: int
    #: The size of the largest record.
    largest: int
    null_keys: bool
    #: The records came without timestamps: they get the time of the append.
    untimed: bool


class Chunk(NamedTuple):
    """A batch ready to be stored."""

    facts: BatchInfo
    data: bytes | pa.Buffer


def encode(batch: pa.RecordBatch, layout: int) -> pa.Buffer:
    """The message of a batch, without what a stream puts around it."""
    if batch.nbytes <= _PLAIN_BYTES:
        return batch.serialize()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema_of(layout), options=_LZ4) as writer:
        writer.write_batch(batch)
    data = sink.getvalue()
    begin = _schema_bytes(layout)
    return data.slice(begin, data.size - begin - _END_OF_STREAM_BYTES)


def decode(data: bytes, layout: int) -> pa.RecordBatch:
    """The batch that `encode` was given."""
    try:
        return pa.ipc.read_record_batch(pa.py_buffer(data), schema_of(layout))
    except (pa.ArrowException, OSError, EOFError) as error:
        raise LogDamaged(f"A batch of {len(data)} bytes cannot be read: {error}.") from error


def offsets_from(base: int, count: int) -> pa.Array:
    """Consecutive offsets as a column."""
    if count > BATCH_RECORDS:
        return pa.array(range(base, base + count), pa.int64())
    return pc.add(_COUNTING.slice(0, count), pa.scalar(base, pa.int64()))


def repeated(value: int, count: int) -> pa.Array:
    """One number as a column."""
    return pa.repeat(pa.scalar(value, pa.int64()), count)


def as_read(
    stored: pa.RecordBatch, layout: int, base: int, append_time: int | None
) -> pa.RecordBatch:
    """A stored batch with the columns that a reader gets."""
    count = stored.num_rows
    timestamps, key, value = stored.columns[:3]
    if append_time is not None:
        timestamps = repeated(append_time, count)
    headers = stored.column(3) if layout & HEADERS else pa.nulls(count, HEADER_TYPE)
    offsets = stored.columns[-1] if layout & OFFSETS else offsets_from(base, count)
    return pa.RecordBatch.from_arrays(
        [offsets, timestamps, key, value, headers], schema=READ_SCHEMA
    )


def concatenated(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Batches of one schema as one."""
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches(batches)


def stored_from(read: pa.RecordBatch, *, with_offsets: bool) -> Chunk:
    """A batch with a reader's columns, ready to be stored again."""
    offsets, timestamps, key, value, headers = read.columns
    columns, layout = [timestamps, key, value], 0
    if headers.null_count < len(headers):
        columns.append(headers)
        layout |= HEADERS
    if with_offsets:
        columns.append(offsets)
        layout |= OFFSETS
    return _chunk(pa.RecordBatch.from_arrays(columns, schema=schema_of(layout)), layout)


def record_sizes(key: pa.Array, value: pa.Array, headers: pa.Array | None) -> pa.Array:
    """The size of each record, as `record_size` counts it."""
    sizes = pc.add(_lengths(key), _lengths(value))
    if headers is None or headers.null_count == len(headers):
        return sizes
    flat = headers.flatten()
    names, contents = flat.flatten()
    of_headers = pc.add(_lengths(names), _lengths(contents))
    running = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(of_headers)])
    counts = pc.fill_null(pc.list_value_length(headers), 0).cast(pa.int64())
    ends = pc.cumulative_sum(counts)
    begins = pc.subtract(ends, counts)
    return pc.add(sizes, pc.subtract(running.take(ends), running.take(begins)))


def _lengths(column: pa.Array) -> pa.Array:
    lengths = pc.binary_length(column).cast(pa.int64())
    return pc.fill_null(lengths, 0) if lengths.null_count else lengths


def as_chunks(records: RecordColumns | pa.RecordBatch | pa.Table) -> list[Chunk]:
    """What a user appends, checked and cut into batches ready to be stored."""
    batches = _from_columns(records) if isinstance(records, RecordColumns) else _from_arrow(records)
    return [
        _chunk(piece, HEADERS if "headers" in piece.schema.names else 0, untimed=untimed)
        for batch, untimed in batches
        for piece in _cut(batch)
    ]


_Timed = tuple[pa.RecordBatch, bool]


def _from_columns(records: RecordColumns) -> list[_Timed]:
    count = len(records.keys)
    given = (records.keys, records.values, records.timestamps, records.headers)
    lengths = {len(column) for column in given if column is not None}
    if lengths != {count}:
        raise InvalidRecord(f"The columns differ in length: {sorted(lengths)}.")
    columns: list[Any] = [records.timestamps, records.keys, records.values]
    names = ["timestamp", "key", "value"]
    if records.headers is not None and any(records.headers):
        names.append("headers")
        columns.append([[*map(tuple, pairs)] or None for pairs in records.headers])
    return _typed(names, columns, count)


def _from_arrow(records: pa.RecordBatch | pa.Table) -> list[_Timed]:
    missing = {"key", "value"} - set(records.schema.names)
    if missing:
        raise InvalidRecord(
            f"No column {' and '.join(sorted(missing))}. Columns: {records.schema.names}."
        )
    names = ["timestamp", "key", "value"]
    if "headers" in records.schema.names:
        headers = records.column("headers")
        if headers.null_count < len(headers):
            names.append("headers")
    columns = [
        records.column(name) if name in records.schema.names else None for name in names
    ]
    return _typed(names, columns, records.num_rows)


def _typed(names: list[str], columns: list[Any], count: int) -> list[_Timed]:
    """Batches of the right types; without timestamps, zeros in their place."""
    untimed = columns[0] is None
    if untimed:
        columns[0] = repeated(0, count)
    try:
        arrays = [_column(name, column) for name, column in zip(names, columns, strict=True)]
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise InvalidRecord(f"Records that are not bytes: {error}.") from error
    if arrays[0].null_count:
        raise InvalidRecord("A timestamp is null. Leave the column out to get the log's time.")
    # More than two gigabytes do not fit into one array.
    schema = schema_of(HEADERS if "headers" in names else 0)
    if any(isinstance(array, pa.ChunkedArray) for array in arrays):
        batches = pa.table(arrays, schema=schema).to_batches()
    else:
        batches = [pa.RecordBatch.from_arrays(arrays, schema=schema)]
    return [(batch, untimed) for batch in batches]


def _column(name: str, column: Any) -> pa.Array | pa.ChunkedArray:
    wanted = TYPES[name]
    if not isinstance(column, pa.Array | pa.ChunkedArray):
        return pa.array(column, wanted)
    return column if column.type == wanted else column.cast(wanted)


def _cut(batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
    """Pieces within the limits of a batch, in order."""
    count = batch.num_rows
    if count > BATCH_RECORDS or (count > 1 and batch.nbytes > BATCH_BYTES):
        half = count // 2 if count <= 2 * BATCH_RECORDS else BATCH_RECORDS
        yield from _cut(batch.slice(0, half))
        rest = batch.slice(half)
        while rest.num_rows > 2 * BATCH_RECORDS:
            yield from _cut(rest.slice(0, BATCH_RECORDS))
            rest = rest.slice(BATCH_RECORDS)
        yield from _cut(rest)
    elif count:
        yield batch


def _chunk(batch: pa.RecordBatch, layout: int, *, untimed: bool = False) -> Chunk:
    if batch.num_rows <= _FEW_RECORDS:
        first, last, largest = _extremes_of_few(batch, layout)
    else:
        timestamps, key, value = batch.columns[:3]
        headers = batch.column(3) if layout & HEADERS else None
        times = pc.min_max(timestamps)
        first, last = times["min"].as_py(), times["max"].as_py()
        largest = pc.max(record_sizes(key, value, headers)).as_py()
    if first < 0:
        raise InvalidRecord(f"A record's timestamp must not be negative: {first}.")
    data = encode(batch, layout)
    null_keys = batch.column(1).null_count > 0
    return Chunk(
        BatchInfo(layout, batch.num_rows, data.size, first, last, largest, null_keys, untimed), data
    )


def _extremes_of_few(batch: pa.RecordBatch, layout: int) -> tuple[int, int, int]:
    """The first and last time and the largest size, without Arrow's kernels."""
    timestamps, keys, values = (column.to_pylist() for column in batch.columns[:3])
    if layout & HEADERS:
        headers = [as_header_pairs(pairs) for pairs in batch.column(3).to_pylist()]
        sizes = map(record_size, keys, values, headers)
    else:
        sizes = map(record_size, keys, values)
    return min(timestamps), max(timestamps), max(sizes)
