"""Validates records to produce, and converts consumed messages to Arrow batches.

librdkafka treats the timestamp 0 as 'now', so it cannot write the first millisecond of 1970. A
record with that timestamp is written one millisecond later with the header `AT_ZERO`. penstock
restores it when it reads; other readers see 1 and the header.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from confluent_kafka import Message

from penstock import native
from penstock.log.arrow_types import HEADER_TYPE, READ_SCHEMA
from penstock.log.errors import InvalidRecord
from penstock.log.types import record_size
from penstock.record import NO_HEADERS, PartitionColumns, RecordColumns
from penstock.record import Headers as RecordHeaders

#: The header of a record with the timestamp 0.
AT_ZERO = ("penstock-timestamp", b"0")

Headers: TypeAlias = "Sequence[tuple[str, bytes | None]]"
_NO_HEADERS: Headers = ()
_BATCH_OVERHEAD = 61
#: An upper bound: a batch with one record without headers, and the header `AT_ZERO`.
_MAX_OVERHEAD = 128


class CheckedColumns(RecordColumns, frozen=True, kw_only=True):
    """Validated records to produce. Without timestamps, the records get the time of sending."""

    headers: Sequence[Headers] | None
    #: Bytes of all keys and values, to limit how much is buffered.
    size: int
    #: Upper bound of the bytes of one key and value.
    longest: int
    #: The smallest and the largest timestamp, or a wider range; None without timestamps.
    times: tuple[int, int] | None = None

    def each(self, now: int) -> Iterator[tuple[bytes | None, bytes | None, int, Headers]]:
        """Yield key, value, timestamp and headers as they are produced."""
        times = self.timestamps if self.timestamps is not None else [now] * len(self)
        headers = self.headers if self.headers is not None else [_NO_HEADERS] * len(self)
        for key, value, timestamp, pairs in zip(
            self.keys, self.values, times, headers, strict=True
        ):
            if timestamp:
                yield key, value, timestamp, pairs
            else:
                yield key, value, 1, [*pairs, AT_ZERO]

    def slice(self, begin: int, end: int) -> CheckedColumns:
        """Return a part of the records."""
        if begin == 0 and end >= len(self):
            return self
        return CheckedColumns(
            self.keys[begin:end], self.values[begin:end],
            None if self.timestamps is None else self.timestamps[begin:end],
            headers=None if self.headers is None else self.headers[begin:end],
            size=self.size, longest=self.longest, times=self.times,
        )

    def split(self, limit: int) -> Iterator[CheckedColumns]:
        """Yield parts of which each fits into a batch of this size, or has one record."""
        headers = self.headers if self.headers is not None else [_NO_HEADERS] * len(self)
        begin = size = 0
        for at, sizes in enumerate(zip(self.keys, self.values, headers, strict=True)):
            record_bytes = _wire_size(*sizes) + _MAX_OVERHEAD - _BATCH_OVERHEAD
            if at > begin and size + record_bytes > limit:
                yield self.slice(begin, at)
                begin, size = at, 0
            size += record_bytes
        yield self.slice(begin, len(self))

    def surely_fits(self, limit: int) -> bool:
        """Return whether a cheap upper bound of every record in Kafka's format is in the limit."""
        return self.headers is None and self.longest + _MAX_OVERHEAD <= limit

    def largest(self) -> tuple[int, int]:
        """Return the size of the largest record, and its size in Kafka's format."""
        headers = self.headers if self.headers is not None else [_NO_HEADERS] * len(self)
        sizes = map(record_size, self.keys, self.values, headers)
        at = max(enumerate(sizes), key=lambda pair: pair[1], default=(-1, 0))
        if at[0] < 0:
            return 0, 0
        return at[1], _wire_size(self.keys[at[0]], self.values[at[0]], headers[at[0]])


def _wire_size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Return the size of a batch with only this record, in Kafka's format."""
    size = 3 + _varint_size(len(headers))
    for part in (key, value):
        size += _varint_size(-1 if part is None else len(part)) + len(part or b"")
    for name, content in headers:
        encoded = name.encode()
        size += _varint_size(len(encoded)) + len(encoded)
        size += _varint_size(-1 if content is None else len(content)) + len(content or b"")
    return _BATCH_OVERHEAD + _varint_size(size) + size


