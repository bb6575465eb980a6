"""The sink of streams writes each batch once, whatever fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import penstock.spark
from engine.spark.source_data import KEEP, read_topic
from engine.spark.streams import Stream
from penstock.engine.spark.sources.options import LogAddress
from penstock.engine.spark.sources.record_writer import WrittenRecords
from penstock.engine.spark.sources.sink import SINKS, close_queries, commit_batch, last_batch
from penstock.log import Log, RecordColumns
from penstock.log.errors import Fenced, StagedRecordsGone
from penstock.log.types import Append


@pytest.fixture
def log(source_log: Log) -> Iterator[Log]:
    source_log.create_topic("out", 2, KEEP)
    yield source_log
    close_queries()


def batch_of(log: Log, value: bytes, query: str = "query") -> list[WrittenRecords | None]:
    (staged,) = log.stage_records(RecordColumns([b"k"], [value]))
    return [WrittenRecords((Append("out", 0, staged),), query), WrittenRecords((), query)]


def test_batch_id_is_committed_with_the_records(log: Log) -> None:
    address = LogAddress(log.address)
    assert commit_batch(address, batch_of(log, b"a"), 0)
    assert commit_batch(address, batch_of(log, b"b"), 1)
    assert not commit_batch(address, batch_of(log, b"b"), 1)
    # Another process starts from the log.
    close_queries()
    assert not commit_batch(address, batch_of(log, b"b"), 1)
    assert commit_batch(address, batch_of(log, b"c"), 2)
    assert [value for _, value in read_topic(log, "out")] == [b"a", b"b", b"c"]
    assert last_batch(log, "query") == 2


def test_queries_have_ids_of_their_own(log: Log) -> None:
    address = LogAddress(log.address)
    assert commit_batch(address, batch_of(log, b"a", "one"), 0)
    assert commit_batch(address, batch_of(log, b"b", "two"), 0)
    assert (last_batch(log, "one"), last_batch(log, "two"), last_batch(log, "x")) == (0, 0, -1)


def test_expired_group_offset_does_not_forget_the_batch(log: Log) -> None:
    assert commit_batch(LogAddress(log.address), batch_of(log, b"a"), 0)
    close_queries()
    log.delete_group("penstock-sink-query")
    assert not commit_batch(LogAddress(log.address), batch_of(log, b"a"), 0)


def test_batch_id_survives_compaction(log: Log) -> None:
    for number in range(4):
        assert commit_batch(LogAddress(log.address), batch_of(log, b"%d" % number), number)
    close_queries()
    log.clean([SINKS], force=True)
    assert not commit_batch(LogAddress(log.address), batch_of(log, b"3"), 3)
    assert last_batch(log, "query") == 3


def test_replaced_driver_is_fenced(log: Log) -> None:
    """Two drivers run the same query: the one that took the lease later commits."""
    old = LogAddress(log.address)
    # Another key of the cache stands for another process.
    new = LogAddress(log.address, (("other", "process"),))
    assert commit_batch(old, batch_of(log, b"a"), 0)
    assert commit_batch(new, batch_of(log, b"b"), 1)
    with pytest.raises(Fenced):
        commit_batch(old, batch_of(log, b"b again"), 1)
    assert not commit_batch(old, batch_of(log, b"b again"), 1)
    assert [value for _, value in read_topic(log, "out")] == [b"a", b"b"]


def test_failed_transaction_writes_neither_records_nor_id(log: Log) -> None:
    messages = batch_of(log, b"a")
    assert messages[0] is not None
    log.drop_staged(messages[0].staged())
    with pytest.raises(StagedRecordsGone):
        commit_batch(LogAddress(log.address), messages, 0)
    assert last_batch(log, "query") == -1
    assert commit_batch(LogAddress(log.address), batch_of(log, b"a"), 0)
    assert len(read_topic(log, "out")) == 1


def test_empty_batch_writes_nothing(log: Log) -> None:
    assert commit_batch(LogAddress(log.address), [WrittenRecords((), "query"), None], 0)
    assert SINKS not in [topic.name for topic in log.topics()]


@pytest.mark.spark
@pytest.mark.parametrize("failpoint", ["before-commit", "in-commit", "after-commit"])
def test_killed_commit_is_repeated_once(
    spark: SparkSession, source_log: Log, tmp_path: Path, failpoint: str
) -> None:
    stream = Stream(spark, source_log, tmp_path)
    context = spark.sparkContext
    environment = dict(context.environment)
    context.environment["PENSTOCK_CRASH_AT"] = f"{failpoint}:1:{tmp_path / 'killed'}"
    penstock.spark.register(spark)
    try:
        stream.send("a", "b", "c")
        with pytest.raises(StreamingQueryException):
            stream.run()
        assert (tmp_path / "killed").exists()
        assert stream.written() == (["a", "b", "c"] if failpoint == "after-commit" else [])
        stream.send("d")
        stream.run()
        assert stream.written() == ["a", "b", "c", "d"]
    finally:
        context.environment = environment
        penstock.spark.register(spark)
