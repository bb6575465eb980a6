"""Generates the orders of all benchmarks: about 130 bytes of JSON, keyed by customer."""

from __future__ import annotations

import random
from typing import NamedTuple


class Orders(NamedTuple):
    """Columns of records: keys, values, timestamps."""

    keys: list[bytes]
    values: list[bytes]
    timestamps: list[int]


def orders(count: int, *, keys: int = 100_000, locations: int = 1_000, seed: int = 7) -> Orders:
    """Generate `count` orders with random keys, 1 ms apart."""
    chance = random.Random(seed)
    start = 1_670_230_527_000
    records = Orders([], [], [])
    for number in range(count):
        kind = "GENERAL" if chance.random() < 0.7 else "RESTAURANT"
        amount = chance.randrange(100, 20_000) / 100
        location = f"store_{chance.randrange(locations)}"
        records.keys.append(b"customer_%d" % chance.randrange(keys))
        records.values.append(
            b'{"orderId":%d,"locationId":"%b","finalAmount":%.2f,"orderType":"%b",'
            b'"orderedDateTime":"2022-12-05T08:55:27"}'
            % (number, location.encode(), amount, kind.encode())
        )
        records.timestamps.append(start + number)
    return records
