"""Runs the stock ticker example."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from showcase import START_MS, Input, Showcase, Types, main

from stock_ticker.topology import LATEST, PRICES, build

SYMBOLS = {"ACME": 42.0, "INIT": 7.5, "HOOL": 180.0}


def inputs() -> Iterator[Input]:
    """A random walk of three prices."""
    chance = random.Random(11)
    prices = dict(SYMBOLS)
    for number in range(3000):
        symbol = chance.choice(sorted(prices))
        prices[symbol] = round(prices[symbol] * chance.uniform(0.99, 1.01), 2)
        yield Input(PRICES, symbol, prices[symbol], START_MS + number)


STOCK_TICKER_DEMO = Showcase(
    "stock-ticker", "stock ticker: the latest price of each symbol", build, inputs,
    {LATEST: Types(str, float, latest=True)},
)

if __name__ == "__main__":
    sys.exit(main(STOCK_TICKER_DEMO))
