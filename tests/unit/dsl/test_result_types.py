from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec
import pydantic
import pytest

from penstock.dsl.result_types import element_type, pair_types, result_type
from penstock.windows import Windowed

T = TypeVar("T")
RATE = 1.5


@dataclass
class Order:
    customer: str
    total: float
    items: list[str] = field(default_factory=list)
    note: str | None = None

    @property
    def cents(self) -> int:
        return round(self.total * 100)

    def label(self, prefix: str) -> str:
        return prefix + self.customer


class Item(msgspec.Struct):
    name: str


class Model(pydantic.BaseModel):
    name: str


class Point(NamedTuple):
    x: int


def annotated(value: Any) -> int | None:
    return None


def unannotated(order: Order):  # type: ignore[no-untyped-def]
    doubled = order.total * 2
    return doubled  # noqa: RET504


def generic(value: T) -> T:
    return value


class Formatter:
    def __call__(self, value: Any) -> str:
        return ""

    def method(self, value: Any) -> float:
        return 0.0


ONE_ARGUMENT: list[tuple[Any, Any, Any]] = [
    # Declared results.
    (annotated, str, int), (Order, str, Order), (int, str, int), (list[str], None, list[str]),
    (Formatter(), str, str), (Formatter().method, str, float), (partial(annotated, 1), None, int),
    (generic, str, None),
    # Built-in functions and methods.
    (len, str, int), (str.upper, str, str), (str.split, str, list[str]), (round, float, int),
    (abs, float, float), (repr, Order, str), ("-".join, list[str], str), (sorted, list[int], None),
    # A bare container says nothing about its elements.
    (list, str, None), (dict, None, None),
    # Expressions.
    (lambda value: value, str, str),
    (lambda value: 1, str, int),
    (lambda value: ("a", 1.0), str, tuple[str, float]),
    (lambda order: order.customer, Order, str),
    (lambda order: order.note, Order, str),
    (lambda order: order.customer, Order | None, str),
    (lambda order: order.cents, Order, int),
    (lambda order: order.label("x"), Order, str),
    (lambda order: order.missing, Order, None),
    (lambda item: item.name, Item, str),
    (lambda model: model.name, Model, str),
    (lambda point: point.x, Point, int),
    (lambda key: key.key, Windowed[str], str),
    (lambda key: key.window.start, Windowed[str], int),
    (lambda key: f"{key.key}@{key.window.start}", Windowed[str], str),
    (lambda line: line.lower().split(), str, list[str]),
    (lambda line: line.split(",")[0], str, None),
    (lambda text: text[0], str, str),
    (lambda row: row["a"], dict[str, int], int),
    (lambda row: row.get("a"), dict[str, int], int),
    (lambda row: row["a"], dict[str, Any], None),
    (lambda order: f"{order.customer!r:>10}", Order, str),
    (lambda value: f"{value}", None, str),
    (lambda value: str(value), None, str),  # noqa: PLW0108
    (lambda value: int(value) + 1, str, int),
    (lambda value: round(value * RATE, 2), int, float),
    (lambda value: value / 2, int, float),
    (lambda value: value // 2, int, int),
    (lambda value: value ** 2, int, None),
    (lambda value: -value, float, float),
    (lambda value: value > 1, float, bool),
    (lambda value: value > 1, Order, None),
    (lambda value: not value, Order, bool),
    (lambda value: value is None, Order, bool),
    (lambda value: "%s" % value, int, str),  # noqa: UP031
    (lambda value: value + "!", str, str),
    (lambda value: value * 2, str, str),
    (lambda value: value + 1, str, None),
    (lambda value: [value], str, list[str | None]),
    (lambda value: [value, 1], str, None),
    (lambda value: {"a": value, "b": 1}, str, dict[str, Any]),
    (lambda value: {"a": value}, int, dict[str, int | None]),
    (lambda value: {"a": value}, Order, None),
    (lambda value: {value: 1}, int, None),
    (lambda value: Order(value, 0.0), str, Order),
    (lambda value: Order(customer=value, total=0.0), str, Order),
    (lambda value: annotated(value), str, int),  # noqa: PLW0108
    (lambda value: value.encode(), str, bytes),
    (unannotated, Order, float),
    # Branches, loops and unknown arguments.
    (lambda value: value or 0, int, None),
    (lambda value: 1 if value else 2, int, None),
    (lambda value: [each for each in value], str, None),  # noqa: C416
    (lambda value: value, None, None),
    (lambda value: value.customer, None, None),
    (lambda *values: values, str, None),
]


@pytest.mark.parametrize(("function", "argument", "expected"), ONE_ARGUMENT)
def test_the_result_of_a_function_is_certain_or_unknown(
    function: Callable[..., Any], argument: Any, expected: Any
) -> None:
    assert result_type(function, argument) == expected


def test_variables_of_an_enclosing_function_are_known() -> None:
    suffix, factor = "!", 2.0

    def shout(text: str) -> str:
        return text

    assert result_type(lambda value: value + suffix, str) is str
    assert result_type(lambda value: value * factor, int) is float
    assert result_type(lambda value: shout(value + suffix), str) is str


def test_functions_of_several_arguments_are_followed() -> None:
    pair = result_type(lambda key, value: (value.customer, value), str, Order)
    assert pair == tuple[str | None, Order | None]
    assert result_type(lambda a, b: a + b, int, float) is float
    assert result_type(max, int, int) is int
    assert result_type(lambda a, b: max(a, b, 1), int, float) is None


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (list[str], str), (Iterable[int], int), (Iterator[int], int), (set[str], str), (str, str),
        (tuple[str, ...], str), (tuple[str, str], str), (tuple[str, int], None),
        (dict[str, int], str), (list, None), (int, None), (list[Any], None),
    ],
)
def test_the_elements_of_an_iterable_have_a_type(of: Any, expected: Any) -> None:
    assert element_type(of) == expected


def test_a_pair_has_the_types_of_key_and_value() -> None:
    assert pair_types(tuple[str, int]) == (str, int)
    assert pair_types(tuple[str, Any]) == (str, None)
    assert pair_types(tuple[str, ...]) == (None, None)
    assert pair_types(list[str]) == (None, None)
