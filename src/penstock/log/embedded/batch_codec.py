"""Encodes records as Arrow bytes, and decodes them.

A blob is one Arrow IPC record batch message without its schema, compressed with lz4 unless it is
small. The *layout* of a blob names its columns: timestamp, key and value always, headers only if a
record has some, offsets only after compaction.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.log.arrow_types import HEADER_TYPE, READ_SCHEMA, TYPES
from penstock.log.embedded.checksums import data_checksum
from penstock.log.errors import InvalidRecord
from penstock.log.types import as_header_pairs, record_size
from penstock.record import RecordColumns

#: Bits of the layout.
HEADERS = 1
OFFSETS = 2

#: The limits of a stored batch, and so of a reader's step. A single record may be larger.
BATCH_RECORDS = 16_384
BATCH_BYTES = 4 * 1024 * 1024

#: A batch without records, as it is read.
EMPTY_BATCH = pa.RecordBatch.from_arrays(
    [pa.array([], kind) for kind in READ_SCHEMA.types], schema=READ_SCHEMA
)
_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")
_COUNTING = pa.array(range(BATCH_RECORDS), pa.int64())
_END_OF_STREAM_BYTES = 8
#: Below these sizes, compression and Arrow's kernels cost more than they save.
_PLAIN_BYTES = 8192
_FEW_RECORDS = 16


@functools.cache
def _schema(layout: int) -> pa.Schema:
    names = ["timestamp", "key", "value"]
    if layout & HEADERS:
        names.append("headers")
    if layout & OFFSETS:
        names.append("offset")
    return pa.schema([(name, TYPES[name]) for name in names])


@functools.cache
def _schema_bytes(layout: int) -> int:
    """Return the size of the schema message at the start of a stream."""
    return int(_schema(layout).serialize().size)


class BatchInfo(NamedTuple):
    """The properties of a batch for its row, and for the checks of a topic.

    Staged records store it as a JSON list, so the order of the fields is part of the file format.
    """

    layout: int
    records: int
    #: The size of the blob.
    bytes: int
    min_timestamp: int
    max_timestamp: int
    #: The size of the largest record.
    largest: int
    null_keys: bool
    #: The records have no timestamps; the append assigns them.
    untimed: bool
    #: None for records that were staged in format 1.
    data_checksum: int | None = None


class EncodedBatch(NamedTuple):
    """A batch ready to be stored."""

    info: BatchInfo
    data: bytes | pa.Buffer


def _encode(batch: pa.RecordBatch, layout: int) -> pa.Buffer:
    """Return the message of a batch, without the schema and the end of the stream."""
    if batch.nbytes <= _PLAIN_BYTES:
        return batch.serialize()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _schema(layout), options=_LZ4) as writer:
        writer.write_batch(batch)
    data = sink.getvalue()
    begin = _schema_bytes(layout)
    return data.slice(begin, data.size - begin - _END_OF_STREAM_BYTES)


def decode(data: bytes, layout: int) -> pa.RecordBatch:
    """Return the stored columns of a blob. The bytes must be those that were encoded."""
    return pa.ipc.read_record_batch(pa.py_buffer(data), _schema(layout))


def _consecutive_offsets(base: int, count: int) -> pa.Array:
    if count > BATCH_RECORDS:
        return pa.array(range(base, base + count), pa.int64())
    return pc.add(_COUNTING.slice(0, count), pa.scalar(base, pa.int64()))


def _repeat(value: int, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.int64()), count)


def add_read_columns(
    stored: pa.RecordBatch, layout: int, base: int, append_time: int | None
) -> pa.RecordBatch:
    """Return a stored batch with the columns of `COLUMNS`."""
    count = stored.num_rows
    timestamps, key, value = stored.columns[:3]
    if append_time is not None:
        timestamps = _repeat(append_time, count)
    headers = stored.column(3) if layout & HEADERS else pa.nulls(count, HEADER_TYPE)
    offsets = stored.columns[-1] if layout & OFFSETS else _consecutive_offsets(base, count)
    return pa.RecordBatch.from_arrays(
        [offsets, timestamps, key, value, headers], schema=READ_SCHEMA
    )


def concatenate(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Join batches of one schema."""
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches(batches)


def encode_read_batch(read: pa.RecordBatch, *, with_offsets: bool) -> EncodedBatch:
    """Encode a batch with the columns of `COLUMNS`."""
    offsets, timestamps, key, value, headers = read.columns
    columns, layout = [timestamps, key, value], 0
    if headers.null_count < len(headers):
        columns.append(headers)
        layout |= HEADERS
    if with_offsets:
        columns.append(offsets)
        layout |= OFFSETS
    return _encode_batch(pa.RecordBatch.from_arrays(columns, schema=_schema(layout)), layout)


