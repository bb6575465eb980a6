"""The relations that the options of a read name: a topic, a changelog or a store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from pyspark.sql.types import DataType, StringType, StructType

from penstock.engine.spark.sources.formats import JSON, Column, column_of, format_name
from penstock.engine.spark.sources.json_values import infer_type
from penstock.engine.spark.sources.options import Options
from penstock.engine.spark.sources.ranges import (
    OffsetRange,
    end_offsets,
    offset_ranges,
    partition_bounds,
)
from penstock.engine.spark.sources.readers import RangeReader
from penstock.engine.spark.sources.store_cut import store_ends
from penstock.engine.spark.sources.store_layout import StoreLayout, find_layout
from penstock.engine.spark.sources.store_rows import StoreRows
from penstock.engine.spark.sources.stream_reader import TopicStreamReader
from penstock.engine.spark.sources.topic_rows import TopicRows, check_schema, topic_schema
from penstock.errors import ConfigException
from penstock.log.base import Log

_SAMPLING_ROWS = 1_000


class TopicRelation:
    """The records of a topic. `layout`: the store whose changelog it is."""

    def __init__(self, options: Options, topic: str, layout: StoreLayout | None = None) -> None:
        self.options = options
        self.topic = topic
        self.log = options.log()
        self._layout = layout

    def schema(self) -> StructType:
        """Return all columns. The types of JSON are inferred from samples."""
        key, value = self._columns(None)
        with self.log.open(read_only=True) as log:
            key, value = (self._inferred(log, each) for each in (key, value))
        return topic_schema(key, value, self._layout)

    def rows(self, schema: StructType) -> TopicRows:
        """Return what reads rows of this schema, which may have some of the columns."""
        key, value = self._columns(schema)
        check_schema(schema, topic_schema(key, value, self._layout))
        return TopicRows(
            self.log, schema, key, value,
            permissive=is_permissive(self.options),
            fail_on_data_loss=self.options.choice("failOnDataLoss", "true", "false") == "true",
            layout=self._layout,
        )

    def reader(self, schema: StructType) -> RangeReader:
        """Return the reader of a batch."""
        rows = self.rows(schema)
        with self.log.open(read_only=True) as log:
            return RangeReader(rows, offset_ranges(log, self.topic, self.options))

    def stream_reader(self, schema: StructType) -> TopicStreamReader:
        """Return the reader of a stream."""
        return TopicStreamReader(self.options, self.topic, self.rows(schema))

    def _columns(self, schema: StructType | None) -> tuple[Column, Column]:
        layout = self._layout
        defaults = ("bytes", "bytes") if layout is None else (
            layout.key_format, layout.value_format
        )
        return format_columns(self.options, schema, defaults)

    def _inferred(self, log: Log, column: Column) -> Column:
        if column.format != JSON:
            return column
        ranges = offset_ranges(log, self.topic, self.options)
        layout = self._layout
        return infer_column(
            column, log, ranges, self.options,
            lambda key: key if layout is None else layout.split_key(key).key,
        )


def find_relation(options: Options) -> TopicRelation | StoreRelation:
    """Return the relation that the options name."""
    given = [name for name in ("topic", "store", "changelog") if options.get(name)]
    if len(given) != 1:
        raise ConfigException(
            "Set one of the options 'topic', 'store' and 'changelog'. Given: "
            f"{', '.join(given) or 'none'}."
        )
    if given == ["store"]:
        return StoreRelation(options)
    if given == ["topic"]:
        return TopicRelation(options, options.require("topic", "orders"))
    with options.log().open(read_only=True) as log:
        layout = find_layout(log, options)
    return TopicRelation(options, layout.topic, layout)


def is_permissive(options: Options) -> bool:
    """Whether values that cannot be decoded are null."""
    return options.choice("mode", "FAILFAST", "PERMISSIVE") == "PERMISSIVE"


def format_columns(
    options: Options, schema: StructType | None, defaults: tuple[str, str]
) -> tuple[Column, Column]:
    """Return the columns of keys and values, with the types of the schema if it has them."""
    columns = []
    for name, default in zip(("key", "value"), defaults, strict=True):
        used = format_name(options.get(f"{name}.format") or default, f"{name}.format")
        given: DataType | None = None
        if schema is not None and name in schema.names:
            given = schema[name].dataType
        columns.append(column_of(name, used, given))
    return columns[0], columns[1]


def infer_column(
    column: Column, log: Log, ranges: list[OffsetRange], options: Options,
    split_key: Callable[[bytes], bytes],
) -> Column:
    """Return a column of JSON with the type of its first values. `split_key` removes windows."""
    limit = options.integer("samplingRows", _SAMPLING_ROWS)
    assert limit is not None
    samples = _samples(column.name, log, ranges, max(1, limit // max(1, len(ranges))))
    if column.name == "key":
        samples = map(split_key, samples)
    kind = infer_type(samples, permissive=is_permissive(options))
    return replace(column, type=kind or StringType())


def _samples(
    name: str, log: Log, ranges: list[OffsetRange], limit: int
) -> Iterator[bytes]:
    for topic, partition, start, end in ranges:
        for batch in log.read(topic, partition, start, end, max_records=limit):
            yield from (each for each in batch.records.column(name).to_pylist() if each is not None)


class StoreRelation:
    """The rows of a store at the end of its changelog, or before.

    `columns` decode its keys and values instead of the formats of the options.
    """

    def __init__(self, options: Options, columns: tuple[Column, Column] | None = None) -> None:
        self.options = options
        self._given = columns
        self.log = options.log()
        for name in ("startingOffsets", "startingTimestamp"):
            if options.get(name) is not None:
                raise ConfigException(
                    f"The option '{name}' has no meaning for a store. Use 'endingOffsets' or "
                    "'endingTimestamp' for its rows as of an earlier position."
                )

    def schema(self) -> StructType:
        """Return all columns. The types of JSON are inferred from samples."""
        with self.log.open(read_only=True) as log:
            layout = find_layout(log, self.options)
            key, value = self._columns(layout, None)
            if JSON in {key.format, value.format}:
                ranges = store_ranges(log, layout, self.options)
                key, value = (
                    infer_column(
                        each, log, ranges, self.options, lambda data: layout.split_key(data).key
                    ) if each.format == JSON else each
                    for each in (key, value)
                )
        return layout.schema(key.type, value.type)

    def reader(self, schema: StructType) -> RangeReader:
        """Return the reader of a batch. It reads all partitions up to one cut."""
        with self.log.open(read_only=True) as log:
            layout = find_layout(log, self.options)
            key, value = self._columns(layout, schema)
            check_schema(schema, layout.schema(key.type, value.type))
            ranges = store_ranges(log, layout, self.options)
        rows = StoreRows(
            self.log, layout, schema, key, value, permissive=is_permissive(self.options)
        )
        return RangeReader(rows, ranges)

    def _columns(self, layout: StoreLayout, schema: StructType | None) -> tuple[Column, Column]:
        if self._given is not None:
            return self._given
        return format_columns(self.options, schema, (layout.key_format, layout.value_format))


def store_ranges(log: Log, layout: StoreLayout, options: Options) -> list[OffsetRange]:
    """Return the changelog of each partition, from its start to the cut."""
    cut = store_ends(log, [layout])[layout.name]
    bounds = {
        number: found._replace(end=cut[number])
        for number, found in partition_bounds(log, layout.topic).items() if number in cut
    }
    ends = end_offsets(log, layout.topic, options, bounds)
    return [
        OffsetRange(layout.topic, number, bounds[number].start, end)
        for number, end in ends.items() if bounds[number].start < end
    ]
