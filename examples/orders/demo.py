"""Orders come in, the application runs on Spark, and its tables are shown while it does.

    python examples/orders/demo.py [--seconds 10] [--rate 500] [--log PATH|kafka://HOST:PORT]

Needs Java 17 and nothing else: the topics are in a file, in a folder that is gone afterwards. With
--log they are in a log of yours, which may be a Kafka cluster, and stay there.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

if not __package__:
    # Started as a file: the folder of the examples is not on the path yet. Spark's workers need
    # it as well.
    FOLDER = str(Path(__file__).resolve().parents[1])
    sys.path.insert(0, FOLDER)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, (FOLDER, os.environ.get("PYTHONPATH")))
    )

from orders.follow import Tables, all_tables, follow
from orders.generate import STORES as ALL_STORES
from orders.generate import generated_orders
from orders.model import Order, Store
from orders.screen import Screen, picture
from orders.topology import KINDS, ORDERS, STORES, build
from penstock import Serdes, Streams, StreamsConfig
from penstock.clients import Producer
from penstock.errors import StreamsException
from penstock.log import Log, open_log

APPLICATION = "orders-demo"
#: Orders go to the log so often a second, a few at a time.
SENDS_A_SECOND = 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; 0 if the tables agree with a plain sum over the orders."""
    parser = argparse.ArgumentParser(description="The orders application, on generated orders.")
    parser.add_argument("--seconds", type=float, default=10, help="how long orders come in")
    parser.add_argument("--rate", type=int, default=500, help="orders a second")
    parser.add_argument("--seed", type=int, default=2022, help="other orders for another seed")
    parser.add_argument("--partitions", type=int, default=2, help="of the topics")
    parser.add_argument(
        "--log", metavar="PATH|kafka://HOST:PORT",
        help="a log to work on (default: a file that is gone afterwards)",
    )
    parser.add_argument(
        "--again", action="store_true", help="first delete what an earlier demo left in the log"
    )
    parser.add_argument("--master", default="local[2]", help="the Spark master")
    chosen = parser.parse_args(arguments)
    if chosen.rate < 1 or chosen.seconds <= 0 or chosen.partitions < 1:
        parser.error("--rate, --seconds and --partitions must be more than 0")
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder:
        address = chosen.log or str(Path(folder) / "orders.db")
        with opened(address) as log:
            if chosen.again:
                forget(log)
            create_topics(log, chosen.partitions)
            return run(log, chosen, state_dir=str(Path(folder) / "state"))


def opened(address: str) -> Log:
    """The log; if there is none, that is all there is to say."""
    try:
        return open_log(address)
    except StreamsException as error:
        raise SystemExit(f"{error}") from None


def topic_names() -> list[str]:
    """The topics that the application reads and writes."""
    return [ORDERS, STORES, *(f"{kind}-orders{end}" for kind in KINDS for end in ("", "-revenue"))]


def forget(log: Log) -> None:
    """Delete the topics and what the application has kept: the next demo begins at zero."""
    names = topic_names()
    for topic in log.topics():
        if topic.name in names or topic.name.startswith(f"{APPLICATION}-"):
            log.delete_topic(topic.name)
    if APPLICATION in log.groups():
        log.delete_group(APPLICATION)


def create_topics(log: Log, partitions: int) -> None:
    """The topics of the application; those of somebody else are not for the demo."""
    there = {topic.name for topic in log.topics()}
    names = topic_names()
    for name in names:
        if name in there:
            raise SystemExit(
                f"There is a topic '{name}' already. The demo makes its topics itself.\n"
                "Choose another log, or let --again delete those of an earlier demo."
            )
    for name in names:
        # The orders are of the year 2022 and must not be taken for old ones.
        log.create_topic(name, partitions, {"retention.ms": -1})


def run(log: Log, chosen: argparse.Namespace, *, state_dir: str) -> int:
    """Let orders come in while the application runs; show it, and check it at the end."""
    orders = list(generated_orders(int(chosen.rate * chosen.seconds), chosen.seed))
    batches: list[Any] = []
    streams = Streams(
        build(),
        StreamsConfig(
            application_id=APPLICATION, log=log.address, state_dir=state_dir, num_stream_threads=2
        ),
        master=chosen.master, on_batch=batches.append,
    )
    screen = Screen()
    screen.show([
        screen.title("orders: split by type, re-keyed by store, counted, summed, windowed, joined"),
        f"{len(orders):,} orders of {len(ALL_STORES)} stores will come in, "
        f"{chosen.rate:,} a second. Starting on {chosen.master} ...",
    ])
    send_stores(log)
    with streams:
        streams.run_until_caught_up()
        till = Till(log, orders, chosen.rate)
        began = time.monotonic()
        till.start()
        tables = all_tables(log, APPLICATION)
        watch = Watch(screen, log, tables, batches)
        while not (till.has_sent == len(orders) and streams.is_caught_up(0.1)):
            watch.look(till.has_sent, streams.lag() or 0)
            time.sleep(0.05)
        took = time.monotonic() - began
        follow(log, tables)
    return summary(screen, orders, batches, tables, took)


def send_stores(log: Log) -> None:
    with Producer({"log": log.address}) as producer:
        for store in ALL_STORES:
            value = Serdes.json(Store).serialize(store)
            producer.produce(STORES, value, key=store.location_id.encode())


class Till(threading.Thread):
    """Sends orders, so many a second."""

    def __init__(self, log: Log, orders: list[Order], rate: int) -> None:
        super().__init__(name="till", daemon=True)
        self._address = log.address
        self._orders = orders
        self._rate = rate
        #: Written by the thread: how many are in the log.
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
    """Shows the tables as they are: five times a second on a terminal, elsewhere now and then."""

    def __init__(
        self, screen: Screen, log: Log, tables: Mapping[str, Tables], batches: list[Any]
    ) -> None:
        self._screen = screen
        self._log = log
        self._tables = tables
        self._batches = batches
        self._every = 0.2 if screen.is_terminal else 3.0
        self._shown_at = time.monotonic()

    def look(self, sent: int, to_go: int) -> None:
        """Show them, if it is time."""
        if time.monotonic() - self._shown_at < self._every:
            return
        follow(self._log, self._tables)
        done = sum(each.orders() for each in self._tables.values())
        latest = self._batches[-1]
        self._screen.show([
            *picture(
                self._screen,
                f"{done:,} of {sent:,} orders, batch {latest.number}, "
                f"{latest.seconds * 1000:,.0f} ms, {to_go:,} to go",
                self._tables,
            ),
            "",
        ])
        self._shown_at = time.monotonic()


def summary(
    screen: Screen, orders: list[Order], batches: list[Any], tables: Mapping[str, Tables],
    took: float,
) -> int:
    """Compare the tables with sums over the list of orders, made without any stream."""
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
    # The first batch starts the workers, and holds no order yet.
    worked = [batch for batch in batches[1:] if batch.records]
    times = sorted(batch.seconds * 1000 for batch in worked)
    late = sum(
        counters.get("dropped-records-total", 0)
        for batch in batches for counters in batch.counters.values()
    )
    print()
    print(screen.title("summary"))
    print(f"  {len(orders):,} orders, {sum(revenue.values()):,} in all, in {took:.1f} s: "
          f"{len(orders) / took:,.0f} a second.")
    print(f"  {len(worked):,} batches, each {statistics.median(times):,.0f} ms in the median and "
          f"{times[-1]:,.0f} ms at most.")
    print(f"  {late:,} times an order came too late for its window and was left out of it.")
    print(f"  The tables {'agree' if agree else 'DO NOT AGREE'} with a plain sum over the orders.")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
