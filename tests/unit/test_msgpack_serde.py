"""`Serdes.msgpack`: plain values, classes and malformed bytes."""

from __future__ import annotations

import datetime
import decimal
import enum
import pickle
import uuid
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from penstock import Serdes, SerializationException


class Color(enum.Enum):
    RED = "red"


@dataclass
class Inner:
    data: bytes


@dataclass
class Values:
    text: str
    at: datetime.datetime
    day: datetime.date
    span: datetime.timedelta
    price: decimal.Decimal
    color: Color
    pair: tuple[int, str]
    names: set[str]
    key: uuid.UUID
    inner: Inner
    optional: int | None = None
    more: dict[str, list[Inner]] = field(default_factory=dict)


VALUES = Values(
    "a", datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), datetime.date(2026, 1, 2),
    datetime.timedelta(seconds=1.5), decimal.Decimal("1.20"), Color.RED, (1, "b"), {"c"},
    uuid.UUID(int=7), Inner(b"\x00\xff"), None, {"x": [Inner(b"")]},
)


@pytest.mark.parametrize("serde", [Serdes.msgpack(Values), Serdes.json(Values)], ids=repr)
def test_python_types_are_read_back(serde: Any) -> None:
    assert serde.deserialize(serde.serialize(VALUES)) == VALUES
    assert serde.reader(serde.writer(VALUES)) == VALUES
    assert pickle.loads(pickle.dumps(serde)).deserialize(serde.serialize(VALUES)) == VALUES


@pytest.mark.parametrize("value", [1, -5, 2.5, "a", b"\x00", True, [1, {"a": None}], {"k": b"v"}])
def test_plain_values_are_read_back(value: Any) -> None:
    serde = Serdes.msgpack()
    assert serde.serialize(value) == msgspec.msgpack.encode(value)
    assert serde.deserialize(serde.serialize(value)) == value


def test_sorted_keys_give_equal_bytes() -> None:
    serde = Serdes.msgpack(sort_keys=True)
    assert serde.serialize({"a": 1, "b": 2}) == serde.serialize({"b": 2, "a": 1})


def test_pydantic_models() -> None:
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Model", name=(str, ...), size=(int, 3))
    serde = Serdes.msgpack(model)
    assert serde.deserialize(serde.serialize(model(name="a"))) == model(name="a", size=3)
    with pytest.raises(SerializationException, match="not a MessagePack Model"):
        serde.deserialize(Serdes.msgpack().serialize({"size": "x"}))


def test_wrong_values_and_bytes_are_refused() -> None:
    serde = Serdes.msgpack(Inner)
    with pytest.raises(TypeError, match=r"msgpack\(Inner\) serde cannot serialize"):
        serde.serialize("text")  # type: ignore[arg-type]
    with pytest.raises(SerializationException, match="The bytes are not a MessagePack Inner"):
        serde.deserialize(b"\xc1")
    with pytest.raises(SerializationException, match="The bytes are not MessagePack"):
        Serdes.msgpack().deserialize(b"\xc1")
    with pytest.raises(TypeError, match=r"Serdes\.msgpack does not support"):
        Serdes.msgpack(dict[bytes, list[type[int]]] | set[Inner] | list[int])