def _varint_size(number: int) -> int:
    zigzag = 2 * number if number >= 0 else 1
    return max(1, (zigzag.bit_length() + 6) // 7)


def check_columns(records: RecordColumns | pa.RecordBatch | pa.Table) -> CheckedColumns:
    """Validate the records of an append."""
    if isinstance(records, RecordColumns):
        return _from_columns(records)
    return _from_columns(_from_arrow(records))


def _from_columns(records: RecordColumns) -> CheckedColumns:
    keys, values, timestamps, headers = (
        records.keys, records.values, records.timestamps, records.headers
    )
    lengths = {len(each) for each in (keys, values, timestamps, headers) if each is not None}
    if lengths != {len(keys)}:
        raise InvalidRecord(f"The columns differ in length: {sorted(lengths)}.")
    key_bytes, longest_key = _measure(keys)
    value_bytes, longest_value = _measure(values)
    times = None if timestamps is None or not len(timestamps) else _check_times(timestamps)
    pairs = None
    if headers is not None and any(headers):
        pairs = [_check_headers(one) for one in headers]
    return CheckedColumns(
        keys, values, timestamps, headers=pairs, size=key_bytes + value_bytes,
        longest=longest_key + longest_value, times=times,
    )


def _measure(column: Sequence[bytes | None]) -> tuple[int, int]:
    """Return the bytes of a column, and of its longest entry."""
    extension = native.rdkafka()
    if extension is not None and (measured := extension.measure(column)) is not None:
        return measured
    for one in column:
        if not (one is None or isinstance(one, bytes)):
            raise InvalidRecord(f"Keys and values must be bytes or None, not {one!r:.40}.")
    lengths = [len(one) for one in column if one is not None]
    return sum(lengths), max(lengths, default=0)


def _check_times(timestamps: Sequence[int]) -> tuple[int, int]:
    """Return the smallest and the largest timestamp."""
    extension = native.rdkafka()
    times = None if extension is None else extension.measure_times(timestamps)
    if times is None:
        try:
            times = min(timestamps), max(timestamps)
        except TypeError:
            times = None
    if times is None or not isinstance(times[0], int):
        raise InvalidRecord("A timestamp is null. Omit the column to get the log's time.")
    if times[0] < 0:
        raise InvalidRecord(f"A record's timestamp must not be negative: {times[0]}.")
    return times


def _check_headers(pairs: Iterable[tuple[str, bytes | None]]) -> Headers:
    checked = []
    for name, content in pairs or ():
        if not isinstance(name, str) or not isinstance(content, bytes | None):
            raise InvalidRecord(f"A header must be a string and bytes, not {name!r:.40}.")
        checked.append((name, content))
    return checked


def _from_arrow(records: pa.RecordBatch | pa.Table) -> RecordColumns:
    names = set(records.schema.names)
    missing = {"key", "value"} - names
    if missing:
        raise InvalidRecord(
            f"Missing column {' and '.join(sorted(missing))}. Columns: {records.schema.names}."
        )
    try:
        timestamps = None
        if "timestamp" in names:
            timestamps = _to_list(records, "timestamp", pa.int64())
            if None in timestamps:
                raise InvalidRecord("A timestamp is null. Omit the column to get the log's time.")
        headers = None
        if "headers" in names and records.column("headers").null_count < records.num_rows:
            headers = [
                [(pair["name"], pair["value"]) for pair in pairs or ()]
                for pairs in _to_list(records, "headers", HEADER_TYPE)
            ]
        return RecordColumns(
            _to_list(records, "key", pa.binary()), _to_list(records, "value", pa.binary()),
            timestamps, headers,
        )
    except (pa.ArrowException, TypeError) as error:
        raise InvalidRecord(f"Keys and values must be bytes: {error}.") from error


def _to_list(records: pa.RecordBatch | pa.Table, name: str, kind: pa.DataType) -> list[Any]:
    column = records.column(name)
    if column.type != kind:
        column = column.cast(kind)
    values: list[Any] = column.to_pylist()
    return values


def to_batch(columns: PartitionColumns | None) -> pa.RecordBatch:
    """Convert records of one partition to a batch with the columns of `COLUMNS`."""
    if columns is None:
        return pa.RecordBatch.from_pylist([], READ_SCHEMA)
    if columns.headers is not None:
        headers = pa.array([list(pairs) or None for pairs in columns.headers], HEADER_TYPE)
    else:
        headers = pa.nulls(len(columns), HEADER_TYPE)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(columns.offsets, pa.int64()), pa.array(columns.timestamps, pa.int64()),
            pa.array(columns.keys, pa.binary()), pa.array(columns.values, pa.binary()), headers,
        ],
        schema=READ_SCHEMA,
    )


def to_columns(where: tuple[str, int], messages: Sequence[Message]) -> PartitionColumns:
    """Convert messages of one partition to columns."""
    timestamps = [message.timestamp()[1] for message in messages]
    headers: list[Any] = [message.headers() for message in messages]
    return PartitionColumns(
        topic=where[0],
        partition=where[1],
        offsets=[message.offset() or 0 for message in messages],
        timestamps=timestamps,
        keys=[message.key() for message in messages],
        values=[message.value() for message in messages],
        headers=read_headers(timestamps, headers) if any(headers) else None,
    )


def read_headers(timestamps: list[int], headers: list[Any]) -> list[RecordHeaders]:
    """Return the headers of records as tasks read them; restores timestamps of 0."""
    _restore_zeros(timestamps, headers)
    return [RecordHeaders(pairs) if pairs else NO_HEADERS for pairs in headers]


def _restore_zeros(timestamps: list[int], headers: list[Any]) -> None:
    for at, pairs in enumerate(headers):
        if pairs and timestamps[at] == 1 and pairs[-1] == AT_ZERO:
            timestamps[at] = 0
            headers[at] = pairs[:-1]


def columns_size(columns: PartitionColumns) -> int:
    """Return the size of records, as `record_size` defines it."""
    size = _measure(columns.keys)[0] + _measure(columns.values)[0]
    for pairs in columns.headers or ():
        size += record_size(None, None, pairs)
    return size
