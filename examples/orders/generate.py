"""Generates orders as stores would send them: some out of order, a few very late.

    python examples/orders/generate.py --log orders.db [--count 1000] [--seed 2022]
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from orders.model import Address, Order, OrderLineItem, OrderType, Store
from penstock import Serdes
from penstock.clients import KafkaException, Producer
from penstock.errors import StreamsException

OPENING = datetime(2022, 12, 5, 8, 55, 0)

STORES = (
    Store("store_1234", Address("1234 Street 1", "", "City1", "State1", "12345"), "1234567890"),
    Store("store_4567", Address("1234 Street 2", "", "City2", "State2", "541321"), "0987654321"),
    Store("store_7890", Address("9 Harbour Road", "Unit 4", "City3", "State1", "20110"), "5550199"),
)

PRICES = {
    OrderType.GENERAL: {
        "Bananas": "1.00", "Iphone Charger": "25.00", "Batteries": "6.49", "Notebook": "3.25",
    },
    OrderType.RESTAURANT: {"Pizza": "6.00", "Coffee": "3.00", "Soup": "4.80", "Tea": "2.10"},
}


def generated_orders(
    count: int, seed: int, gap: timedelta = timedelta(milliseconds=500)
) -> Iterator[Order]:
    """Generate the same orders for the same seed.

    The clock advances by about `gap` per order. One order in ten is up to 6 s late. One in fifty is
    2 minutes late, which is too late for every window.
    """
    chance = random.Random(seed)
    clock = OPENING
    for number in range(1, count + 1):
        clock += gap * chance.randrange(100, 900) / 500
        delay = timedelta()
        if chance.random() < 0.02:
            delay = timedelta(minutes=2)
        elif chance.random() < 0.10:
            delay = timedelta(milliseconds=chance.randrange(6_000))
        yield _order(chance, number, clock - delay)


def _order(chance: random.Random, number: int, moment: datetime) -> Order:
    kind = chance.choice((OrderType.GENERAL, OrderType.GENERAL, OrderType.RESTAURANT))
    prices = PRICES[kind]
    lines = []
    for item in chance.sample(sorted(prices), chance.randrange(1, 4)):
        pieces = chance.randrange(1, 4)
        lines.append(OrderLineItem(item, pieces, pieces * Decimal(prices[item])))
    store = chance.choice(STORES)
    amount = sum((line.amount for line in lines), Decimal("0.00"))
    return Order(number, store.location_id, amount, kind, tuple(lines), moment)


def send_stores(log_address: str) -> None:
    """Send all stores to the topic `stores`."""
    with Producer({"log": log_address}) as producer:
        for store in STORES:
            value = Serdes.json(Store).serialize(store)
            producer.produce("stores", value, key=store.location_id.encode())


def main(arguments: Sequence[str] | None = None) -> int:
    """Send the stores, then orders, to the topics `stores` and `orders` of a log."""
    parser = argparse.ArgumentParser(description="Sends generated orders to a log.")
    parser.add_argument("--log", required=True, metavar="PATH|kafka://HOST:PORT")
    parser.add_argument("--count", type=int, default=1000, help="the number of orders")
    parser.add_argument("--seed", type=int, default=2022, help="seed of the generated orders")
    chosen = parser.parse_args(arguments)
    to_bytes = Serdes.json(Order).serialize
    try:
        send_stores(chosen.log)
        with Producer({"log": chosen.log}) as producer:
            for order in generated_orders(chosen.count, chosen.seed):
                producer.produce("orders", to_bytes(order))
    except (KafkaException, StreamsException) as error:
        raise SystemExit(str(error)) from None
    print(f"Sent {len(STORES)} stores and {chosen.count:,} orders.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
