"""Logs and options for the tests of the data source."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock.log import Log, RecordColumns, TopicPartition

KEEP = {"retention.ms": "-1"}


def append(log: Log, topic: str, partition: int, *rows: tuple[Any, ...]) -> None:
    """Append (key, value[, timestamp]); texts are encoded."""
    keys, values, times = [], [], []
    for row in rows:
        key, value, *time = row
        keys.append(key.encode() if isinstance(key, str) else key)
        values.append(value.encode() if isinstance(value, str) else value)
        times.append(time[0] if time else 1_000)
    log.append(topic, partition, RecordColumns(keys, values, times))


def read(spark: SparkSession, log: Log, schema: str | None = None, **options: Any) -> DataFrame:
    """`spark.read`; an underscore in the name of an option is a dot."""
    reader = spark.read.format("penstock").option("log", log.address)
    if schema is not None:
        reader = reader.schema(schema)
    return reader.options(**{
        name.replace("_", "."): str(value) for name, value in options.items()
    }).load()


def rows(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """The rows of a DataFrame in a fixed order, with bytes as bytes."""
    chosen = frame.select(*columns) if columns else frame
    return sorted((tuple(map(_plain, row)) for row in chosen.collect()), key=repr)


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value


def read_topic(log: Log, topic: str) -> list[tuple[Any, ...]]:
    """(key, value) of all records of a topic, by partition and offset."""
    found: list[tuple[Any, ...]] = []
    for number in range(log.topic(topic).partitions):
        where = TopicPartition(topic, number)
        bounds = log.offsets([where])[where]
        if bounds.start < bounds.end:
            for batch in log.read(topic, number, bounds.start, bounds.end):
                columns = batch.columns()
                found += zip(columns.keys, columns.values, strict=True)
    return found

