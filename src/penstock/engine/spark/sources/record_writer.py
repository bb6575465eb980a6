"""Turns rows of Spark into records, in an executor, and stages them for the commit."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.clock import wall_clock_ms
from penstock.engine.spark.pyspark_internals import streaming_query_id
from penstock.engine.spark.sources.formats import Encode, encoder, format_name
from penstock.engine.spark.sources.options import LogAddress, Options
from penstock.errors import ConfigException
from penstock.log.base import Log
from penstock.log.types import Append, StagedRecords
from penstock.partitioning import partition_of
from penstock.record import Headers, RecordColumns

#: Rows are collected up to about one of these sizes, then staged.
_STAGED_RECORDS = 50_000
_STAGED_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class WrittenRecords(WriterCommitMessage):
    """The result of a task: its records, staged in the log or as Arrow data.

    Only the host that has staged records of a Kafka cluster can read them. A task on another host
    than the driver sends its records in the message.
    """

    appends: tuple[Append, ...] = ()
    #: Empty in a batch write.
    query_id: str = ""

    def staged(self) -> list[StagedRecords]:
        """Return the staged records."""
        return [each.records for each in self.appends if isinstance(each.records, StagedRecords)]


@dataclass(slots=True)
class _Partition:
    """The records of one partition that are not staged yet."""

    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    timestamps: list[int | None] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)

    def take(self) -> RecordColumns:
        """Return the records and start again."""
        timestamps = None
        if any(time is not None for time in self.timestamps):
            now = wall_clock_ms()
            timestamps = [now if time is None else time for time in self.timestamps]
        taken = RecordColumns(
            self.keys, self.values, timestamps, self.headers if any(self.headers) else None
        )
        self.keys, self.values, self.timestamps, self.headers = [], [], [], []
        return taken


@dataclass(frozen=True)
class RecordWriter:
    """Writes the records of a task. Created in the driver and sent to executors."""

    log: LogAddress
    topic: str | None
    key_format: str | None
    value_format: str | None
    schema: StructType
    #: The host of the driver.
    host: str = field(default_factory=socket.gethostname)

    @classmethod
    def of(cls, options: Options, schema: StructType) -> RecordWriter:
        """Check the options and the columns of a write."""
        formats = {
            name: format_name(given, f"{name}.format")
            for name in ("key", "value") if (given := options.get(f"{name}.format"))
        }
        writer = cls(
            options.log(), options.get("topic"), formats.get("key"), formats.get("value"), schema
        )
        writer.check()
        return writer

    def check(self) -> None:
        """Raise `ConfigException` for columns that a record does not have, or of a wrong type."""
        for each in self.schema:
            wanted = _COLUMNS.get(each.name)
            if each.name not in _COLUMNS:
                raise ConfigException(
                    f"The column '{each.name}' is no part of a record. Columns: "
                    f"{', '.join(_COLUMNS)}. Put other columns into the value: "
                    f"select(..., struct('{each.name}', ...).alias('value'))."
                )
            if wanted and each.dataType.simpleString() not in wanted:
                raise ConfigException(
                    f"The column '{each.name}' of a record has the type {' or '.join(wanted)}, not "
                    f"{each.dataType.simpleString()}."
                )
        if "value" not in self.schema.names:
            raise ConfigException("The column 'value' is missing. A record has at least a value.")
        if self.topic is None and "topic" not in self.schema.names:
            raise ConfigException(
                "The topic is missing. Set the option 'topic', or add a column 'topic'."
            )

    def write(self, batches: Iterator[pa.RecordBatch]) -> WrittenRecords:
        """Stage the records of a task."""
        context = TaskContext.get()
        with self.log.open() as log:
            staging = _Staging(log, self, 0 if context is None else context.partitionId())
            for batch in batches:
                staging.add(batch)
            return WrittenRecords(tuple(staging.finish()), streaming_query_id())


#: Column -> its types; keys and values have any.
_COLUMNS: dict[str, tuple[str, ...]] = {
    "key": (), "value": (), "topic": ("string",), "partition": ("int", "bigint"),
    "timestamp": ("timestamp", "timestamp_ntz"),
    "headers": ("array<struct<key:string,value:binary>>",),
}


class _Staging:
    """Assigns records to partitions, and stages them whenever there are many."""

    def __init__(self, log: Log, writer: RecordWriter, task: int) -> None:
        self._log = log
        self._writer = writer
        self._task = task
        self._encoders = {
            name: _encoder(writer.schema, name, given) for name, given in
            (("key", writer.key_format), ("value", writer.value_format))
        }
        self._partitions: dict[str, int] = {}
        self._open: dict[tuple[str, int], _Partition] = {}
        self._records = self._bytes = 0
        self._appends: list[Append] = []
        is_reachable = (
            not log.capabilities.is_remote or writer.host == socket.gethostname()
        )
        self._stage = self._stage_in_log if is_reachable else _as_message

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        names = self._writer.schema.names
        count = batch.num_rows
        nulls: list[Any] = [None] * count
        columns = {name: batch.column(index).to_pylist() for index, name in enumerate(names)
                   if name != "timestamp"}
        keys, values = (
            [None if each is None else encode(each) for each in columns[name]]
            if encode is not None else nulls for name, encode in self._encoders.items()
        )
        topics = columns.get("topic") or [self._writer.topic] * count
        chosen = columns.get("partition") or nulls
        times = nulls
        if "timestamp" in names:
            times = _epoch_ms(batch.column(names.index("timestamp")))
        headers = columns.get("headers") or nulls
        for index, key in enumerate(keys):
            topic = topics[index] or self._writer.topic
            target = self._target(topic, chosen[index], key)
            target.keys.append(key)
            target.values.append(values[index])
            target.timestamps.append(times[index])
            target.headers.append(_headers(headers[index]))
        self._records += count
        self._bytes += batch.nbytes
        if self._records >= _STAGED_RECORDS or self._bytes >= _STAGED_BYTES:
            self._flush()

    def finish(self) -> list[Append]:
        """Return all records as appends."""
        self._flush()
        return self._appends

    def _target(self, topic: str | None, partition: int | None, key: bytes | None) -> _Partition:
        if topic is None:
            raise ConfigException(
                "A row has no topic: its column 'topic' is null and the option 'topic' is not set."
            )
        count = self._partitions.get(topic)
        if count is None:
            count = self._partitions[topic] = self._log.topic(topic).partitions
        if partition is None:
            # As Kafka does it: records without a key stay together for a while.
            partition = self._task % count if key is None else partition_of(key, count)
        elif not 0 <= partition < count:
            raise ConfigException(
                f"A row has the partition {partition}, but topic '{topic}' has {count} partitions."
            )
        return self._open.setdefault((topic, partition), _Partition())

    def _flush(self) -> None:
        for (topic, partition), records in self._open.items():
            if records.keys:
                taken = records.take()
                self._appends += [
                    Append(topic, partition, each) for each in self._stage(taken)
                ]
        self._records = self._bytes = 0

    def _stage_in_log(self, records: RecordColumns) -> list[Any]:
        return list(self._log.stage_records(records))


def _as_message(records: RecordColumns) -> list[Any]:
    return [records]


def _encoder(schema: StructType, name: str, given: str | None) -> Encode | None:
    return encoder(name, given, schema[name].dataType) if name in schema.names else None


def _epoch_ms(column: pa.Array) -> list[int | None]:
    times: list[int | None] = column.cast(pa.timestamp("us", column.type.tz)).cast(
        pa.int64()
    ).to_pylist()
    return [None if time is None else time // 1000 for time in times]


def _headers(pairs: list[dict[str, Any]] | None) -> Headers:
    if not pairs:
        return Headers()
    return Headers(tuple(pair.values()) for pair in pairs)
