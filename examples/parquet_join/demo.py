"""Runs the Parquet join example: two reports of the same application, while it runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pyspark.sql import DataFrame, SparkSession
from showcase import Input, Showcase, main, send

import penstock.spark
from parquet_join.generate import generated_orders, write_stores
from parquet_join.report import report
from parquet_join.topology import build
from penstock import Streams
from penstock.log import open_log

FIRST, MORE = 300, 500


def inputs() -> Iterator[Input]:
    """The orders of the first report."""
    return generated_orders(0, FIRST)


def show(streams: Streams, folder: Path) -> None:
    """Write the Parquet file, and join it with the table before and after more orders."""
    # A session of the application's Spark. With `--master inline`, this starts Spark.
    spark = (
        SparkSession.builder.config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR").getOrCreate()
    )
    penstock.spark.register(spark)
    stores = folder / "stores.parquet"
    write_stores(spark, stores)
    print(f"\n== the table of the running application, joined with {stores.name}")
    print_rows(report(streams, spark, stores))

    with open_log(streams.config.log) as log:
        count = send(log, generated_orders(FIRST, MORE))
    streams.run_until_caught_up()
    print(f"\n== after {count} more orders")
    print_rows(report(streams, spark, stores))


def print_rows(frame: DataFrame) -> None:
    """Print a report."""
    print(f"  {'region':8}{'store':10}{'orders':>8}{'revenue':>12}")
    for row in frame.collect():
        print(f"  {row.region:8}{row.store:10}{row.orders:8,}{row.revenue:12,.2f}")


PARQUET_JOIN_DEMO = Showcase(
    "parquet-join", "Parquet join: a live table in Spark SQL", build, inputs, show=show
)

if __name__ == "__main__":
    sys.exit(main(PARQUET_JOIN_DEMO))
