"""The batch readers: a partition of the log is a partition of Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from penstock.engine.spark.sources.ranges import OffsetRange


class RangeRows(Protocol):
    """Reads the rows of a range, in an executor."""

    def read(self, offsets: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Read a range."""
        ...


class RangePartition(InputPartition):
    """A range of offsets, read by one task."""

    def __init__(self, offsets: OffsetRange) -> None:
        super().__init__(tuple(offsets))


class RangeReader(DataSourceReader):
    """Reads ranges that were fixed when the query was planned."""

    def __init__(self, rows: RangeRows, ranges: Sequence[OffsetRange]) -> None:
        self._rows = rows
        self._ranges = list(ranges)

    def partitions(self) -> Sequence[InputPartition]:
        """Return a partition for each range."""
        return [RangePartition(each) for each in self._ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a partition. Spark plans one without a value if there are none."""
        if partition.value is None:
            return iter(())
        return self._rows.read(OffsetRange(*partition.value))
