"""The serdes that arrive at topics and stores if they are given for the sources only."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from penstock import (
    FixedKeyProcessor,
    GlobalKTable,
    JoinWindows,
    KStream,
    KTable,
    Materialized,
    Processor,
    Serdes,
    SessionWindows,
    SlidingWindows,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    TimeWindows,
)
from penstock.errors import StreamsException
from penstock.testing import TopologyTestDriver
from penstock.topology.default_serdes import DefaultSerdes, resolve
from penstock.topology.nodes import ProcessorNode
from penstock.topology.serde_check import check_serdes
from penstock.topology.topology import Topology

CONFIG = StreamsConfig(application_id="app")
WINDOW = TimeWindows.of(10)


@dataclass
class Order:
    customer: str
    total: float


@dataclass
class Sum:
    total: float = 0.0


class Example:
    """A builder with sources of known serdes: strings as keys, orders as values."""

    def __init__(self) -> None:
        self.builder = StreamsBuilder()
        self.orders: KStream[str, Order] = self.builder.stream("orders", key=str, value=Order)
        self.lines: KStream[str, str] = self.builder.stream("lines", key=str, value=str)
        self.table: KTable[str, Order] = self.builder.table("table", key=str, value=Order)
        self.names: KTable[str, str] = self.builder.table("names", key=str, value=str)

    def global_names(self) -> GlobalKTable[str, str]:
        return self.builder.global_table("global", key=str, value=str)


def serdes(topology: Topology) -> dict[str, str]:
    """Return "key, value" for each sink, repartition and store of a topology."""
    defaults = DefaultSerdes(CONFIG)
    found = {}
    for node in topology.nodes:
        topic = getattr(node, "topic", None)
        if not isinstance(node, ProcessorNode) and isinstance(topic, str):
            key = defaults.key(resolve(node.key, defaults))
            value = defaults.value(resolve(node.value, defaults))
            found[topic] = f"{key.name}, {value.name}"
    for name, spec in topology.stores.items():
        builder: Any = spec.resolve(CONFIG)
        found[name] = f"{builder.key_serde.name}, {builder.value_serde.name}"
    return found


def split(line: str) -> Iterable[str]:
    return line.split()


def by_customer(order: Order) -> str:
    return order.customer


def pairs(order: Order) -> Iterable[tuple[str, float]]:
    yield order.customer, order.total


def add(key: str, order: Order, total: Sum) -> Sum:
    return Sum(total.total + order.total)


class Forward(Processor[str, Order, int, float]):
    pass


def make_processor() -> Forward:
    return Forward()


class ForwardValues(FixedKeyProcessor[str, Order, float]):
    pass


class Total:
    def transform(self, key: str, order: Order | None) -> float:
        return 0.0


Case = tuple[str, Callable[[Example], Any], str, str]
ORDER = "json(Order)"
WINDOWED = "time windows of string"

CASES: list[Case] = [
    # Stateless operators.
    ("filter", lambda e: e.orders.filter(bool).to("out"), "out", f"string, {ORDER}"),
    ("filter_not", lambda e: e.orders.filter_not(bool).to("out"), "out", f"string, {ORDER}"),
    ("peek", lambda e: e.orders.peek(print).to("out"), "out", f"string, {ORDER}"),
    ("select_key", lambda e: e.orders.select_key(lambda o: o.total).to("out"),
     "out", f"double, {ORDER}"),
    ("select_key identity", lambda e: e.lines.select_key(lambda v: v).to("out"),
     "out", "string, string"),
    ("map_values", lambda e: e.lines.map_values(len).to("out"), "out", "string, long"),
    ("map_values with key", lambda e: e.lines.map_values(lambda k, v: k).to("out"),
     "out", "string, string"),
    ("map", lambda e: e.orders.map(lambda k, o: (o.total, o)).to("out"), "out", f"double, {ORDER}"),
    ("flat_map", lambda e: e.orders.flat_map(pairs).to("out"), "out", "string, double"),
    ("flat_map_values", lambda e: e.lines.flat_map_values(split).to("out"),
     "out", "string, string"),
    ("merge", lambda e: e.lines.merge(e.lines.filter(bool)).to("out"), "out", "string, string"),
    ("branch", lambda e: e.orders.split(name="s-").branch(bool, "a").default_branch("b")["s-a"]
     .to("out"), "out", f"string, {ORDER}"),
    ("default_branch", lambda e: e.orders.split(name="s-").default_branch("b")["s-b"].to("out"),
     "out", f"string, {ORDER}"),
    ("process", lambda e: e.orders.process(Forward).to("out"), "out", "long, double"),
    ("process with a function", lambda e: e.orders.process(make_processor).to("out"),
     "out", "long, double"),
    ("process_values", lambda e: e.orders.process_values(ForwardValues).to("out"),
     "out", "string, double"),
    # Topics.
    ("repartition", lambda e: e.orders.repartition(name="again"), "again-repartition",
     f"string, {ORDER}"),
    ("after repartition", lambda e: e.orders.repartition().to("out"), "out", f"string, {ORDER}"),
    ("to_table", lambda e: e.orders.to_table(store="kept"), "kept", f"string, {ORDER}"),
    ("to_table after a key change",
     lambda e: e.orders.select_key(by_customer).to_table(name="t", store="kept"),
     "t-repartition", f"string, {ORDER}"),
    # Groupings and aggregations.
    ("group_by", lambda e: e.orders.group_by(by_customer).count(store="kept"),
     "kept-repartition", f"string, {ORDER}"),
    ("group_by with a name", lambda e: e.orders.group_by(by_customer, name="by").count(),
     "by-repartition", f"string, {ORDER}"),
    ("count", lambda e: e.orders.group_by(by_customer).count(store="kept"), "kept", "string, long"),
    ("count to a topic", lambda e: e.orders.group_by_key().count().to_stream().to("out"),
     "out", "string, long"),
    ("group_by_key", lambda e: e.orders.select_key(lambda o: o.customer).group_by_key()
     .count(store="kept"), "kept-repartition", f"string, {ORDER}"),
    ("reduce", lambda e: e.lines.group_by(lambda v: v).reduce(max, store="kept"),
     "kept", "string, string"),
    ("aggregate", lambda e: e.orders.group_by_key().aggregate(Sum, add, store="kept"),
     "kept", "string, json(Sum)"),
    ("aggregate of a number", lambda e: e.orders.group_by_key().aggregate(
        lambda: 0, lambda k, o, total: total + o.total, store="kept"), "kept", "string, double"),
    ("aggregate without a known initializer", lambda e: e.orders.group_by_key().aggregate(
        lambda: None, add, store="kept"), "kept", "string, json(Sum)"),
    ("windowed count", lambda e: e.orders.group_by_key().windowed_by(WINDOW).count(store="kept"),
     "kept", "string, long"),
    ("windowed keys", lambda e: e.orders.group_by(by_customer).windowed_by(WINDOW).count()
     .to_stream().to("out"), "out", f"{WINDOWED}, long"),
    ("windowed reduce", lambda e: e.lines.group_by(lambda v: v).windowed_by(WINDOW)
     .reduce(max, store="kept"), "kept", "string, string"),
    ("windowed aggregate", lambda e: e.orders.group_by(by_customer).windowed_by(WINDOW)
     .aggregate(Sum, add, store="kept"), "kept", "string, json(Sum)"),
    ("sliding windows", lambda e: e.orders.group_by(by_customer)
     .windowed_by(SlidingWindows.of(10)).aggregate(Sum, add).to_stream().to("out"),
     "out", f"{WINDOWED}, json(Sum)"),
    ("sessions", lambda e: e.orders.group_by(by_customer).windowed_by(SessionWindows.of(10))
     .aggregate(Sum, add, lambda k, a, b: a).to_stream().to("out"),
     "out", "session windows of string, json(Sum)"),
    ("session count", lambda e: e.orders.group_by(by_customer).windowed_by(SessionWindows.of(10))
     .count(store="kept"), "kept", "string, long"),
    ("session reduce", lambda e: e.lines.group_by(lambda v: v).windowed_by(SessionWindows.of(10))
     .reduce(max, store="kept"), "kept", "string, string"),
    ("cogroup", lambda e: e.orders.group_by(by_customer).cogroup(add).aggregate(Sum, store="kept"),
     "kept", "string, json(Sum)"),
    ("windowed cogroup", lambda e: e.orders.group_by(by_customer).cogroup(add)
     .windowed_by(WINDOW).aggregate(Sum).to_stream().to("out"), "out", f"{WINDOWED}, json(Sum)"),
    ("cogroup in sessions", lambda e: e.orders.group_by(by_customer).cogroup(add)
     .windowed_by(SessionWindows.of(10)).aggregate(Sum, lambda k, a, b: a).to_stream().to("out"),
     "out", "session windows of string, json(Sum)"),
    # Tables.
    ("table filter", lambda e: e.table.filter(bool, store="kept"), "kept", f"string, {ORDER}"),
    ("table filter_not", lambda e: e.table.filter_not(bool, store="kept"),
     "kept", f"string, {ORDER}"),
    ("table map_values", lambda e: e.table.map_values(lambda o: o.total, store="kept"),
     "kept", "string, double"),
    ("transform_values", lambda e: e.table.transform_values(Total, store="kept"),
     "kept", "string, double"),
    ("to_stream", lambda e: e.table.to_stream().to("out"), "out", f"string, {ORDER}"),
    ("to_stream with a key", lambda e: e.table.to_stream(lambda o: o.total).to("out"),
     "out", f"double, {ORDER}"),
    ("suppress", lambda e: e.orders.group_by(by_customer).windowed_by(WINDOW).aggregate(Sum, add)
     .suppress(Suppressed.until_window_closes(name="late")).to_stream().to("out"),
     "late-store", f"{WINDOWED}, json(Sum)"),
    ("after suppress", lambda e: e.orders.group_by(by_customer).windowed_by(WINDOW).count()
     .suppress(Suppressed.until_window_closes()).to_stream().to("out"), "out", f"{WINDOWED}, long"),
    ("table group_by", lambda e: e.table.group_by(lambda o: (o.customer, o.total))
     .count(store="kept"), "kept-repartition", "string, change of double"),
    ("table count", lambda e: e.table.group_by(lambda o: (o.customer, o)).count(store="kept"),
     "kept", "string, long"),
    ("table reduce", lambda e: e.table.group_by(lambda o: (o.customer, o.total))
     .reduce(max, min, store="kept"), "kept", "string, double"),
    ("table aggregate", lambda e: e.table.group_by(lambda o: (o.customer, o))
     .aggregate(Sum, add, add, store="kept"), "kept", "string, json(Sum)"),
    # Joins.
    ("table join", lambda e: e.table.join(e.names, lambda o, n: n, store="kept"),
     "kept", "string, string"),
    ("table left_join", lambda e: e.table.left_join(e.names, lambda o, n: o, store="kept"),
     "kept", f"string, {ORDER}"),
    ("table outer_join", lambda e: e.table.outer_join(e.names, lambda o, n: 1, store="kept"),
     "kept", "string, long"),
    ("table join without a store", lambda e: e.table.join(e.names, lambda o, n: o.total)
     .to_stream().to("out"), "out", "string, double"),
    ("foreign-key join", lambda e: e.table.join(
        e.names, lambda o: o.customer, lambda o, n: f"{n}: {o.total}", store="kept"),
     "kept", "string, string"),
    ("after a foreign-key join", lambda e: e.table.left_join(
        e.names, lambda o: o.customer, lambda o, n: o).to_stream().to("out"),
     "out", f"string, {ORDER}"),
    ("stream join", lambda e: e.orders.join(
        e.lines, lambda o, line: o.customer + line, JoinWindows.of(10)).to("out"),
     "out", "string, string"),
    ("stream join store", lambda e: e.orders.join(
        e.lines, lambda o, line: line, JoinWindows.of(10), store_name="j"),
     "j-this-join-store", f"string, {ORDER}"),
    ("other stream join store", lambda e: e.orders.join(
        e.lines, lambda o, line: line, JoinWindows.of(10), store_name="j"),
     "j-other-join-store", "string, string"),
    ("stream left_join", lambda e: e.orders.left_join(
        e.lines, lambda key, o, line: key, JoinWindows.of(10)).to("out"), "out", "string, string"),
    ("stream outer_join", lambda e: e.orders.select_key(by_customer).outer_join(
        e.lines, lambda o, line: 1, JoinWindows.of(10), name="j").to("out"), "out", "string, long"),
    ("repartition of a join", lambda e: e.orders.select_key(by_customer).join(
        e.lines, lambda o, line: 1, JoinWindows.of(10), name="j"),
     "j-left-repartition", f"string, {ORDER}"),
    ("stream-table join", lambda e: e.orders.join(e.names, lambda o, n: n).to("out"),
     "out", "string, string"),
    ("stream-table join after a key change", lambda e: e.orders.select_key(by_customer)
     .left_join(e.names, lambda o, n: o.total, name="j").to("out"),
     "j-repartition", f"string, {ORDER}"),
    ("stream-table join with grace", lambda e: e.orders.select_key(by_customer).join(
        e.builder.table("versioned", key=str, value=str, store=(
            Stores.persistent_versioned_key_value_store("kept", 100))),
        lambda o, n: n, name="j", grace=10), "j-Buffer", f"string, {ORDER}"),
    ("global join", lambda e: e.orders.join(
        e.global_names(), lambda o: o.customer, lambda o, n: n).to("out"), "out", "string, string"),
]


@pytest.mark.parametrize(
    ("build", "where", "expected"), [pytest.param(*case[1:], id=case[0]) for case in CASES]
)
def test_serdes_flow(build: Callable[[Example], Any], where: str, expected: str) -> None:
    example = Example()
    build(example)
    topology = example.builder.build()
    assert serdes(topology)[where] == expected
    TopologyTestDriver(topology, CONFIG).close()


UNKNOWN: list[tuple[str, Callable[[Example], Any], str, str]] = [
    ("a selector", lambda e: e.orders.group_by(lambda o: o.customer or "").count(),
     "key selector of step '.*', the lambda, is unknown",
     r"group_by\(..., key=str\)"),
    ("a mapper", lambda e: e.orders.map_values(lambda o: o or 1).to("out"),
     "the mapper of step '.*', the lambda, is unknown", r"to\('out', value=str\)"),
    ("an initializer", lambda e: e.orders.group_by_key().aggregate(
        list, lambda k, o, rows: [*rows, o], store="kept"),
     "initializer of step '.*', list, is unknown",
     r"aggregate\(..., store=Materialized\('kept', value=str\)\)"),
    ("functions that disagree", lambda e: e.orders.group_by_key().aggregate(
        str, lambda k, o, rows: o.total),
     "return different types: str and float", r"aggregate\(..., store=Materialized\(value="),
    ("merged streams", lambda e: e.orders.merge(e.lines).to("out"),  # type: ignore[arg-type]
     r"step '.*' have different value serdes: json\(Order\) and string",
     r"to\('out', value=str\)"),
    ("merged streams of which one is unknown",
     lambda e: e.lines.merge(e.lines.map_values(lambda v: v or "")).to("out"),
     "the mapper of step", r"to\('out', value="),
    ("keys of a join", lambda e: e.orders.select_key(lambda o: o.total).join(
        e.lines, lambda o, line: 1, JoinWindows.of(1)),
     "different key serdes: double and string", r"join\(..., key="),
    ("the other side of a join", lambda e: e.orders.join(
        e.lines.map_values(lambda v: v or ""), lambda o, line: 1, JoinWindows.of(1)),
     "the mapper of step", r"join\(..., other_value="),
    ("a processor", lambda e: e.orders.process(type("Plain", (Processor,), {})).to("out"),
     r"processor '.*' forwards is unknown; Processor\[KIn, VIn, KOut, VOut\]",
     r"to\('out', key="),
    ("a source", lambda e: e.builder.stream("other").to("out"),
     r"stream\('other'\) has no key serde", r"stream\('other', key="),
    ("a type without a serde", lambda e: e.orders.select_key(object_of).to("out"),
     "the key selector of step '.*' is of type Example. There is no serde for that type",
     r"to\('out', key="),
    ("a table", lambda e: e.table.map_values(lambda o: o or 1, store="kept"),
     "the mapper of step", r"map_values\(..., store=Materialized\('kept', value="),
    ("a selector of a table", lambda e: e.table.group_by(lambda o: (o.total or 1, o)).count(),
     "the selector of step", r"group_by\(..., key="),
    ("a repartition", lambda e: e.orders.select_key(lambda o: o or 1).repartition(),
     "the key selector of step", r"repartition\(key="),
]


def object_of(order: Order) -> Example:
    return Example()


@pytest.mark.parametrize(
    ("build", "reason", "advice"), [pytest.param(*case[1:], id=case[0]) for case in UNKNOWN]
)
def test_an_unknown_serde_is_an_error_with_step_and_argument(
    build: Callable[[Example], Any], reason: str, advice: str
) -> None:
    example = Example()
    build(example)
    topology = example.builder.build()
    message = f"There is no (key|value) serde.*{reason}.*{advice}"
    with pytest.raises(StreamsException, match=message):
        check_serdes(topology, CONFIG)


def test_a_default_serde_wins_over_an_inferred_one() -> None:
    config = CONFIG.with_(default_value_serde=Serdes.integer())
    builder = StreamsBuilder()
    builder.stream("lines", key=str, value=str).map_values(len).to("out")
    with TopologyTestDriver(builder.build(), config) as driver:
        driver.create_input_topic("lines", str, str).pipe_input("a", "abc")
        assert driver.create_output_topic("out", str, bytes).read_value() == b"\0\0\0\3"


def test_a_given_serde_wins_over_an_inferred_one() -> None:
    builder = StreamsBuilder()
    lines = builder.stream("lines", key=str, value=str)
    lines.map_values(len).to("out", value=Serdes.short())
    lines.group_by(lambda line: line, key=Serdes.json()).count(
        store=Materialized("kept", key=Serdes.bytes())
    )
    found = serdes(builder.build())
    assert found["out"] == "string, short"
    assert found["kept-repartition"] == "json, string"
    assert found["kept"] == "bytes, long"


def test_a_custom_serde_is_carried_while_the_data_stays_the_same() -> None:
    custom = Serdes.list(Serdes.short())
    builder = StreamsBuilder()
    builder.stream("in", key=custom, value=str).map(lambda key, value: (value, key)).to("out")
    assert serdes(builder.build())["out"] == "string, list of short"


def test_a_default_serde_of_values_is_known_for_keys_made_of_values() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str).group_by(lambda value: value).count(store="kept")
    config = CONFIG.with_(default_value_serde=Serdes.string())
    with TopologyTestDriver(builder.build(), config) as driver:
        driver.create_input_topic("in", str, str).pipe_input("k", "v")
        assert driver.get_key_value_store("kept").get("v") == 1


def test_equal_dicts_are_one_key() -> None:
    def place(value: str) -> dict[str, int]:
        return {"a": 1, "b": 2} if value == "x" else {"b": 2, "a": 1}

    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).group_by(place).count().to_stream().to("out")
    with TopologyTestDriver(builder.build(), CONFIG) as driver:
        driver.create_input_topic("in", str, str).pipe_value_list(["x", "y"])
        counts = driver.create_output_topic("out", dict[str, int], int)
        assert counts.read_key_values_to_list() == [({"a": 1, "b": 2}, 1), ({"a": 1, "b": 2}, 2)]
