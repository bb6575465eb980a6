"""Parquet join: the report has the totals of one commit, and the master data of every store."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from showcase import Input, send

from parquet_join.generate import STORES, generated_orders, write_stores
from parquet_join.report import report
from parquet_join.topology import ORDERS, TOTALS, Order, Totals, build
from penstock import Streams, StreamsConfig
from penstock.log import open_log
from penstock.testing import TopologyTestDriver

TIMEOUT_S = 120


def test_totals_of_a_store_grow_with_its_orders() -> None:
    with TopologyTestDriver(build()) as driver:
        orders = driver.create_input_topic(ORDERS, str, Order)
        orders.pipe_key_value_list([("a", Order(1, 250)), ("b", Order(2, 99)), ("a", Order(3, 50))])
        store = driver.get_key_value_store(TOTALS)
        assert dict(store.all()) == {"a": Totals(2, 300), "b": Totals(1, 99)}


def test_orders_depend_on_their_numbers_only() -> None:
    whole = list(generated_orders(0, 60))
    assert [*generated_orders(0, 20), *generated_orders(20, 40)] == whole
    assert {record.key for record in whole} == {id_ for id_, name, _ in STORES[:-1]}


def rows(frame: DataFrame) -> list[tuple[str, str, int, float]]:
    return [tuple(row) for row in frame.collect()]


def expected_rows(orders: list[Input]) -> list[tuple[str, str, int, float]]:
    """The report as a plain sum over the orders."""
    counts = Counter(order.key for order in orders)
    cents: Counter[str] = Counter()
    for order in orders:
        cents[order.key] += order.value.amount_cents
    return sorted(
        (region, name, counts[id_], cents[id_] / 100) for id_, name, region in STORES
    )


@pytest.mark.slow
@pytest.mark.spark
def test_report_joins_the_running_application_with_the_file(tmp_path: Path) -> None:
    address = str(tmp_path / "log.db")
    config = StreamsConfig(
        application_id="parquet-join", log=address, state_dir=str(tmp_path / "state")
    )
    first, more = list(generated_orders(0, 100)), list(generated_orders(100, 150))
    with open_log(address) as log:
        log.create_topic(ORDERS, 2, {"retention.ms": -1})
        send(log, first)
        with Streams(build(), config, master="local[2]") as streams:
            streams.run_until_caught_up(TIMEOUT_S)
            spark = SparkSession.builder.getOrCreate()
            write_stores(spark, tmp_path / "stores.parquet")
            before = report(streams, spark, tmp_path / "stores.parquet")
            send(log, more)
            streams.run_until_caught_up(TIMEOUT_S)
            after = report(streams, spark, tmp_path / "stores.parquet")
            # A report keeps its commit, although the application has continued.
            assert rows(before) == expected_rows(first)
            assert rows(after) == expected_rows([*first, *more])
