"""Stores as DataFrames: the data source, `streams.table` and `streams.create_views`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from engine.spark.source_data import KEEP, append, read, rows
from penstock import (
    ConfigException,
    InvalidStateStoreException,
    Materialized,
    Serdes,
    SessionWindows,
    Stores,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    TimeWindows,
    Topology,
)
from penstock.log import Log
from unit.queries.totals import totals_topology

pytestmark = pytest.mark.spark
TIMEOUT_S = 60


@dataclass
class Line:
    item: str
    amount: int


class Basket(msgspec.Struct):
    lines: list[Line]
    total: float = 0.0
    note: str | None = None


def add_to_basket(key: str, value: str, basket: Basket) -> Basket:
    lines = [*basket.lines, Line(value, 1)]
    return Basket(lines, basket.total + 0.5, None)


def topology() -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("words", key=str, value=str)
    grouped = words.group_by_key()
    grouped.count(store="counts")
    grouped.windowed_by(TimeWindows.of(10)).count(store="windows")
    grouped.windowed_by(SessionWindows.of(5)).count(store="sessions")
    grouped.aggregate(
        lambda: Basket([]), add_to_basket, store=Materialized("baskets", value=Basket)
    )
    builder.table("prices", key=str, value=int, store="prices")
    builder.table("rates", key=str, value=float, store=Materialized(
        supplier=Stores.persistent_versioned_key_value_store("rates", timedelta(hours=1))
    ))
    builder.global_table("names", key=str, value=str, store="names")
    return builder.build()


@pytest.fixture
def streams(source_log: Log, tmp_path: Path) -> Iterator[Streams]:
    for name in ("words", "prices", "rates", "names"):
        source_log.create_topic(name, 2, KEEP)
    append(source_log, "words", 0, ("a", "x", 1), ("b", "y", 4), ("a", "z", 12))
    append(source_log, "words", 1, ("c", "x", 40))
    append(source_log, "names", 0, ("1", "one", 1), ("2", "two", 2), ("2", None, 3))
    append(source_log, "names", 1, ("3", "three", 3))
    append(source_log, "prices", 0, ("p", Serdes.long().serialize(5), 1))
    append(source_log, "rates", 0, *[
        ("r", None if rate is None else Serdes.double().serialize(rate), time)
        for rate, time in ((1.0, 10), (2.0, 20), (None, 30), (4.0, 40))
    ])
    streams = Streams(
        topology(),
        StreamsConfig(application_id="shop", log=source_log.address, state_dir=tmp_path / "state"),
        master="inline",
    )
    streams.run_until_caught_up(TIMEOUT_S)
    yield streams
    streams.close(TIMEOUT_S)


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000)


def test_stores_are_read_from_the_log_alone(
    spark: SparkSession, source_log: Log, streams: Streams
) -> None:
    streams.close(TIMEOUT_S)

    def store(name: str, **options: Any) -> list[tuple[Any, ...]]:
        return rows(read(spark, source_log, application="shop", store=name, **options))

    assert store("counts") == [("a", 2, at(12)), ("b", 1, at(4)), ("c", 1, at(40))]
    assert store("windows") == [
        ("a", (at(0), at(10)), 1, at(1)), ("a", (at(10), at(20)), 1, at(12)),
        ("b", (at(0), at(10)), 1, at(4)), ("c", (at(40), at(50)), 1, at(40)),
    ]
    assert store("sessions") == [
        ("a", (at(1), at(1)), 1), ("a", (at(12), at(12)), 1), ("b", (at(4), at(4)), 1),
        ("c", (at(40), at(40)), 1),
    ]
    assert store("rates") == [("r", 4.0, at(40))]
    assert store("names") == [("1", "one", at(1)), ("3", "three", at(3))]
    assert store("rates", versions="all") == [
        ("r", 1.0, at(10), at(20)), ("r", 2.0, at(20), at(30)), ("r", 4.0, at(40), None),
    ]
    frame = read(spark, source_log, application="shop", store="baskets")
    assert frame.schema["value"].dataType.simpleString() == (
        "struct<lines:array<struct<item:string,amount:bigint>>,total:double,note:string>"
    )


def test_changelog_has_every_change(
    spark: SparkSession, source_log: Log, streams: Streams
) -> None:
    frame = read(
        spark, source_log, application="shop", changelog="counts", key_format="string",
        value_format="long",
    )
    assert rows(frame, "key", "value")[-1] == ("c", 1)
    assert "offset" in frame.columns


def test_changelog_has_the_serdes_and_windows_of_its_store(
    spark: SparkSession, source_log: Log, streams: Streams
) -> None:
    def changes(name: str, *columns: str) -> list[tuple[Any, ...]]:
        frame = read(spark, source_log, application="shop", changelog=name)
        return rows(frame.filter("value is not null"), "key", *columns, "value")

    assert changes("counts")[-1] == ("c", 1)
    assert changes("windows", "window") == [
        ("a", (at(0), at(10)), 1), ("a", (at(10), at(20)), 1), ("b", (at(0), at(10)), 1),
        ("c", (at(40), at(50)), 1),
    ]
    assert ("a", (at(12), at(12)), 1) in changes("sessions", "window")
    assert changes("rates") == [("r", 1.0), ("r", 2.0), ("r", 4.0)]
    schema = "key binary, value binary"
    raw = read(
        spark, source_log, schema, application="shop", changelog="windows", key_format="bytes",
        value_format="bytes",
    )
    assert rows(raw)[-1] == (b"c", Serdes.long().serialize(1))


def test_store_as_of_an_offset(spark: SparkSession, source_log: Log, streams: Streams) -> None:
    append(source_log, "words", 1, ("c", "y", 41))
    streams.run_until_caught_up(TIMEOUT_S)

    def counts(**options: Any) -> list[tuple[Any, ...]]:
        frame = read(spark, source_log, application="shop", store="counts", **options)
        return rows(frame, "key", "value")

    assert counts() == [("a", 2), ("b", 1), ("c", 2)]
    assert counts(endingOffsets='{"0": 0, "1": 1}') == [("c", 1)]
    assert counts(endingTimestamp="41") == [("a", 2), ("b", 1), ("c", 1)]


def test_source_topic_as_store_ends_at_the_committed_offset(
    spark: SparkSession, source_log: Log, tmp_path: Path
) -> None:
    source_log.create_topic("prices", 1, KEEP)
    append(source_log, "prices", 0, ("p", "5"))
    config = StreamsConfig(
        application_id="optimized", log=source_log.address, state_dir=tmp_path / "state",
        topology_optimization="all",
    )
    builder = StreamsBuilder()
    builder.table("prices", key=str, value=str, store="prices")
    with Streams(builder.build(config), config, master="inline") as streams:
        streams.run_until_caught_up(TIMEOUT_S)
    append(source_log, "prices", 0, ("q", "6"))
    frame = read(spark, source_log, application="optimized", store="prices")
    assert rows(frame, "key", "value") == [("p", "5")]
    assert rows(streams.table("prices", spark=spark), "key", "value") == [("p", "5")]


def test_unknown_stores_are_listed(
    spark: SparkSession, source_log: Log, streams: Streams
) -> None:
    with pytest.raises(PySparkException) as raised:
        read(spark, source_log, application="shop", store="count")
    assert "Application 'shop' has no store 'count'. Did you mean 'counts'?" in str(raised.value)
    with pytest.raises(PySparkException) as raised:
        read(spark, source_log, application="shp", store="counts")
    assert "Application 'shp' has no store 'counts' in this log. Did you mean 'shop'?" in str(
        raised.value
    )
    with pytest.raises(InvalidStateStoreException, match="Did you mean 'counts'"):
        streams.table("count", spark=spark)


@pytest.mark.smoke
def test_table_has_the_types_of_the_topology(spark: SparkSession, streams: Streams) -> None:
    table = streams.table("baskets", spark=spark)
    assert table.schema.simpleString() == (
        "struct<key:string,value:struct<lines:array<struct<item:string,amount:bigint>>,"
        "total:double,note:string>,timestamp:timestamp>"
    )
    assert rows(table, "key", "value.total", "value.lines.item") == [
        ("a", 1.0, ["x", "z"]), ("b", 0.5, ["y"]), ("c", 0.5, ["x"]),
    ]


def test_table_of_a_global_store(spark: SparkSession, streams: Streams) -> None:
    table = streams.table("names", spark=spark)
    assert rows(table, "key", "value") == [("1", "one"), ("3", "three")]


def test_table_uses_the_active_session(spark: SparkSession, streams: Streams) -> None:
    assert streams.table("counts").count() == 3


def test_table_does_not_change_while_the_application_continues(
    spark: SparkSession, source_log: Log, streams: Streams
) -> None:
    before = streams.table("counts", spark=spark)
    append(source_log, "words", 1, ("c", "y", 41), ("d", "y", 42))
    streams.run_until_caught_up(TIMEOUT_S)
    after = streams.table("counts", spark=spark)
    assert rows(before, "key", "value") == [("a", 2), ("b", 1), ("c", 1)]
    assert rows(after, "key", "value") == [("a", 2), ("b", 1), ("c", 2), ("d", 1)]


def test_views_join_in_sql(spark: SparkSession, streams: Streams) -> None:
    assert streams.create_views(spark) == [
        "baskets", "counts", "names", "prices", "rates", "sessions", "windows",
    ]
    found = spark.sql(
        "select counts.key, counts.value, baskets.value.total from counts "
        "join baskets on counts.key = baskets.key where counts.value > 1"
    )
    assert [tuple(row) for row in found.collect()] == [("a", 2, 1.0)]


def test_expired_windows_are_not_in_the_table(
    spark: SparkSession, source_log: Log, streams: Streams
) -> None:
    # The windows are kept for their size. Those of partition 0 expire with its own time.
    append(source_log, "words", 0, ("a", "x", 100))
    streams.run_until_caught_up(TIMEOUT_S)
    table = streams.table("windows", spark=spark)
    assert rows(table, "key", "window.start") == [("a", at(100)), ("c", at(40))]


def test_custom_store_is_read_as_a_changelog_only(
    spark: SparkSession, source_log: Log, tmp_path: Path
) -> None:
    source_log.create_topic("words", 1, KEEP)
    append(source_log, "words", 0, ("a", "tea", 1))
    config = StreamsConfig(
        application_id="words", log=source_log.address, state_dir=tmp_path / "state"
    )
    with Streams(totals_topology(), config, master="inline") as streams:
        streams.run_until_caught_up(TIMEOUT_S)
    with pytest.raises(
        ConfigException, match=r"its kind is custom\. The option 'changelog' reads its changes"
    ):
        streams.table("totals", spark=spark)
    assert streams.create_views(spark) == ["latest"]
    changes = read(spark, source_log, application="words", changelog="totals")
    assert [(bytes(row.key), bytes(row.value)) for row in changes.collect()] == [(b"tea", b"1")]


def test_application_that_has_not_run_has_no_table(
    spark: SparkSession, source_log: Log, tmp_path: Path
) -> None:
    streams = Streams(
        topology(), StreamsConfig(application_id="new", log=source_log.address, state_dir=tmp_path)
    )
    with pytest.raises(ConfigException, match="has not run on this log yet"):
        streams.table("counts", spark=spark)
