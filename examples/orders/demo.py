"""Runs the orders application on Spark while orders arrive, and shows its tables.

    python examples/orders/demo.py [--seconds 10] [--rate 500] [--log PATH|kafka://HOST:PORT]

Needs Java 17, except with --master inline. By default the topics are in a temporary file. With
--log they are in the given log, which may be a Kafka cluster, and are kept.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

if not __package__:
    # Started as a file: add the examples folder to the path, also for Spark's workers.
    FOLDER = str(Path(__file__).resolve().parents[1])
    sys.path.insert(0, FOLDER)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, (FOLDER, os.environ.get("PYTHONPATH")))
    )

from showcase import create_topics

from orders.follow import Tables, all_tables, follow
from orders.generate import STORES as ALL_STORES
from orders.generate import generated_orders, send_stores
from orders.model import Order
from orders.screen import Screen, picture
from orders.topology import KINDS, ORDERS, STORES, build
from penstock import Serdes, Streams, StreamsConfig
from penstock.clients import Producer
from penstock.errors import StreamsException
from penstock.log import Log, open_log

APPLICATION = "orders-demo"
#: How many times per second a few orders are appended to the log.
SENDS_A_SECOND = 20
#: The clock of the orders is so many times as fast as ours, so that a few seconds fill several
#: windows. With a faster one, tasks that are a moment behind the others would drop orders as late.
CLOCK_SPEED = 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo. Returns 0 if the tables agree with a plain sum over the orders."""
    parser = argparse.ArgumentParser(description="The orders application, on generated orders.")
    parser.add_argument("--seconds", type=float, default=10, help="how long orders arrive")
    parser.add_argument("--rate", type=int, default=500, help="orders per second")
    parser.add_argument("--seed", type=int, default=2022, help="seed of the generated orders")
    parser.add_argument("--partitions", type=int, default=2, help="partitions of the topics")
    parser.add_argument(
        "--log", metavar="PATH|kafka://HOST:PORT",
        help="the log to use (default: a temporary file)",
    )
    parser.add_argument("--master", default="local[2]", help="the Spark master, or inline")
    chosen = parser.parse_args(arguments)
    if chosen.rate < 1 or chosen.seconds <= 0 or chosen.partitions < 1:
        parser.error("--rate, --seconds and --partitions must be more than 0")
    # Some orders arrive late on purpose. penstock would warn about them.
    logging.getLogger("penstock").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder:
        address = chosen.log or str(Path(folder) / "orders.db")
        with opened(address) as log:
            create_topics(log, APPLICATION, topic_names(), chosen.partitions)
            return run(log, chosen, state_dir=str(Path(folder) / "state"))


def opened(address: str) -> Log:
    """Open the log, or exit with the error."""
    try:
        return open_log(address)
    except StreamsException as error:
        raise SystemExit(f"{error}") from None


def topic_names() -> list[str]:
    """The topics that the application reads and writes."""
    return [ORDERS, STORES, *(f"{kind}-orders{end}" for kind in KINDS for end in ("", "-revenue"))]


def run(log: Log, chosen: argparse.Namespace, *, state_dir: str) -> int:
    """Run the application while orders arrive, show its tables, and check them at the end."""
    gap = timedelta(seconds=CLOCK_SPEED / chosen.rate)
    orders = list(generated_orders(int(chosen.rate * chosen.seconds), chosen.seed, gap))
    commits: list[Any] = []
    streams = Streams(
        build(),
        StreamsConfig(
            application_id=APPLICATION, log=log.address, state_dir=state_dir, num_stream_threads=2
        ),
        master=chosen.master, on_batch=commits.append,
    )
    screen = Screen()
    screen.show([
        screen.title("orders: split by type, re-keyed by store, counted, summed, windowed, joined"),
        f"{len(orders):,} orders of {len(ALL_STORES)} stores will arrive, "
        f"{chosen.rate:,} per second. Starting on {chosen.master} ...",
    ])
    send_stores(log.address)
    with streams:
        streams.run_until_caught_up()
        till = Till(log, orders, chosen.rate)
        began = time.monotonic()
        till.start()
        tables = all_tables(log, APPLICATION)
        watch = Watch(screen, log, tables, commits)
        while not (till.has_sent == len(orders) and streams.is_caught_up(0.1)):
            watch.look(till.has_sent, streams.lag() or 0)
            time.sleep(0.05)
        took = time.monotonic() - began
        follow(log, tables)
    return summary(screen, orders, commits, tables, took)


