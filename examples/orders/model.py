"""What travels through the topics: orders, stores, and what is computed of them.

In JSON the fields are in camel case, as the producers of orders write them. Money is `Decimal`:
read from a JSON number or text, written as text, so that no cent is lost on the way.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated

import msgspec


class OrderType(Enum):
    GENERAL = "GENERAL"
    RESTAURANT = "RESTAURANT"


class OrderLineItem(msgspec.Struct, frozen=True, rename="camel"):
    """One line of an order; `amount` is that of the whole line."""

    item: str
    count: int
    amount: Decimal


class Order(msgspec.Struct, frozen=True, rename="camel"):
    """An order. Its time has no zone and is taken as UTC."""

    order_id: int
    location_id: str
    final_amount: Decimal
    order_type: OrderType
    order_line_items: tuple[OrderLineItem, ...]
    ordered_date_time: Annotated[datetime, msgspec.Meta(tz=False)]


class Revenue(msgspec.Struct, frozen=True, rename="camel"):
    """What is published of an order: where, and how much."""

    location_id: str
    final_amount: Decimal

    @classmethod
    def of(cls, order: Order) -> Revenue:
        return cls(order.location_id, order.final_amount)


class TotalRevenue(msgspec.Struct, frozen=True, rename="camel"):
    """How many orders a store has had, and what they came to."""

    location_id: str = ""
    running_order_count: int = 0
    running_revenue: Decimal = Decimal("0.00")

    @staticmethod
    def add(location_id: str, order: Order, total: TotalRevenue) -> TotalRevenue:
        """The total with one more order in it."""
        return TotalRevenue(
            location_id,
            total.running_order_count + 1,
            total.running_revenue + order.final_amount,
        )


class Address(msgspec.Struct, frozen=True, rename="camel"):
    address_line1: str
    address_line2: str
    city: str
    state: str
    zip: str


class Store(msgspec.Struct, frozen=True, rename="camel"):
    location_id: str
    address: Address
    contact_num: str


class TotalRevenueWithAddress(msgspec.Struct, frozen=True, rename="camel"):
    """A store's total beside the store's address."""

    total_revenue: TotalRevenue
    store: Store
