"""The writers: tasks stage records, the driver publishes them in one transaction."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from penstock.engine.spark.sources.record_writer import RecordWriter
from penstock.engine.spark.sources.sink import commit_batch, discard, publish

Messages = list[WriterCommitMessage | None]


class TopicWriter(DataSourceArrowWriter):
    """Writes a DataFrame: all of it, or nothing."""

    def __init__(self, records: RecordWriter) -> None:
        self._records = records

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a task."""
        return self._records.write(iterator)

    def commit(self, messages: Messages) -> None:
        """Publish the rows of all tasks."""
        publish(self._records.log, messages)  # type: ignore[arg-type]

    def abort(self, messages: Messages) -> None:
        """Delete the rows of the tasks that have succeeded."""
        discard(self._records.log, messages)  # type: ignore[arg-type]


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream, each exactly once."""

    def __init__(self, records: RecordWriter) -> None:
        self._records = records

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a task."""
        return self._records.write(iterator)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803  (PySpark's name)
        """Publish the rows of a batch, unless it was published before."""
        commit_batch(self._records.log, messages, batchId)  # type: ignore[arg-type]

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        """Delete the rows of the tasks that have succeeded."""
        discard(self._records.log, messages)  # type: ignore[arg-type]
