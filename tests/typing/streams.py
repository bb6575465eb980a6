"""The types of streams; checked by mypy, never run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, assert_type

from penstock import (
    Branched,
    FixedKeyProcessor,
    FixedKeyRecord,
    GlobalKTable,
    JoinWindows,
    KGroupedStream,
    KStream,
    KTable,
    Materialized,
    Printed,
    Processor,
    Record,
    Serdes,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindows,
    Windowed,
)


@dataclass
class Order:
    id: str
    amount: int


@dataclass
class Customer:
    name: str


builder = StreamsBuilder()
orders = builder.stream("orders", key=Serdes.string(), value=Serdes.json(Order))
customers = builder.table("customers", key=Serdes.string(), value=Serdes.json(Customer))
regions = builder.global_table("regions", key=Serdes.integer(), value=Serdes.string())

# Sources: the serde determines the type; without one it is Any.
assert_type(orders, KStream[str, Order])
assert_type(customers, KTable[str, Customer])
assert_type(regions, GlobalKTable[int, str])
assert_type(builder.stream("x"), KStream[Any, Any])
assert_type(builder.stream(["x", "y"], key=Serdes.string()), KStream[str, Any])
assert_type(builder.stream("x", value=Serdes.long(), name="x"), KStream[Any, int])
assert_type(builder.table("x", value=Serdes.long(), store="kept"), KTable[Any, int])
assert_type(
    builder.table("x", store=Materialized("kept", key=Serdes.string(), value=Serdes.long())),
    KTable[str, int],
)
assert_type(builder.global_table("x", key=Serdes.uuid()).queryable_store_name, str | None)

# Functions of the value, or of key and value: their parameters have types.
assert_type(orders.filter(lambda order: order.amount > 0), KStream[str, Order])
assert_type(orders.filter_not(lambda key, order: key == order.id), KStream[str, Order])
assert_type(orders.map_values(lambda order: order.amount), KStream[str, int])
assert_type(orders.map_values(lambda key, order: (key, order)), KStream[str, tuple[str, Order]])
assert_type(orders.map_values(str), KStream[str, str])
assert_type(orders.map(lambda key, order: (order.amount, key)), KStream[int, str])
assert_type(orders.flat_map(lambda order: [(order.amount, order)]), KStream[int, Order])
assert_type(orders.flat_map_values(lambda order: order.id.split()), KStream[str, str])
assert_type(orders.flat_map_values(lambda key, order: [len(key)]), KStream[str, int])
assert_type(orders.select_key(lambda key, order: order.amount), KStream[int, Order])
assert_type(orders.peek(lambda key, order: print(key, order.id)), KStream[str, Order])
assert_type(orders.peek(lambda order: print(order.id)), KStream[str, Order])
orders.foreach(lambda order: print(order.id))
orders.foreach(lambda key, order: print(key.upper(), order.id))
assert_type(orders.merge(orders), KStream[str, Order])
assert_type(orders.repartition(partitions=3), KStream[str, Order])
assert_type(orders.to_table(store="orders"), KTable[str, Order])
orders.print(Printed(mapper=lambda key, order: f"{key} {order.id}"))
orders.to(lambda key, order, context: f"{key}-{context.topic}")

branches = (
    orders.split(name="by-size-")
    .branch(lambda order: order.amount > 100, "large")
    .branch(lambda key, order: order.id == key, Branched("own", consumer=lambda s: s.to("own")))
    .default_branch()
)
assert_type(branches, dict[str, KStream[str, Order]])

# Grouping and aggregating: the initializer determines the type of the aggregate.
grouped = orders.group_by_key()
assert_type(grouped, KGroupedStream[str, Order])
assert_type(orders.group_by(lambda order: order.amount), KGroupedStream[int, Order])
assert_type(orders.group_by(lambda key, order: (key, 1)), KGroupedStream[tuple[str, int], Order])
assert_type(grouped.count(), KTable[str, int])
assert_type(grouped.count(store=Materialized("counts", caching=False)), KTable[str, int])
assert_type(grouped.reduce(lambda first, second: max(first, second, key=str)), KTable[str, Order])
assert_type(grouped.aggregate(int, lambda key, order, sum: sum + order.amount), KTable[str, int])
assert_type(
    grouped.aggregate(
        lambda: 0, lambda key, order, sum: sum + order.amount,
        store=Materialized("sums", value=Serdes.long()),
    ),
    KTable[str, int],
)


def longest(key: str, order: Order, known: str) -> str:
    return max(known, order.id)


cogrouped = grouped.cogroup(longest)
assert_type(cogrouped.aggregate(str), KTable[str, str])
assert_type(
    cogrouped.windowed_by(TimeWindows.of(1000)).aggregate(str), KTable[Windowed[str], str]
)

minutes = TimeWindows.of(timedelta(minutes=1), grace=timedelta(seconds=5))
assert_type(grouped.windowed_by(minutes).count(), KTable[Windowed[str], int])
assert_type(
    grouped.windowed_by(SlidingWindows.of(1000)).reduce(lambda first, second: second),
    KTable[Windowed[str], Order],
)
assert_type(
    grouped.windowed_by(minutes).aggregate(int, lambda key, order, sum: sum + order.amount),
    KTable[Windowed[str], int],
)
assert_type(
    grouped.windowed_by(SessionWindows.of(1000)).aggregate(
        int, lambda key, order, sum: sum + order.amount, lambda key, first, second: first + second
    ),
    KTable[Windowed[str], int],
)
assert_type(grouped.windowed_by(SessionWindows.of(1000)).count(), KTable[Windowed[str], int])

# Joins: the joiner determines the type; a side that may be missing is optional.
reach = JoinWindows.of(timedelta(minutes=5))
amounts = orders.map_values(lambda order: order.amount)
assert_type(orders.join(amounts, lambda order, n: order.amount + n, reach), KStream[str, int])
assert_type(
    orders.left_join(amounts, lambda order, n: (order, n), reach),
    KStream[str, tuple[Order, int | None]],
)
assert_type(
    orders.outer_join(amounts, lambda key, order, n: (key, order, n), reach, name="both",
                      this_store="left", other_store="right", shared_store="unmatched"),
    KStream[str, tuple[str, Order | None, int | None]],
)
assert_type(orders.join(customers, lambda order, customer: customer.name), KStream[str, str])
assert_type(
    orders.left_join(customers, lambda key, order, customer: (key, customer)),
    KStream[str, tuple[str, Customer | None]],
)
assert_type(
    orders.join(regions, lambda order: order.amount, lambda order, region: region),
    KStream[str, str],
)
assert_type(
    orders.left_join(
        regions, lambda key, order: order.amount, lambda key, order, region: (key, region)
    ),
    KStream[str, tuple[str, str | None]],
)


# Processors: inputs are checked, forwarded types are unknown.
class Shout(Processor[str, Order]):
    def process(self, record: Record[str, Order]) -> None:
        assert_type(record.value.amount, int)
        assert_type(record.with_value(1), Record[str, int])
        self.context.forward(record.with_value(record.value.id.upper()))


class Measure(FixedKeyProcessor[str, Order]):
    def process(self, record: FixedKeyRecord[str, Order]) -> None:
        self.context.forward(record.with_value(record.value.amount))


class Anything:
    def process(self, record: Record[object, object]) -> None:
        pass


assert_type(orders.process(Shout, "store", name="shout"), KStream[Any, Any])
assert_type(orders.process(Anything), KStream[Any, Any])
assert_type(orders.process_values(Measure), KStream[str, Any])


class Amounts(Processor[str, Order, int, float]):
    def process(self, record: Record[str, Order]) -> None:
        pass


class AmountValues(FixedKeyProcessor[str, Order, float]):
    def process(self, record: FixedKeyRecord[str, Order]) -> None:
        pass


assert_type(orders.process(Amounts, "store"), KStream[int, float])
assert_type(orders.process_values(AmountValues), KStream[str, float])

# Types in place of serdes.
assert_type(builder.stream("orders", key=str, value=Order), KStream[str, Order])
assert_type(builder.stream("orders", key=str, value=list[int]), KStream[str, list[int]])
assert_type(builder.stream("orders", key=Serdes.string(), value=Order), KStream[str, Order])
assert_type(builder.table("orders", key=str, value=Order), KTable[str, Order])
assert_type(builder.global_table("orders", key=str, value=float), GlobalKTable[str, float])
assert_type(Materialized("kept", key=str, value=Order), Materialized[str, Order])
assert_type(orders.group_by(lambda order: order.amount, key=int), KGroupedStream[int, Order])
