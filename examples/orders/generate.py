"""Generates orders as stores would send them: some out of order, a few very late."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal

from orders.model import Address, Order, OrderLineItem, OrderType, Store

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


def generated_orders(count: int, seed: int) -> Iterator[Order]:
    """Generate the same orders for the same seed.

    The clock advances by about half a second per order. One order in ten is up to 6 s late. One in
    fifty is 2 minutes late, which is too late for every window.
    """
    chance = random.Random(seed)
    clock = OPENING
    for number in range(1, count + 1):
        clock += timedelta(milliseconds=chance.randrange(100, 900))
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
