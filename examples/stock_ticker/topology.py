"""The latest price of each symbol: a table keeps the last value of each key.

    prices ─ table (store latest-prices) ─ latest-prices
"""

from __future__ import annotations

from penstock import StreamsBuilder, Topology

PRICES = "prices"
LATEST = "latest-prices"


def build() -> Topology:
    """The whole application."""
    builder = StreamsBuilder()
    builder.table(PRICES, key=str, value=float, store=LATEST).to_stream().to(LATEST)
    return builder.build()
