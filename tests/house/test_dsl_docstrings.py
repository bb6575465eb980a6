"""Every public method of the DSL documents its parameters, and the examples run."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

import penstock
from penstock import (
    FixedKeyProcessor,
    Processor,
    SessionWindows,
    StreamsBuilder,
    TimeWindows,
    Topology,
)

SECTION = r"^{}:\n((?:    .*\n|\n)+)"
#: Methods of options are too small for an example each.
WITHOUT_EXAMPLE = ("BufferConfig.", "Suppressed.with_", "Materialized.with_")


def methods() -> dict[str, Callable[..., Any]]:
    """Class and name -> each public method of the DSL, inherited ones included."""
    found = {}
    for name in penstock.__all__:
        each = getattr(penstock, name)
        if not inspect.isclass(each) or not each.__module__.startswith("penstock.dsl"):
            continue
        for base in each.__mro__:
            for member, value in vars(base).items():
                function = getattr(value, "__func__", value)
                is_own = base.__module__.startswith("penstock.dsl")
                if is_own and not member.startswith("_") and inspect.isfunction(function):
                    found[f"{name}.{member}"] = function
    return found


METHODS = methods()


def section(function: Callable[..., Any], title: str) -> str:
    """The lines of a section of a docstring; empty if there is none."""
    text = (inspect.getdoc(function) or "") + "\n"
    found = re.search(SECTION.format(title), text, re.MULTILINE)
    return "" if found is None else textwrap.dedent(found[1])


def test_all_methods_are_found() -> None:
    assert len(METHODS) > 75
    assert {"KStream.join", "KStream.map_values", "StreamsBuilder.stream"} <= METHODS.keys()


@pytest.mark.parametrize("name", METHODS)
def test_method_documents_all_its_parameters(name: str) -> None:
    parameters = inspect.signature(METHODS[name]).parameters
    assert "options" not in parameters
    documented = re.findall(r"^(\w+): ", section(METHODS[name], "Args"), re.MULTILINE)
    assert documented == [each for each in parameters if each not in ("self", "cls")]


@pytest.mark.parametrize("name", METHODS)
def test_method_has_an_example_and_the_name_in_kafka(name: str) -> None:
    if name.startswith(WITHOUT_EXAMPLE):
        return
    assert section(METHODS[name], "Example")
    assert re.search(r"^Kafka: `\w+#\w+`$", inspect.getdoc(METHODS[name]) or "", re.MULTILINE)


@dataclass
class Order:
    customer: str
    amount: float


class Forward(Processor[str, Order, str, Order]):
    def process(self, record: Any) -> None:
        self.context.forward(record)


class ForwardValues(FixedKeyProcessor[str, Order, Order]):
    def process(self, record: Any) -> None:
        self.context.forward(record)


class Transformer:
    def transform(self, key: str, order: Order | None) -> float:
        return 0.0


def namespace() -> dict[str, Any]:
    """The names that examples use: those of penstock, and some streams and tables."""
    builder = StreamsBuilder()
    orders = builder.stream("orders", key=str, value=Order)
    table = builder.table("order-table", key=str, value=Order)
    grouped = orders.group_by_key()
    return {
        **{name: getattr(penstock, name) for name in penstock.__all__}, "timedelta": timedelta,
        "Forward": Forward, "ForwardValues": ForwardValues, "Transformer": Transformer,
        "builder": builder, "orders": orders, "table": table, "grouped": grouped,
        "lines": builder.stream("lines", key=str, value=str),
        "customers": builder.table("customers", key=str, value=str),
        "regions": builder.global_table("regions", key=str, value=str),
        "grouped_table": table.group_by(lambda order: (order.customer, order.amount)),
        "windowed": grouped.windowed_by(TimeWindows.of(timedelta(minutes=1))),
        "sessions": grouped.windowed_by(SessionWindows.of(timedelta(minutes=1))),
        "cogrouped": grouped.cogroup(lambda key, order, total: total + order.amount),
    }


@pytest.mark.parametrize(
    "name", [name for name, method in METHODS.items() if section(method, "Example")]
)
def test_example_of_method_runs(name: str) -> None:
    names = namespace()
    exec(section(METHODS[name], "Example"), names)
    assert isinstance(names["builder"].build(), Topology)
