from __future__ import annotations

import enum
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple, NewType, Optional, TypedDict, TypeVar
from uuid import UUID

import msgspec
import pydantic
import pytest

from penstock import Serdes, WindowedSerdes
from penstock.serdes.base import same_serde
from penstock.serdes.builtin import find_serde
from penstock.windows import Windowed


@dataclass
class Order:
    id: str
    quantity: int = 1


@dataclass
class Tree:
    name: str
    children: list[Tree]


class Item(msgspec.Struct):
    name: str


class Model(pydantic.BaseModel):
    name: str


class Colour(enum.Enum):
    RED = "red"


class Position(NamedTuple):
    x: int
    y: int


class Row(TypedDict):
    id: str


class Plain:
    pass


@dataclass
class WithPlain:
    plain: Plain


CustomerId = NewType("CustomerId", str)
T = TypeVar("T")


@pytest.mark.parametrize(
    ("of", "name"),
    [
        (str, "string"), (int, "long"), (float, "double"), (bool, "boolean"), (bytes, "bytes"),
        (UUID, "uuid"), (type(None), "void"), (str | None, "string"), (Optional[int], "long"),  # noqa: UP045
        (Annotated[float, "EUR"], "double"), (CustomerId, "string"), (Literal["a", "b"], "string"),
        (Literal["a", None], "string"), (Order, "json(Order)"), (Order | None, "json(Order)"),
        (Item, "json(Item)"), (Model, "json(Model)"), (Colour, "json(Colour)"),
        (Position, "json(Position)"), (Row, "json(Row)"), (Tree, "json(Tree)"),
        (datetime, "json(datetime)"), (dict, "json(dict)"), (list, "json(list)"),
    ],
)
def test_a_type_has_its_serde(of: Any, name: str) -> None:
    assert Serdes.of(of).name == name


@pytest.mark.parametrize(
    ("of", "value"),
    [
        (list[Order], [Order("a"), Order("b", 2)]), (dict[str, int], {"a": 1}),
        (tuple[str, int], ("a", 1)), (int | str, "a"), (dict[str, Any], {"a": [1, None]}),
        (list[Position], [Position(1, 2)]), (Tree, Tree("a", [Tree("b", [])])),
    ],
)
def test_composite_types_are_json(of: Any, value: Any) -> None:
    serde = Serdes.of(of)
    assert serde.deserialize(serde.serialize(value)) == value


@pytest.mark.parametrize(
    "of",
    [
        Any, object, Plain, WithPlain, list[Plain], list[Model], T, Callable[[], int],
        Windowed[str],
        "Order",
    ],
)
def test_a_type_without_a_serde_is_an_error_that_lists_the_known_ones(of: Any) -> None:
    assert find_serde(of) is None
    with pytest.raises(TypeError, match=r"no serde for the type .*Types with a serde: str"):
        Serdes.of(of)


def test_serdes_know_the_type_of_their_values() -> None:
    assert Serdes.string().python_type is str
    assert Serdes.integer().python_type is int
    assert Serdes.float().python_type is float
    assert Serdes.json(Order).python_type is Order
    assert Serdes.json().python_type is None
    assert Serdes.list(Serdes.long()).python_type == list[int | None]
    assert WindowedSerdes.time_windowed(Serdes.string(), 10).python_type == Windowed[str]
    assert pickle.loads(pickle.dumps(Serdes.json(Order))).python_type is Order


def test_serdes_of_equal_parts_are_the_same() -> None:
    assert same_serde(Serdes.json(Order), Serdes.of(Order))
    assert same_serde(
        WindowedSerdes.time_windowed(Serdes.json(Order), 10),
        WindowedSerdes.time_windowed(Serdes.json(Order), 10),
    )
    assert not same_serde(Serdes.json(Order), Serdes.json(Item))
    assert not same_serde(Serdes.json(Order), Serdes.json(Order, sort_keys=True))
    assert not same_serde(Serdes.string(), Serdes.long())
    assert not same_serde(
        WindowedSerdes.time_windowed(Serdes.string(), 10),
        WindowedSerdes.time_windowed(Serdes.string(), 20),
    )
