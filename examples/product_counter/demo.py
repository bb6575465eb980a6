"""Runs the product counter example."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from showcase import START_MS, Input, Showcase, Types, main

from penstock import ReadOnlyKeyValueStore, Streams
from product_counter.topology import COUNTS, LOGS, STORE, build


def inputs() -> Iterator[Input]:
    """Views of three products within three seconds."""
    for time in range(0, 3_001, 250):
        yield Input(LOGS, time // 250 % 3 + 1, "browser", START_MS + time)


def show(streams: Streams, folder: Path) -> None:
    """Query the store, which has the counts of all partitions."""
    print(f"\n== store {STORE}")
    with streams.store(STORE, ReadOnlyKeyValueStore[int, int]).all() as counts:
        for product, count in sorted(counts):
            print(f"  {product}: {count}")


PRODUCT_COUNTER_DEMO = Showcase(
    "streams-example", "product counter: the Processor API; all counts, every second", build,
    inputs, {COUNTS: Types(int, int)}, show=show,
)

if __name__ == "__main__":
    sys.exit(main(PRODUCT_COUNTER_DEMO))
