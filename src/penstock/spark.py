"""Topics and stores as data of Spark, see docs/spark-data.md.

    penstock.spark.register(spark)
    orders = spark.read.format("penstock").options(log="orders.db", topic="orders").load()
"""

from __future__ import annotations

from typing import Any

from penstock.extras import explain_missing_extra

with explain_missing_extra():
    from penstock.engine.spark import sources


def register(spark: Any) -> None:
    """Register the data source `penstock` in a Spark session.

    With a master on this host, the data source runs in the Python of this process unless
    `PYSPARK_PYTHON` names another one.

    Args:
        spark: The `SparkSession`.
    """
    sources.register(spark)


__all__ = ["register"]
