"""The rows of a topic: one for each record, with the columns of Spark's Kafka source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.engine.spark.pyspark_internals import arrow_schema
from penstock.engine.spark.sources.decoding import ColumnDecoder
from penstock.engine.spark.sources.formats import Column
from penstock.engine.spark.sources.options import LogAddress
from penstock.engine.spark.sources.ranges import OffsetRange
from penstock.engine.spark.sources.store_layout import ChangelogKey, StoreLayout
from penstock.errors import ConfigException
from penstock.log.types import LogBatch, TopicPartition

#: Column -> its type, besides key and value.
_METADATA: dict[str, DataType] = {
    "topic": StringType(), "partition": IntegerType(), "offset": LongType(),
    "timestamp": TimestampType(),
    "headers": ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    ),
}


def topic_schema(key: Column, value: Column, layout: StoreLayout | None = None) -> StructType:
    """Return all columns of a topic, or of the changelog of a store."""
    window = {} if layout is None else layout.window_columns
    columns = {"key": key.type, **window, "value": value.type, **_METADATA}
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def check_schema(schema: StructType, available: StructType) -> None:
    """Raise `ConfigException` unless all columns of a schema exist, with these types."""
    types = {each.name: each.dataType for each in available}
    for each in schema:
        if each.name not in types:
            raise ConfigException(
                f"The schema has the column '{each.name}', which does not exist. Columns: "
                f"{', '.join(types)}."
            )
        if types[each.name] != each.dataType:
            raise ConfigException(
                f"The schema has the type {each.dataType.simpleString()} for the column "
                f"'{each.name}', which has the type {types[each.name].simpleString()}."
            )


@dataclass(frozen=True, slots=True)
class TopicRows:
    """Reads ranges of a topic as Arrow record batches. It can be sent to executors."""

    log: LogAddress
    schema: StructType
    key: Column
    value: Column
    permissive: bool = False
    #: False: continue at the start of the partition if retention has removed records of a range.
    fail_on_data_loss: bool = True
    #: The store whose changelog the topic is.
    layout: StoreLayout | None = None

    def read(self, offsets: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Read a range."""
        types = arrow_schema(self.schema)
        names = types.names
        decoders = {
            column.name: ColumnDecoder(
                column, types.field(column.name).type, permissive=self.permissive
            )
            for column in (self.key, self.value) if column.name in names
        }
        topic, partition, start, end = offsets
        with self.log.open(read_only=True) as log:
            if not self.fail_on_data_loss:
                where = TopicPartition(topic, partition)
                bounds = log.offsets([where])[where]
                start, end = max(start, bounds.start), min(end, bounds.end)
            if start >= end:
                return
            for batch in log.read(topic, partition, start, end):
                if len(batch):
                    split = self._split_keys(batch)
                    yield pa.RecordBatch.from_arrays(
                        [
                            _column(batch, name, types.field(name).type, decoders, split)
                            for name in names
                        ],
                        schema=types,
                    )

    def _split_keys(self, batch: LogBatch) -> list[ChangelogKey] | None:
        """The keys and windows of a batch; None if the keys have no windows."""
        if self.layout is None or not self.layout.key_suffix:
            return None
        return [self.layout.split_key(key) for key in batch.records.column("key").to_pylist()]


def _column(
    batch: LogBatch, name: str, kind: pa.DataType, decoders: dict[str, ColumnDecoder],
    split: list[ChangelogKey] | None,
) -> pa.Array:
    records = batch.records
    if split is not None and name == "window":
        return window_column([each.start for each in split], [each.end for each in split], kind)
    if split is not None and name == "sequence":
        return pa.array([each.sequence for each in split], kind)
    if name in decoders:
        offsets = records.column("offset")
        data = records.column(name)
        if split is not None and name == "key":
            data = pa.array([each.key for each in split], pa.binary())
        return decoders[name].decode(
            data,
            lambda index: (
                f"the record at offset {offsets[index]} of topic '{batch.topic}', partition "
                f"{batch.partition},"
            ),
        )
    if name == "topic":
        return pa.repeat(pa.scalar(batch.topic, kind), len(batch))
    if name == "partition":
        return pa.repeat(pa.scalar(batch.partition, kind), len(batch))
    column = records.column(name)
    if name == "timestamp":
        return to_timestamps(column, kind)
    if name == "headers":
        return _headers(column, kind)
    return column


def to_timestamps(epoch_ms: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert epoch milliseconds to a column of Spark's timestamps, in microseconds."""
    return pc.multiply_checked(epoch_ms, pa.scalar(1000, pa.int64())).cast(kind)


def window_column(starts: list[int], ends: list[int | None], kind: pa.DataType) -> pa.Array:
    """Return the column `window` of times in epoch milliseconds."""
    bounds = [
        to_timestamps(pa.array(times, pa.int64()), kind.field(name).type)
        for name, times in (("start", starts), ("end", ends))
    ]
    return pa.StructArray.from_arrays(bounds, fields=list(kind))


def _headers(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.null_count == len(column):
        return pa.nulls(len(column), kind)
    return pa.array(
        [
            None if pairs is None
            else [{"key": pair["name"], "value": pair["value"]} for pair in pairs]
            for pairs in column.to_pylist()
        ],
        kind,
    )