def record_sizes(key: pa.Array, value: pa.Array, headers: pa.Array | None) -> pa.Array:
    """Return the size of each record, as `record_size` defines it."""
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


def encode_records(records: RecordColumns | pa.RecordBatch | pa.Table) -> list[EncodedBatch]:
    """Validate a user's records, split them into batches, and encode these."""
    batches = _from_columns(records) if isinstance(records, RecordColumns) else _from_arrow(records)
    return [
        _encode_batch(piece, HEADERS if "headers" in piece.schema.names else 0, untimed=untimed)
        for batch, untimed in batches
        for piece in _split(batch)
    ]


#: A batch, and whether it has no timestamps.
_MaybeUntimed = tuple[pa.RecordBatch, bool]


def _from_columns(records: RecordColumns) -> list[_MaybeUntimed]:
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
    return _convert_columns(names, columns, count)


def _from_arrow(records: pa.RecordBatch | pa.Table) -> list[_MaybeUntimed]:
    missing = {"key", "value"} - set(records.schema.names)
    if missing:
        raise InvalidRecord(
            f"Missing column {' and '.join(sorted(missing))}. Columns: {records.schema.names}."
        )
    names = ["timestamp", "key", "value"]
    if "headers" in records.schema.names:
        headers = records.column("headers")
        if headers.null_count < len(headers):
            names.append("headers")
    columns = [
        records.column(name) if name in records.schema.names else None for name in names
    ]
    return _convert_columns(names, columns, records.num_rows)


def _convert_columns(names: list[str], columns: list[Any], count: int) -> list[_MaybeUntimed]:
    """Return batches with the stored types. Missing timestamps become zeros."""
    untimed = columns[0] is None
    if untimed:
        columns[0] = _repeat(0, count)
    try:
        arrays = [_convert(name, column) for name, column in zip(names, columns, strict=True)]
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise InvalidRecord(f"Keys and values must be bytes: {error}.") from error
    if arrays[0].null_count:
        raise InvalidRecord("A timestamp is null. Omit the column to get the log's time.")
    schema = _schema(HEADERS if "headers" in names else 0)
    # An array holds at most 2 GiB, so a large column has several chunks.
    if any(isinstance(array, pa.ChunkedArray) for array in arrays):
        batches = pa.table(arrays, schema=schema).to_batches()
    else:
        batches = [pa.RecordBatch.from_arrays(arrays, schema=schema)]
    return [(batch, untimed) for batch in batches]


def _convert(name: str, column: Any) -> pa.Array | pa.ChunkedArray:
    stored = TYPES[name]
    if not isinstance(column, pa.Array | pa.ChunkedArray):
        return pa.array(column, stored)
    return column if column.type == stored else column.cast(stored)


def _split(batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
    """Yield pieces within the limits of a stored batch, in order."""
    count = batch.num_rows
    if count > BATCH_RECORDS or (count > 1 and batch.nbytes > BATCH_BYTES):
        half = count // 2 if count <= 2 * BATCH_RECORDS else BATCH_RECORDS
        yield from _split(batch.slice(0, half))
        rest = batch.slice(half)
        while rest.num_rows > 2 * BATCH_RECORDS:
            yield from _split(rest.slice(0, BATCH_RECORDS))
            rest = rest.slice(BATCH_RECORDS)
        yield from _split(rest)
    elif count:
        yield batch


def _encode_batch(
    batch: pa.RecordBatch, layout: int, *, untimed: bool = False
) -> EncodedBatch:
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
    data = _encode(batch, layout)
    null_keys = batch.column(1).null_count > 0
    info = BatchInfo(
        layout, batch.num_rows, data.size, first, last, largest, null_keys, untimed,
        data_checksum(data, layout),
    )
    return EncodedBatch(info, data)


def _extremes_of_few(batch: pa.RecordBatch, layout: int) -> tuple[int, int, int]:
    """Return the first and last timestamp and the largest size, without Arrow's kernels."""
    timestamps, keys, values = (column.to_pylist() for column in batch.columns[:3])
    if layout & HEADERS:
        headers = [as_header_pairs(pairs) for pairs in batch.column(3).to_pylist()]
        sizes = map(record_size, keys, values, headers)
    else:
        sizes = map(record_size, keys, values)
    return min(timestamps), max(timestamps), max(sizes)
