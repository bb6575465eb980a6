"""`df.write` and `df.writeStream` with the format `penstock`."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from engine.spark.source_data import KEEP, append, read_topic
from engine.spark.streams import Stream
from penstock.log import Log
from penstock.partitioning import partition_of

pytestmark = pytest.mark.spark


def test_dataframe_is_appended(spark: SparkSession, source_log: Log) -> None:
    source_log.create_topic("out", 2, KEEP)
    frame = spark.createDataFrame([("a", 1), ("b", 2), (None, 3)], "key string, n int")
    frame.select("key", f.struct("n").alias("value")).write.format("penstock").options(
        log=source_log.address, topic="out"
    ).mode("append").save()
    assert sorted(read_topic(source_log, "out"), key=repr) == [
        (None, b'{"n":3}'), (b"a", b'{"n":1}'), (b"b", b'{"n":2}'),
    ]
    (batch,) = source_log.read("out", partition_of(b"a", 2), 0)
    assert b"a" in batch.columns().keys


def test_every_part_of_a_record_is_written(spark: SparkSession, source_log: Log) -> None:
    source_log.create_topic("out", 2, KEEP)
    spark.sql(
        "select 7L as key, 'v' as value, 'out' as topic, 1 as partition, "
        "timestamp_millis(5000) as timestamp, "
        "array(struct('h' as key, binary('x') as value)) as headers"
    ).write.format("penstock").option("log", source_log.address).mode("append").save()
    (batch,) = source_log.read("out", 1, 0)
    columns = batch.columns()
    assert columns.keys == [(7).to_bytes(8, "big")]
    assert columns.values == [b"v"]
    assert columns.timestamps == [5000]
    assert columns.headers is not None
    assert [tuple(each) for each in columns.headers] == [(("h", b"x"),)]


def test_failed_task_writes_nothing(spark: SparkSession, source_log: Log) -> None:
    source_log.create_topic("out", 1, KEEP)
    frame = spark.range(0, 4, 1, 2).selectExpr(
        "case when id = 3 then raise_error('no') else string(id) end as value"
    )
    with pytest.raises(PySparkException):
        frame.write.format("penstock").options(log=source_log.address, topic="out").mode(
            "append"
        ).save()
    assert read_topic(source_log, "out") == []


@pytest.mark.parametrize(("columns", "options", "message"), [
    ("'v' as value", {}, "The topic is missing"),
    ("'k' as key", {"topic": "out"}, "The column 'value' is missing"),
    ("'v' as value, 1 as n", {"topic": "out"}, "The column 'n' is no part of a record"),
    ("'v' as value", {"topic": "nowhere"}, "Topic 'nowhere' does not exist"),
    ("'v' as value, 'x' as headers", {"topic": "out"}, "array<struct<key:string,value:binary>>"),
    ("'v' as value, 9 as partition", {"topic": "out"}, "'out' has 1 partition"),
])
def test_rows_that_are_no_records_are_refused(
    spark: SparkSession, source_log: Log, columns: str, options: dict[str, str], message: str
) -> None:
    source_log.create_topic("out", 1, KEEP)
    with pytest.raises(PySparkException) as raised:
        spark.sql(f"select {columns}").write.format("penstock").options(
            log=source_log.address, **options
        ).mode("append").save()
    assert message in str(raised.value)
    assert read_topic(source_log, "out") == []


def test_topic_cannot_be_overwritten(spark: SparkSession, source_log: Log) -> None:
    source_log.create_topic("out", 1, KEEP)
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        spark.sql("select 'v' as value").write.format("penstock").options(
            log=source_log.address, topic="out"
        ).mode("overwrite").save()


@pytest.fixture
def stream(spark: SparkSession, source_log: Log, tmp_path: Path) -> Stream:
    return Stream(spark, source_log, tmp_path)


@pytest.mark.smoke
def test_stream_continues_at_its_checkpoint(stream: Stream) -> None:
    stream.send("a", "b", "c")
    stream.run()
    assert stream.written() == ["a", "b", "c"]
    stream.send("d")
    stream.run()
    assert stream.written() == ["a", "b", "c", "d"]


def test_batches_have_a_limit(stream: Stream) -> None:
    stream.send(*map(str, range(10)))
    query = stream.run(maxOffsetsPerTrigger="4")
    assert stream.written() == sorted(map(str, range(10)))
    assert [each.numInputRows for each in query.recentProgress if each.numInputRows] == [4, 4, 2]


def test_replayed_batch_is_written_once(stream: Stream) -> None:
    stream.send("a", "b")
    stream.run()
    # As after a crash of the driver between the commit of the sink and that of Spark.
    (stream.checkpoint / "commits" / "0").unlink()
    (stream.checkpoint / "commits" / ".0.crc").unlink()
    stream.send("c")
    stream.run()
    assert stream.written() == ["a", "b", "c"]


def test_new_checkpoint_is_a_new_query(stream: Stream) -> None:
    stream.send("a")
    stream.run()
    stream.checkpoint = stream.checkpoint.with_name("other")
    stream.run()
    assert stream.written() == ["a", "a"]


def test_partition_that_is_added_is_read_from_its_start(
    stream: Stream, source_log: Log
) -> None:
    stream.send("a")
    stream.run()
    source_log.add_partitions("in", 3)
    append(source_log, "in", 2, ("b", "b"))
    stream.run()
    assert stream.written() == ["a", "b"]


def test_lost_records_end_the_query(stream: Stream, source_log: Log) -> None:
    stream.send("a")
    stream.run()
    stream.send("b", "c", "d")
    source_log.delete_records("in", 0, 2)
    with pytest.raises(StreamingQueryException) as raised:
        stream.run()
    assert "offset" in str(raised.value)
    stream.run(failOnDataLoss="false")
    assert stream.written() == ["a", "c", "d"]
