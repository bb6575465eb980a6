"""Registers the data source `penstock` in every Spark session of a Python with penstock.

Spark imports the modules whose names start with `pyspark_` and registers their `DefaultSource`.
"""

from __future__ import annotations

from penstock.engine.spark.sources import PenstockDataSource as DefaultSource

__all__ = ["DefaultSource"]
