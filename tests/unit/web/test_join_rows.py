"""The counters of both sides of a join are one row of the page."""

from __future__ import annotations

from datetime import timedelta

from penstock import JoinWindows, StreamsBuilder
from penstock.web.graph import NodeGraph

WINDOWS = JoinWindows.of(timedelta(seconds=5))


def test_both_sides_of_a_join_are_added_up() -> None:
    builder = StreamsBuilder()
    prices, sizes = (builder.table(name, key=str, value=str) for name in ("prices", "sizes"))
    prices.outer_join(sizes, lambda price, size: price, name="described").to_stream().to("one")
    orders, returns = (builder.stream(name, key=str, value=str) for name in ("orders", "returns"))
    orders.left_join(returns, lambda order, back: order, WINDOWS, name="paired").to("two")
    graph = NodeGraph(builder.build().nodes)
    assert graph.join_rows({
        "described-join-this": {"matched": 2, "unmatched-left": 3},
        "described-join-other": {"matched": 5, "unmatched-right": 7},
        "paired-this-join": {"matched": 11},
    }) == {
        "described": {"matched": 7, "unmatched-left": 3, "unmatched-right": 7},
        "paired-merge": {"matched": 11},
    }


def test_joins_that_feed_a_merge_of_the_user_stay_separate() -> None:
    builder = StreamsBuilder()
    prices = builder.table("prices", key=str, value=str)
    orders, returns = (builder.stream(name, key=str, value=str) for name in ("orders", "returns"))
    priced = orders.join(prices, lambda order, price: price, name="priced-orders")
    priced.merge(returns.join(prices, lambda order, price: price, name="priced-returns")).to("out")
    rows = {"priced-orders": {"matched": 1}, "priced-returns": {"matched": 2}}
    assert NodeGraph(builder.build().nodes).join_rows(rows) == rows


def test_sides_that_are_the_result_of_a_join_keep_their_own_row() -> None:
    builder = StreamsBuilder()
    first, second, third = (builder.table(name, key=str, value=str) for name in "abc")
    inner = first.join(second, lambda one, other: one, name="inner")
    inner.join(third, lambda one, other: one, name="outer").to_stream().to("out")
    graph = NodeGraph(builder.build().nodes)
    assert graph.join_rows({
        "inner-join-this": {"matched": 1}, "outer-join-this": {"matched": 2},
    }) == {"inner": {"matched": 1}, "outer": {"matched": 2}}
