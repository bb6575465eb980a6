"""The totals of the application, joined with the master data of the stores."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from parquet_join.topology import TOTALS
from penstock import Streams

_REPORT = """
    SELECT stores.region, stores.name AS store,
           coalesce(totals.value.orders, 0) AS orders,
           coalesce(totals.value.revenue_cents, 0) / 100 AS revenue
    FROM {stores} AS stores LEFT JOIN {totals} AS totals ON totals.key = stores.id
    ORDER BY region, store
"""


def report(streams: Streams, spark: SparkSession, stores: Path) -> DataFrame:
    """One row for each store, at one commit of the application. It does not change later."""
    totals = streams.table(TOTALS, spark=spark)
    return spark.sql(_REPORT, stores=spark.read.parquet(str(stores)), totals=totals)
