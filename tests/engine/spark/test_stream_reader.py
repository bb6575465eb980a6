"""The planning of streaming reads. These tests need PySpark, but no JVM."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from engine.spark.source_data import KEEP, append
from penstock.engine.spark.sources import PenstockDataSource
from penstock.engine.spark.sources.read_limits import ReadAllAvailable, ReadMaxRows
from penstock.engine.spark.sources.stream_reader import TopicStreamReader, limited
from penstock.errors import ConfigException, StreamsException
from penstock.log import Log


@pytest.fixture
def log(source_log: Log) -> Log:
    source_log.create_topic("in", 2, KEEP)
    append(source_log, "in", 0, *[(str(n), "v", 1_000 + n) for n in range(6)])
    append(source_log, "in", 1, ("x", "v", 1_002), ("y", "v", 1_005))
    return source_log


def reader_of(log: Log, **options: str) -> TopicStreamReader:
    source = PenstockDataSource(CaseInsensitiveDict(
        {"log": log.address, "topic": "in", **options}
    ))
    reader = source.streamReader(source.schema())
    assert isinstance(reader, TopicStreamReader)
    return reader


def offset(zero: int, one: int) -> dict[str, dict[str, int]]:
    return {"in": {"0": zero, "1": one}}


def test_new_query_starts_at_the_end_by_default(log: Log) -> None:
    assert reader_of(log).initialOffset() == offset(6, 2)
    assert reader_of(log, startingOffsets="earliest").initialOffset() == offset(0, 0)
    assert reader_of(log, startingTimestamp="1003").initialOffset() == offset(3, 1)


def test_batch_ends_at_the_limit_or_at_the_end(log: Log) -> None:
    reader = reader_of(log, maxOffsetsPerTrigger="4")
    assert reader.getDefaultReadLimit() == ReadMaxRows(4)
    assert reader.latestOffset(offset(0, 0), ReadMaxRows(4)) == offset(3, 1)
    assert reader.latestOffset(offset(0, 0), ReadAllAvailable()) == offset(6, 2)
    assert reader.latestOffset(offset(6, 2), ReadMaxRows(4)) == offset(6, 2)
    assert reader.reportLatestOffset() == offset(6, 2)


def test_older_spark_passes_no_start(log: Log) -> None:
    assert reader_of(log).latestOffset() == offset(6, 2)
    with pytest.raises(ConfigException, match=r"needs PySpark 4\.2"):
        reader_of(log, maxOffsetsPerTrigger="4").latestOffset()


def test_available_now_ends_where_the_topic_ended(log: Log) -> None:
    reader = reader_of(log)
    reader.prepareForTriggerAvailableNow()
    append(log, "in", 0, ("late", "v"))
    assert reader.latestOffset(offset(0, 0), ReadAllAvailable()) == offset(6, 2)


def test_partitions_are_the_ranges_of_a_batch(log: Log) -> None:
    reader = reader_of(log)
    planned = reader.partitions(offset(2, 2), offset(5, 2))
    assert [each.value for each in planned] == [("in", 0, 2, 5)]
    copied: Any = pickle.loads(pickle.dumps(reader))
    assert [batch.num_rows for batch in copied.read(planned[0])] == [3]
    reader.stop()


def test_checkpoint_of_another_topic_is_refused(log: Log) -> None:
    with pytest.raises(StreamsException, match="The checkpoint belongs to topic 'other'"):
        reader_of(log).latestOffset({"other": {"0": 1}}, ReadAllAvailable())


def test_recreated_topic_ends_the_query(log: Log) -> None:
    with pytest.raises(StreamsException, match="deleted and created again"):
        reader_of(log).latestOffset(offset(9, 0), ReadAllAvailable())
    kept = reader_of(log, failOnDataLoss="false")
    assert kept.latestOffset(offset(9, 0), ReadAllAvailable()) == offset(9, 2)


def test_options_of_a_batch_are_refused(log: Log) -> None:
    with pytest.raises(ConfigException, match="'endingOffsets' has no meaning for a stream"):
        reader_of(log, endingOffsets="latest")


def test_every_partition_makes_progress() -> None:
    assert limited({0: 0, 1: 0}, {0: 1_000_000, 1: 1}, 10) == {0: 9, 1: 1}
