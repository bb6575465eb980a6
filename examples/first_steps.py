"""Five small topologies. Serdes are given for the topics that are read, and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from penstock import Processor, Record, StreamsBuilder, TimeWindows, Topology


@dataclass(frozen=True)
class Order:
    customer: str
    amount: float


@dataclass(frozen=True)
class Customer:
    name: str
    city: str


@dataclass(frozen=True)
class Sales:
    count: int = 0
    amount: float = 0.0

    def add(self, order: Order) -> Sales:
        return Sales(self.count + 1, self.amount + order.amount)


def word_count() -> Topology:
    builder = StreamsBuilder()
    lines = builder.stream("lines", key=str, value=str)
    words = lines.flat_map_values(lambda line: line.lower().split())
    words.group_by(lambda word: word).count(store="counts").to_stream().to("word-counts")
    return builder.build()


def sales_by_minute() -> Topology:
    builder = StreamsBuilder()
    orders = builder.stream("orders", key=str, value=Order)
    minutes = orders.group_by(lambda order: order.customer).windowed_by(
        TimeWindows.of(timedelta(minutes=1))
    )
    sales = minutes.aggregate(Sales, lambda customer, order, sales: sales.add(order))
    by_minute = sales.to_stream(lambda window, sales: f"{window.key} {window.window.start}")
    by_minute.to("sales-by-minute")
    return builder.build()


def quotes() -> Topology:
    builder = StreamsBuilder()
    prices = builder.table("prices", key=str, value=float)
    rates = builder.table("rates", key=str, value=float)
    quotes = prices.join(rates, lambda price, rate: round(price * rate, 2), store="quotes")
    quotes.to_stream().to("quotes")
    return builder.build()


def order_cities() -> Topology:
    builder = StreamsBuilder()
    orders = builder.table("orders", key=str, value=Order)
    customers = builder.table("customers", key=str, value=Customer)
    cities = orders.join(
        customers, lambda order: order.customer, lambda order, customer: customer.city
    )
    cities.to_stream().to("order-cities")
    return builder.build()


class Discount(Processor[str, Order, str, float]):
    def process(self, record: Record[str, Order]) -> None:
        if record.value.amount >= 100.0:
            discount = record.value.amount * 0.05
            self.context.forward(record.with_key(record.value.customer).with_value(discount))


def discounts() -> Topology:
    builder = StreamsBuilder()
    orders = builder.stream("orders", key=str, value=Order)
    granted = orders.process(Discount).group_by_key().reduce(lambda total, more: total + more)
    granted.to_stream().to("discounts")
    return builder.build()