class Till(threading.Thread):
    """Sends orders at a fixed rate."""

    def __init__(self, log: Log, orders: list[Order], rate: int) -> None:
        super().__init__(name="till", daemon=True)
        self._address = log.address
        self._orders = orders
        self._rate = rate
        #: The number of orders in the log; written by the thread.
        self.has_sent = 0

    def run(self) -> None:
        to_bytes = Serdes.json(Order).serialize
        began = time.monotonic()
        with Producer({"log": self._address, "linger.ms": 0}) as producer:
            while self.has_sent < len(self._orders):
                due = min(len(self._orders), int((time.monotonic() - began) * self._rate) + 1)
                for order in self._orders[self.has_sent : due]:
                    producer.produce(ORDERS, to_bytes(order))
                producer.flush()
                self.has_sent = due
                time.sleep(1 / SENDS_A_SECOND)


class Watch:
    """Shows the tables: five times per second on a terminal, otherwise every three seconds."""

    def __init__(
        self, screen: Screen, log: Log, tables: Mapping[str, Tables], commits: list[Any]
    ) -> None:
        self._screen = screen
        self._log = log
        self._tables = tables
        self._commits = commits
        self._every = 0.2 if screen.is_terminal else 3.0
        self._shown_at = time.monotonic()

    def look(self, sent: int, to_go: int) -> None:
        """Show the tables if the interval has passed."""
        if time.monotonic() - self._shown_at < self._every:
            return
        follow(self._log, self._tables)
        done = sum(each.orders() for each in self._tables.values())
        latest = self._commits[-1]
        self._screen.show([
            *picture(
                self._screen,
                f"{done:,} of {sent:,} orders, commit {latest.number}, "
                f"{latest.seconds * 1000:,.0f} ms, {to_go:,} to go",
                self._tables,
            ),
            "",
        ])
        self._shown_at = time.monotonic()


def summary(
    screen: Screen, orders: list[Order], commits: list[Any], tables: Mapping[str, Tables],
    took: float,
) -> int:
    """Compare the tables with sums over the list of orders, computed without streams."""
    screen.show(picture(screen, f"{len(orders):,} orders", tables))
    counts: Counter[tuple[str, str]] = Counter()
    revenue: dict[tuple[str, str], Decimal] = {}
    for order in orders:
        key = (order.order_type.value.lower(), order.location_id)
        counts[key] += 1
        revenue[key] = revenue.get(key, Decimal("0.00")) + order.final_amount
    found = {
        (kind, location): (count, amount)
        for kind in KINDS for location, count, amount in tables[kind].totals()
    }
    agree = found == {key: (counts[key], revenue[key]) for key in counts}
    # The first commit starts the workers and contains no orders.
    times = [commit.seconds * 1000 for commit in commits[1:] if commit.records]
    print()
    print(screen.title("summary"))
    print(f"  {len(orders):,} orders, {sum(revenue.values()):,} in all, in {took:.1f} s: "
          f"{len(orders) / took:,.0f} per second.")
    print(f"  {len(times):,} commits: median {statistics.median(times):,.0f} ms, "
          f"maximum {max(times):,.0f} ms.")
    late = [len(orders) - counted for counted in in_windows(tables)]
    print(f"  {late[0]:,} orders came too late for their window of 15 s, "
          f"{late[1]:,} for that of 60 s.")
    print(f"  The tables {'agree' if agree else 'DO NOT AGREE'} with a plain sum over the orders.")
    return 0 if agree else 1


def in_windows(tables: Mapping[str, Tables]) -> tuple[int, int]:
    """The number of orders in the windows of 15 s, and in those of 60 s."""
    return (
        sum(
            total.running_order_count
            for each in tables.values() for total in each.revenue_windows.rows.values()
        ),
        sum(count for each in tables.values() for count in each.count_windows.rows.values()),
    )


if __name__ == "__main__":
    sys.exit(main())
