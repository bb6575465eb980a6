"""The topology: general and restaurant orders, each counted, summed, windowed and joined.

    orders ──┬── general ────── general-orders (revenue of each order)
             │      └─ by store ─┬─ count
             │                   ├─ count in windows of 60 s, 15 s grace
             │                   ├─ revenue in windows of 15 s, 5 s grace
             │                   └─ revenue ⋈ stores ── general-orders-revenue
             └── restaurant ─── the same
    stores ── table
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from orders.model import (
    Order,
    OrderType,
    Revenue,
    Store,
    TotalRevenue,
    TotalRevenueWithAddress,
)
from penstock import KStream, KTable, StreamsBuilder, TimeWindows, Topology
from penstock.timestamps import ConsumedRecord

ORDERS = "orders"
STORES = "stores"
KINDS = ("general", "restaurant")

COUNT_WINDOWS = TimeWindows.of(timedelta(seconds=60), grace=timedelta(seconds=15))
REVENUE_WINDOWS = TimeWindows.of(timedelta(seconds=15), grace=timedelta(seconds=5))

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def ordered_at(record: ConsumedRecord, partition_time: int) -> int:
    """The time of a record is the time of its order; without an order, that of the partition."""
    order = record.value
    if not isinstance(order, Order):
        return partition_time
    moment = order.ordered_date_time.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def build() -> Topology:
    """The whole application."""
    builder = StreamsBuilder()
    stores = builder.table(STORES, key=str, value=Store, store="stores")
    orders = builder.stream(ORDERS, key=str, value=Order, timestamp=ordered_at)
    split = orders.split(name="by-type-")
    split.branch(lambda order: order.order_type is OrderType.GENERAL, "general")
    split.branch(lambda order: order.order_type is OrderType.RESTAURANT, "restaurant")
    branches = split.no_default_branch()
    for kind in KINDS:
        totals_of(branches[f"by-type-{kind}"], kind, stores)
    return builder.build()


def totals_of(orders: KStream[str, Order], kind: str, stores: KTable[str, Store]) -> None:
    """Publish and add up the orders of one type."""
    orders.map_values(Revenue.of).to(f"{kind}-orders")
    # The grouping has a name, so the four aggregations share one repartition topic.
    by_store = orders.select_key(lambda order: order.location_id).group_by_key(
        name=f"{kind}-orders-by-store"
    )
    by_store.count(store=f"{kind}_orders_count")
    by_store.windowed_by(COUNT_WINDOWS).count(store=f"{kind}_orders_count_window")
    by_store.windowed_by(REVENUE_WINDOWS).aggregate(
        TotalRevenue, TotalRevenue.add, store=f"{kind}_orders_revenue_window"
    )
    revenue = by_store.aggregate(
        TotalRevenue, TotalRevenue.add, store=f"{kind}_orders_revenue"
    )
    joined = revenue.join(stores, TotalRevenueWithAddress)
    joined.to_stream().to(f"{kind}-orders-revenue")
