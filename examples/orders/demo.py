"""Feeds generated orders to the topology and shows what comes of them.

    python examples/orders/demo.py [--orders 600] [--seed 2022]

No broker, no Java: the topology runs in `TopologyTestDriver`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

if not __package__:
    # Started as a file: the folder of the examples is not on the path yet.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from orders.generate import STORES as ALL_STORES
from orders.generate import generated_orders
from orders.model import Order, Store, TotalRevenueWithAddress
from orders.topology import KINDS, ORDERS, STORES, build
from penstock import Serdes
from penstock.testing import TopologyTestDriver

SNAPSHOTS = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; 0 if the stores agree with a plain sum over the orders."""
    parser = argparse.ArgumentParser(description="The orders application, on generated orders.")
    parser.add_argument("--orders", type=int, default=600, help="how many (default: 600)")
    parser.add_argument("--seed", type=int, default=2022, help="other orders for another seed")
    chosen = parser.parse_args(arguments)
    if chosen.orders < 1:
        parser.error("--orders must be at least 1")
    orders = list(generated_orders(chosen.orders, chosen.seed))
    title(f"{len(orders)} orders of {len(ALL_STORES)} stores, seed {chosen.seed}")
    print("Every order goes through one topology: split by type, re-keyed by store, counted,")
    print("summed, put into windows by the time it was ordered, and joined with its store.\n")
    with TopologyTestDriver(build()) as driver:
        return run(driver, orders)


def run(driver: TopologyTestDriver, orders: list[Order]) -> int:
    """Feed the orders, show the stores on the way, and check them at the end."""
    stores = driver.create_input_topic(STORES, Serdes.string(), Serdes.json(Store))
    stores.pipe_key_value_list((store.location_id, store) for store in ALL_STORES)
    topic = driver.create_input_topic(ORDERS, Serdes.string(), Serdes.json(Order))
    began = time.perf_counter()
    shown = 0.0
    at = {len(orders) * part // SNAPSHOTS for part in range(1, SNAPSHOTS + 1)}
    for number, order in enumerate(orders, 1):
        topic.pipe_input(None, order)
        if number in at:
            paused = time.perf_counter()
            show_totals(driver, number, order)
            shown += time.perf_counter() - paused
    took = time.perf_counter() - began - shown
    show_revenue_windows(driver)
    show_count_windows(driver)
    show_addresses(driver)
    return summary(driver, orders, took)


def show_totals(driver: TopologyTestDriver, number: int, order: Order) -> None:
    """The running counts and revenues: what a query of the stores would answer now."""
    rows = []
    for store in ALL_STORES:
        row: list[Any] = [store.location_id]
        for kind in KINDS:
            count = driver.get_state_store(f"{kind}_orders_count").get(store.location_id)
            total = driver.get_state_store(f"{kind}_orders_revenue").get(store.location_id)
            row += [count.value if count else 0, total.value.running_revenue if total else "0.00"]
        rows.append(row)
    title(f"after {number} orders, at {order.ordered_date_time:%H:%M:%S}")
    table(("store", "general", "revenue", "restaurant", "revenue"), rows)


def show_revenue_windows(driver: TopologyTestDriver) -> None:
    """The newest 15 s windows of general orders."""
    windows = list(driver.get_state_store("general_orders_revenue_window").all())
    newest = sorted({windowed.window.start for windowed, _ in windows})[-3:]
    rows = [
        (
            span(windowed.window), windowed.key,
            found.value.running_order_count, found.value.running_revenue,
        )
        for windowed, found in sorted(windows, key=lambda row: (row[0].window.start, row[0].key))
        if windowed.window.start in newest
    ]
    title("general orders in windows of 15 s (the last three)")
    table(("window", "store", "orders", "revenue"), rows)


def show_count_windows(driver: TopologyTestDriver) -> None:
    """The 60 s windows, stores side by side; late orders are in them if the grace allowed."""
    counts: dict[Any, dict[str, int]] = {}
    for windowed, found in driver.get_state_store("general_orders_count_window").all():
        counts.setdefault(windowed.window, {})[windowed.key] = found.value
    names = [store.location_id for store in ALL_STORES]
    rows = [
        (span(window), *(counts[window].get(name, 0) for name in names))
        for window in sorted(counts)
    ][-5:]
    title("general orders in windows of 60 s, 15 s grace")
    table(("window", *names), rows)


def show_addresses(driver: TopologyTestDriver) -> None:
    """The newest joined record of every store: revenue beside the address."""
    rows = []
    for kind in KINDS:
        topic = driver.create_output_topic(
            f"{kind}-orders-revenue", Serdes.string(), Serdes.json(TotalRevenueWithAddress)
        )
        for name, joined in sorted(topic.read_key_values_to_map().items()):
            address = joined.store.address
            rows.append((
                kind, name, joined.total_revenue.running_revenue,
                f"{address.address_line1}, {address.city} {address.zip}",
            ))
    title("revenue joined with the stores' addresses (newest record of each key)")
    table(("topic of", "store", "revenue", "address"), rows)


def summary(driver: TopologyTestDriver, orders: list[Order], took: float) -> int:
    """Compare the stores with sums over the list of orders, made without any stream."""
    counts: Counter[tuple[str, str]] = Counter()
    revenue: dict[tuple[str, str], Decimal] = {}
    for order in orders:
        key = (order.order_type.value.lower(), order.location_id)
        counts[key] += 1
        revenue[key] = revenue.get(key, Decimal("0.00")) + order.final_amount
    agree = all(
        driver.get_state_store(f"{kind}_orders_count")[store].value == counts[kind, store]
        and driver.get_state_store(f"{kind}_orders_revenue")[store].value.running_revenue
        == revenue[kind, store]
        for kind, store in counts
    )
    late = driver.metrics()["dropped-records-total"]
    title("summary")
    print(f"  {len(orders)} orders, {sum(revenue.values())} in all, in {took:.2f} s,")
    print("  with a commit after every record.")
    print(f"  {late} times an order came too late for its window and was left out of it;")
    print("  running counts and revenues have no windows and include every order.")
    print(f"  The stores {'agree' if agree else 'DO NOT AGREE'} with a plain sum over the orders.")
    return 0 if agree else 1


def title(text: str) -> None:
    print(f"\033[1m{text}\033[0m" if sys.stdout.isatty() else f"== {text}")


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print rows in columns; numbers stand right."""
    rows = [list(row) for row in rows]
    texts = [list(head), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[at]) for line in texts) for at in range(len(head))]
    right = [
        bool(rows) and isinstance(rows[0][at], int | Decimal) for at in range(len(head))
    ]
    for line in (texts[0], ["-" * width for width in widths], *texts[1:]):
        cells = (
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(line, widths, right, strict=True)
        )
        print("  " + "   ".join(cells).rstrip())
    print()


def span(window: Any) -> str:
    """A window as times of the day."""
    start, end = (datetime.fromtimestamp(ms / 1000, UTC) for ms in window)
    return f"{start:%H:%M:%S} - {end:%H:%M:%S}"


if __name__ == "__main__":
    sys.exit(main())
