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


def topic_schema(key: Column, value: Column) -> StructType:
    """Return all columns of a topic."""
    return StructType([
        StructField(name, kind)
        for name, kind in {"key": key.type, "value": value.type, **_METADATA}.items()
    ])


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
                    yield pa.RecordBatch.from_arrays(
                        [_column(batch, name, types.field(name).type, decoders) for name in names],
                        schema=types,
                    )


def _column(
    batch: LogBatch, name: str, kind: pa.DataType, decoders: dict[str, ColumnDecoder]
) -> pa.Array:
    records = batch.records
    if name in decoders:
        offsets = records.column("offset")
        return decoders[name].decode(
            records.column(name),
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
