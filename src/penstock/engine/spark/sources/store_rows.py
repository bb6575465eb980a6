"""The rows of a store, read from its changelog: the last value of each key, without deletions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.types import StructType

from penstock.engine.spark.pyspark_internals import arrow_schema
from penstock.engine.spark.sources.decoding import ColumnDecoder
from penstock.engine.spark.sources.formats import Column
from penstock.engine.spark.sources.options import LogAddress
from penstock.engine.spark.sources.ranges import OffsetRange
from penstock.engine.spark.sources.store_layout import SESSION, VERSIONED, StoreLayout
from penstock.engine.spark.sources.topic_rows import to_timestamps, window_column
from penstock.log.base import Log

_BATCH_ROWS = 10_000


class _Row(NamedTuple):
    """A row of a store, with the bytes of its key and value."""

    key: bytes
    value: bytes | None
    #: Of the record; the start of a version.
    time: int
    start: int = -1
    #: None if the size of the window is unknown.
    end: int | None = None
    sequence: int = 0
    valid_to: int | None = None


@dataclass(frozen=True, slots=True)
class StoreRows:
    """Reads partitions of a store as Arrow record batches. It can be sent to executors.

    A partition's rows are held in memory while it is read.
    """

    log: LogAddress
    layout: StoreLayout
    schema: StructType
    key: Column
    value: Column
    permissive: bool = False

    def read(self, offsets: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Read the rows of a partition. The range starts at the start of the changelog."""
        types = arrow_schema(self.schema)
        decoders = {
            column.name: ColumnDecoder(
                column, types.field(column.name).type, permissive=self.permissive
            )
            for column in (self.key, self.value) if column.name in types.names
        }
        with self.log.open(read_only=True) as log:
            rows = iter(read_rows(log, self.layout, offsets))
        while part := list(islice(rows, _BATCH_ROWS)):
            yield pa.RecordBatch.from_arrays(
                [self._column(part, types.field(name), decoders) for name in types.names],
                schema=types,
            )

    def _column(
        self, rows: list[_Row], field: pa.Field, decoders: dict[str, ColumnDecoder]
    ) -> pa.Array:
        name, kind = field.name, field.type
        if name in decoders:
            data = pa.array(
                [row.key if name == "key" else row.value for row in rows], pa.binary()
            )
            return decoders[name].decode(data, lambda _: f"a row of store '{self.layout.name}'")
        if name == "window":
            return window_column([row.start for row in rows], [row.end for row in rows], kind)
        if name == "sequence":
            return pa.array([row.sequence for row in rows], kind)
        times = [row.valid_to if name == "valid_to" else row.time for row in rows]
        return to_timestamps(pa.array(times, pa.int64()), kind)


def read_rows(log: Log, layout: StoreLayout, offsets: OffsetRange) -> list[_Row]:
    """Return the rows of a partition, in the order of their last records."""
    if layout.family == VERSIONED:
        return _versions(log, layout, offsets)
    newest: dict[bytes, tuple[bytes, int]] = {}
    for key, value, time in _changes(log, offsets):
        # A key that was deleted and written again moves to the end.
        newest.pop(key, None)
        if value is not None:
            newest[key] = (value, time)
    if not layout.key_suffix:
        return [_Row(key, *each) for key, each in newest.items()]
    rows = []
    for data, each in newest.items():
        key, start, end, sequence = layout.split_key(data)
        rows.append(_Row(key, *each, start, end, sequence))
    return _without_expired(layout, rows)


def _changes(log: Log, offsets: OffsetRange) -> Iterator[tuple[bytes, bytes | None, int]]:
    topic, partition, start, end = offsets
    for batch in log.read(topic, partition, start, end):
        records = batch.records
        for key, value, time in zip(
            records.column("key").to_pylist(), records.column("value").to_pylist(),
            records.column("timestamp").to_pylist(), strict=True,
        ):
            if key is not None:
                yield key, value, time


def _without_expired(layout: StoreLayout, rows: list[_Row]) -> list[_Row]:
    """Remove windows that the store no longer returns."""
    if layout.retention_ms is None or not rows:
        return rows
    times = [row.end if layout.family == SESSION and row.end is not None else row.start
             for row in rows]
    oldest = max(times) - layout.retention_ms
    return [row for row, time in zip(rows, times, strict=True) if time > oldest]


def _versions(log: Log, layout: StoreLayout, offsets: OffsetRange) -> list[_Row]:
    """Return the latest version of each key, or all of them with the time of the next one."""
    versions: dict[bytes, dict[int, bytes | None]] = {}
    for key, value, time in _changes(log, offsets):
        # A later record replaces the version of the same time.
        versions.setdefault(key, {})[time] = value
    rows: list[_Row] = []
    for key, by_time in versions.items():
        times: list[Any] = sorted(by_time)
        for time, following in zip(times, [*times[1:], None], strict=True):
            value = by_time[time]
            if value is not None and (layout.all_versions or following is None):
                rows.append(_Row(key, value, time, valid_to=following))
    return rows
