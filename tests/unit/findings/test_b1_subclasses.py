"""An inferred serde refuses objects of subclasses, whose fields it could not read back."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from penstock import JoinWindows, KStream, Serdes, SerializationException, StreamsBuilder
from penstock.errors import ProcessingFailedException, StoreSerdeException, TopicSerdeException
from penstock.serdes.exact_types import exact_serde, subclass_finder
from penstock.testing import TopologyTestDriver

TEXT = Serdes.string()


@dataclasses.dataclass
class Shape:
    name: str


@dataclasses.dataclass
class Circle(Shape):
    radius: int


class Event(msgspec.Struct):
    name: str


class Click(Event):
    x: int


class Model(BaseModel):
    name: str


class SpecialModel(Model):
    extra: int


def circle(value: str) -> Shape:
    return Circle(value, 3) if value == "sub" else Shape(value)


def click(value: str) -> Event:
    return Click(value, 3) if value == "sub" else Event(value)


def model(value: str) -> Model:
    return SpecialModel(name=value, extra=3) if value == "sub" else Model(name=value)


def shapes(value: str) -> list[Shape]:
    return [Shape("first"), circle(value)]


def by_name(value: str) -> dict[str, Shape | None]:
    return {"none": None, value: circle(value)}


FUNCTIONS = [circle, click, model, shapes, by_name]
Step = Callable[[KStream[str, Any]], object]


def pipe(step: Step, function: Callable[[str], Any], value: str) -> None:
    builder = StreamsBuilder()
    step(builder.stream("in", key=TEXT, value=TEXT).map_values(function))
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("k", value)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_store_refuses_a_subclass(function: Callable[[str], Any]) -> None:
    def step(stream: KStream[str, Any]) -> object:
        return stream.to_table(store="kept")

    pipe(step, function, "base")
    with pytest.raises(ProcessingFailedException) as caught:
        pipe(step, function, "sub")
    assert isinstance(caught.value.__cause__, StoreSerdeException)
    message = str(caught.value.__cause__)
    assert message.startswith("Store 'kept': a value of type ")
    assert "was returned where the declared type is" in message
    assert "Give a serde that reads both: to_table(value=...)" in message
    assert caught.value.handler_setting is None


def test_repartition_topic_refuses_a_subclass() -> None:
    def step(stream: KStream[str, Any]) -> object:
        return stream.repartition(name="moved")

    pipe(step, circle, "base")
    with pytest.raises(ProcessingFailedException) as caught:
        pipe(step, circle, "sub")
    assert isinstance(caught.value.__cause__, TopicSerdeException)
    assert str(caught.value.__cause__).endswith(
        "A Circle was returned where the declared type is Shape. The inferred serde json(Shape) "
        "would lose the fields of Circle when it is read back. Give a serde that reads both: "
        "repartition(value=...), or declare Circle. Pass value= to the step that needs this topic."
    )
    assert caught.value.handler_setting is None


def test_join_names_its_argument() -> None:
    def step(stream: KStream[str, Any]) -> object:
        return stream.join(stream, lambda a, b: "both", JoinWindows.of(10))

    with pytest.raises(ProcessingFailedException, match=r"join\(.*value=\.\.\.\)"):
        pipe(step, circle, "sub")


def test_key_of_a_subclass_is_refused() -> None:
    def step(stream: KStream[str, Any]) -> object:
        return stream.select_key(lambda value: value).group_by_key().count()

    with pytest.raises(ProcessingFailedException, match="A Circle was returned where"):
        pipe(step, circle, "sub")


@pytest.mark.parametrize("function", [circle, click, model])
def test_explicit_serde_decides_itself(function: Callable[[str], Any]) -> None:
    declared = function("base").__class__
    pipe(lambda stream: stream.to_table(store="kept", value=declared), function, "sub")


def test_output_topic_has_all_fields() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).map_values(circle).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("k", "sub")
        out = driver.create_output_topic("out", TEXT, Serdes.json())
        assert out.read_value() == {"name": "sub", "radius": 3}


@dataclasses.dataclass
class Tree:
    shape: Shape
    below: list[Tree]


def test_fields_are_searched_in_classes_that_contain_themselves() -> None:
    find = subclass_finder(Tree)
    assert find is not None
    assert find(Tree(Shape("a"), [Tree(Shape("b"), [])])) is None
    bad = Circle("c", 1)
    assert find(Tree(Shape("a"), [Tree(bad, [])])) == (bad, Shape)
    for of in (int, str, list[int], dict[str, Any], Any, tuple[int, ...]):
        assert subclass_finder(of) is None


def test_union_accepts_its_members_only() -> None:
    find = subclass_finder(Shape | Circle | None)
    assert find is not None
    assert find(Circle("c", 1)) is find(Shape("s")) is None
    find = subclass_finder(Shape | Event)
    assert find is not None
    assert find(Click("c", 1)) is not None


def test_exact_serde_can_be_pickled() -> None:
    serde = pickle.loads(pickle.dumps(exact_serde(Serdes.json(Shape), Shape, "Give one")))
    assert serde.deserialize(serde.serialize(Shape("s"))) == Shape("s")
    with pytest.raises(SerializationException, match="Give one, or declare Circle"):
        serde.serialize(Circle("c", 1))
