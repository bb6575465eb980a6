"""The reader of `spark.readStream`. Spark keeps the offsets, in the checkpoint of the query.

An offset of the stream is JSON: topic -> partition -> the next offset to read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from penstock.engine.spark.sources.options import Options
from penstock.engine.spark.sources.ranges import OffsetRange, partition_bounds, start_offsets
from penstock.engine.spark.sources.read_limits import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from penstock.engine.spark.sources.readers import RangePartition
from penstock.engine.spark.sources.topic_rows import TopicRows
from penstock.errors import ConfigException, StreamsException
from penstock.log.base import Log

StreamOffset = dict[str, dict[str, int]]


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a topic. The driver plans batches; executors read them.

    A process of the driver keeps the reader, with an open log, for the whole query.
    """

    def __init__(self, options: Options, topic: str, rows: TopicRows) -> None:
        self._options = options
        self._topic = topic
        self._rows = rows
        #: Set for the trigger availableNow: the ends at the start of the query.
        self._target: dict[int, int] | None = None
        self._opened: Log | None = None
        for name in ("endingOffsets", "endingTimestamp"):
            if options.get(name) is not None:
                raise ConfigException(f"The option '{name}' has no meaning for a stream.")

    # ---- the driver --------------------------------------------------------------------------

    def initialOffset(self) -> StreamOffset:  # noqa: N802  (PySpark's name)
        """Return where a new query starts."""
        log = self._log()
        bounds = partition_bounds(log, self._topic)
        return self._offset(start_offsets(log, self._topic, self._options, bounds, "latest"))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of a batch."""
        limit = self._options.integer("maxOffsetsPerTrigger")
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of the query."""
        self._target = self._ends()

    # Before PySpark 4.2, Spark passes neither the start nor the limit.
    def latestOffset(  # noqa: N802
        self, start: StreamOffset | None = None, limit: Any = None
    ) -> StreamOffset:
        """Return the end of the next batch."""
        ends = self._target or self._ends()
        if start is None:
            if self._options.get("maxOffsetsPerTrigger") is not None:
                raise ConfigException(
                    "The option 'maxOffsetsPerTrigger' needs PySpark 4.2 or newer."
                )
            return self._offset(ends)
        begins = self._begins(start, ends)
        if isinstance(limit, ReadMaxRows):
            ends = limited(begins, ends, limit.max_rows)
        return self._offset({
            number: max(begins[number], ends.get(number, 0)) for number in begins
        })

    def reportLatestOffset(self) -> StreamOffset:  # noqa: N802
        """Return the ends of the topic, for the progress of the query."""
        return self._offset(self._ends())

    def partitions(self, start: StreamOffset, end: StreamOffset) -> Sequence[InputPartition]:
        """Return the ranges of a batch."""
        ends = self._of_topic(end)
        begins = self._begins(start, ends)
        return [
            RangePartition(OffsetRange(self._topic, number, begins[number], ends[number]))
            for number in sorted(ends) if begins[number] < ends[number]
        ]

    def stop(self) -> None:
        """Close the log."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _log(self) -> Log:
        if self._opened is None:
            self._opened = self._rows.log.open(read_only=True)
        return self._opened

    def __getstate__(self) -> dict[str, Any]:
        # Executors open the log themselves.
        return {**self.__dict__, "_opened": None}

    def _ends(self) -> dict[int, int]:
        return {
            number: found.end for number, found in
            partition_bounds(self._log(), self._topic).items()
        }

    def _begins(self, start: StreamOffset, ends: Mapping[int, int]) -> dict[int, int]:
        """Return the start of each partition. One that was added later starts at its beginning."""
        begins = self._of_topic(start)
        added = sorted(ends.keys() - begins.keys())
        if added:
            bounds = partition_bounds(self._log(), self._topic)
            begins |= {number: bounds[number].start for number in added}
        for number, begin in begins.items():
            if begin > ends.get(number, begin) and self._rows.fail_on_data_loss:
                raise StreamsException(
                    f"Topic '{self._topic}' ends at offset {ends[number]} in partition {number}, "
                    f"but the query has read up to offset {begin}. The topic was deleted and "
                    "created again. Start the query with a new checkpointLocation: it then reads "
                    "the topic from its starting offsets. failOnDataLoss=false would skip the "
                    f"records before offset {begin}."
                )
        return begins

    def _of_topic(self, offset: StreamOffset) -> dict[int, int]:
        if self._topic not in offset:
            raise StreamsException(
                f"The checkpoint belongs to topic '{next(iter(offset), '')}', not to "
                f"'{self._topic}'. Use another checkpointLocation for each query."
            )
        return {int(number): each for number, each in offset[self._topic].items()}

    def _offset(self, offsets: Mapping[int, int]) -> StreamOffset:
        return {self._topic: {str(number): offsets[number] for number in sorted(offsets)}}

    # ---- executors ---------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a range."""
        return self._rows.read(OffsetRange(*partition.value))


def limited(begins: Mapping[int, int], ends: Mapping[int, int], limit: int) -> dict[int, int]:
    """Return ends that are at most `limit` offsets away in all, shared in proportion.

    Every partition with unread offsets makes progress, so that none starves.
    """
    unread = {
        number: ends.get(number, begin) - begin for number, begin in begins.items()
        if ends.get(number, begin) > begin
    }
    total = sum(unread.values())
    if total <= limit:
        return dict(ends)
    shares = {number: max(1, each * limit // total) for number, each in unread.items()}
    return {number: begins[number] + shares.get(number, 0) for number in begins}
