"""Generates orders of stores, and the master data of the stores as a Parquet file."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession
from showcase import Input

from parquet_join.topology import ORDERS, Order

#: id, name, region. The last one has no orders yet.
STORES = (
    ("s-01", "Harbour", "north"),
    ("s-02", "Old Town", "north"),
    ("s-03", "Station", "south"),
    ("s-04", "Airport", "south"),
    ("s-05", "Mill Lane", "south"),
)
#: How many orders the stores receive, relative to each other.
_WEIGHTS = (5, 3, 8, 4, 0)
#: 2026-11-17T09:00:00Z
_OPENING_MS = 1_794_906_000_000


def generated_orders(first: int, count: int) -> Iterator[Input]:
    """Generate orders with the numbers from `first` on; the same orders for the same numbers."""
    ids = [id_ for id_, _, _ in STORES]
    for number in range(first, first + count):
        chance = random.Random(number)
        store = chance.choices(ids, _WEIGHTS)[0]
        order = Order(number, chance.randrange(150, 9_000))
        yield Input(ORDERS, store, order, _OPENING_MS + 700 * number)


def write_stores(spark: SparkSession, path: Path) -> None:
    """Write the master data of the stores."""
    frame = spark.createDataFrame(STORES, "id string, name string, region string")
    frame.coalesce(1).write.parquet(str(path))
