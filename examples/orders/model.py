"""The messages of the application: orders, stores, and the results computed from them.

JSON fields are in camel case. Money is `Decimal`, read from a JSON number or string and written as
a string, so that no precision is lost.
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
    """One line of an order; `amount` is the total of the line."""

    item: str
    count: int
    amount: Decimal


class Order(msgspec.Struct, frozen=True, rename="camel"):
    """An order. Its time has no zone and is interpreted as UTC."""

    order_id: int
    location_id: str
    final_amount: Decimal
    order_type: OrderType
    order_line_items: tuple[OrderLineItem, ...]
    ordered_date_time: Annotated[datetime, msgspec.Meta(tz=False)]


class Revenue(msgspec.Struct, frozen=True, rename="camel"):
    """The location and amount of an order."""

    location_id: str
    final_amount: Decimal

    @classmethod
    def of(cls, order: Order) -> Revenue:
        return cls(order.location_id, order.final_amount)


class TotalRevenue(msgspec.Struct, frozen=True, rename="camel"):
    """The number and revenue of the orders of a store."""

    location_id: str = ""
    running_order_count: int = 0
    running_revenue: Decimal = Decimal("0.00")

    @staticmethod
    def add(location_id: str, order: Order, total: TotalRevenue) -> TotalRevenue:
        """The total with one more order."""
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
    """The total of a store with its address."""

    total_revenue: TotalRevenue
    store: Store
