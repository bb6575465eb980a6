"""The orders and the revenue of each store, as a running total.

    store-orders ── group_by_key ── aggregate ── store-totals (a store)

No topic is written: `report.py` reads the store itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock import StreamsBuilder, Topology

ORDERS = "store-orders"
TOTALS = "store-totals"


@dataclass(frozen=True)
class Order:
    """An order. The key of its record is the id of the store."""

    number: int
    amount_cents: int


@dataclass(frozen=True)
class Totals:
    """The totals of a store."""

    orders: int = 0
    revenue_cents: int = 0


def add_order(store: str, order: Order, totals: Totals) -> Totals:
    """The totals with one more order."""
    return Totals(totals.orders + 1, totals.revenue_cents + order.amount_cents)


def build() -> Topology:
    """The running totals."""
    builder = StreamsBuilder()
    orders = builder.stream(ORDERS, key=str, value=Order)
    orders.group_by_key().aggregate(Totals, add_order, store=TOTALS)
    return builder.build()
