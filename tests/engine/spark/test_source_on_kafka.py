"""The data source over a Kafka cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from engine.spark.source_data import append, read, rows
from engine.spark.streams import Stream
from kafka.cluster import clear
from penstock import Streams, StreamsBuilder, StreamsConfig
from penstock.broker.cluster import ClusterStatus
from penstock.engine.spark.sources.sink import close_queries
from penstock.log import Log, open_log

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
TIMEOUT_S = 120


@pytest.fixture
def kafka_log(penstock_broker: ClusterStatus) -> Iterator[Log]:
    with open_log(clear(penstock_broker.address)) as log:
        yield log
        close_queries()


def test_topics_stores_and_streams(
    spark: SparkSession, kafka_log: Log, tmp_path: Path
) -> None:
    stream = Stream(spark, kafka_log, tmp_path)
    stream.send("a", "b", "a")
    stream.run()
    assert stream.written() == ["a", "a", "b"]
    # As after a crash of the driver between the commit of the sink and that of Spark.
    (stream.checkpoint / "commits" / "0").unlink()
    (stream.checkpoint / "commits" / ".0.crc").unlink()
    stream.send("c")
    stream.run()
    assert stream.written() == ["a", "a", "b", "c"]

    builder = StreamsBuilder()
    builder.stream("out", key=str, value=str).group_by_key().count(store="counts")
    config = StreamsConfig(
        application_id="app", log=kafka_log.address, state_dir=tmp_path / "state"
    )
    with Streams(builder.build(), config, master="inline") as streams:
        streams.run_until_caught_up(TIMEOUT_S)
        table = streams.table("counts", spark=spark)
        append(kafka_log, "out", 0, ("d", "d"))
        streams.run_until_caught_up(TIMEOUT_S)
    assert rows(table, "key", "value") == [("a", 2), ("b", 1), ("c", 1)]
    frame = read(spark, kafka_log, application="app", store="counts")
    assert rows(frame, "key", "value") == [("a", 2), ("b", 1), ("c", 1), ("d", 1)]
    topic = read(spark, kafka_log, topic="out", key_format="string")
    assert rows(topic, "key") == [("a",), ("a",), ("b",), ("c",), ("d",)]
