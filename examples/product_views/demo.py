"""Runs the product views example."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from showcase import START_MS, Input, Showcase, Types, main

from product_views.topology import ALERTS, VIEWS, build


def inputs() -> Iterator[Input]:
    """The views of ten products; some are much more popular than others."""
    chance = random.Random(7)
    for number in range(6000):
        product = min(chance.randrange(1, 11), chance.randrange(1, 11), chance.randrange(1, 11))
        yield Input(VIEWS, product, f"browser-{chance.randrange(50)}", START_MS + number)


PRODUCT_VIEWS_DEMO = Showcase(
    "product-views", "product views: an alert for each product with 1,000 views", build, inputs,
    {ALERTS: Types(int, str)},
)

if __name__ == "__main__":
    sys.exit(main(PRODUCT_VIEWS_DEMO))
