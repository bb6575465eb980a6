"""Lines with type errors, each with the error code that mypy must report."""

from __future__ import annotations

from penstock import (
    FixedKeyRecord,
    JoinWindows,
    Materialized,
    Processor,
    Record,
    Serdes,
    StreamsBuilder,
)

builder = StreamsBuilder()
orders = builder.stream("orders", key=Serdes.string(), value=Serdes.long())
table = builder.table("table", key=Serdes.string(), value=Serdes.string())

orders.map_values(lambda value: value.nothing)  # attr-defined
orders.filter(lambda a, b, c: True)  # arg-type misc
orders.to("topic", key=Serdes.long())  # arg-type
orders.to("topic", value="string")  # arg-type
orders.join(orders, lambda a, b: a + b)  # call-overload
orders.outer_join(table, lambda a, b: a, JoinWindows.of(1))  # call-overload
orders.merge(table)  # arg-type
orders.left_join(table, lambda number, text: text.upper())  # union-attr
orders.group_by_key().count(store=Materialized("counts", value=Serdes.string()))  # arg-type
orders.group_by_key().count(stores="counts")  # call-arg
builder.stream("x", key="string")  # call-overload
orders.mapValues(str)  # attr-defined
FixedKeyRecord("key", "value", 1)  # arg-type


class OfBytes(Processor[bytes, int]):
    def process(self, record: Record[bytes, int]) -> None:
        pass


orders.process(OfBytes)  # arg-type
