from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import SerializationException, StreamsException
from penstock.record import Change
from penstock.serdes.builtin import (
    ChangeSerde,
    Serde,
    Serdes,
    WindowedSerde,
    WindowedSerdes,
    change_serde,
)
from penstock.windows import MAX_TIME_MS, SessionWindow, Window, Windowed


@dataclass
class Order:
    id: str
    quantity: int = 1


class Item(msgspec.Struct):
    name: str
    price: float


class Store(pydantic.BaseModel):
    name: str
    zip_code: int = pydantic.Field(alias="zip", default=0)


@pytest.mark.parametrize(("serde", "value", "wire"), [
    (Serdes.string(), "é", "c3a9"),
    (Serdes.string(), "", ""),
    (Serdes.long(), -2, "fffffffffffffffe"),
    (Serdes.integer(), 258, "00000102"),
    (Serdes.short(), -1, "ffff"),
    (Serdes.float(), 1.5, "3fc00000"),
    (Serdes.double(), 1.5, "3ff8000000000000"),
    (Serdes.boolean(), True, "01"),
    (Serdes.boolean(), False, "00"),
    (Serdes.uuid(), UUID(int=5), b"00000000-0000-0000-0000-000000000005".hex()),
    (Serdes.bytes(), b"\x00a", "0061"),
    (Serdes.byte_array(), b"", ""),
    (Serdes.list(Serdes.string()), ["a", None, "bc"],
     "01" "00000003" "0000000161" "ffffffff" "000000026263"),
    (Serdes.list(Serdes.integer()), [7, None], "00" "00000001" "00000001" "00000002" "00000007"),
    (Serdes.list(Serdes.long()), [], "00" "00000000" "00000000"),
    (Serdes.list(Serdes.boolean()), [True], "01" "00000001" "00000001" "01"),
    (Serdes.list(Serdes.list(Serdes.string())), [[]], "01" "00000001" "00000005" "0100000000"),
    (WindowedSerdes.time_windowed(Serdes.string(), 10), Windowed("k", Window(3, 13)),
     "6b" "0000000000000003"),
    (WindowedSerdes.time_windowed(Serdes.string(), 10, changelog=True),
     Windowed("k", Window(3, 13)), "6b" "0000000000000003" "00000000"),
    (WindowedSerdes.session_windowed(Serdes.string()), Windowed("k", SessionWindow(3, 5)),
     "6b" "0000000000000005" "0000000000000003"),
    (change_serde(Serdes.string()), Change(None, "o"), "6f" "00"),
    (change_serde(Serdes.string()), Change("n", None), "6e" "01"),
    (change_serde(Serdes.string()), Change("ne", "o"), "04" "6e65" "6f" "02"),
    (change_serde(Serdes.string()), Change("n" * 100, "o"), "c801" + "6e" * 100 + "6f" "02"),
])
def test_wire_format_is_kafkas(serde: Serde[Any], value: Any, wire: str) -> None:
    assert serde.serialize(value).hex() == wire
    assert serde.deserialize(bytes.fromhex(wire)) == value


@pytest.mark.parametrize(("serde", "value", "message"), [
    (Serdes.string(), 5, "string.*int"),
    (Serdes.string(), b"a", "string.*bytes"),
    (Serdes.long(), "5", "long.*str"),
    (Serdes.long(), True, "long.*bool"),
    (Serdes.long(), 1.0, "long.*float"),
    (Serdes.double(), "1", "double.*str"),
    (Serdes.double(), False, "double.*bool"),
    (Serdes.boolean(), 1, "boolean.*int"),
    (Serdes.uuid(), "x", "uuid.*str"),
    (Serdes.bytes(), "x", "bytes.*str"),
    (Serdes.void(), 1, "void.*int"),
    (Serdes.list(Serdes.string()), "ab", "list.*str"),
    (Serdes.list(Serdes.string()), [1], "string.*int"),
    (Serdes.json(Order), {"id": "a"}, "Order.*dict"),
    (Serdes.json(Store), {"name": "a"}, "Store.*dict"),
    (Serdes.json(), object(), "object"),
    (WindowedSerdes.time_windowed(Serdes.string(), 1), "k", "windowed.*str"),
    (WindowedSerdes.session_windowed(Serdes.string()), "k", "windowed.*str"),
])
def test_value_of_the_wrong_type_raises_type_error(
    serde: Serde[Any], value: Any, message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        serde.serialize(value)


@pytest.mark.parametrize(("serde", "wire", "message"), [
    (Serdes.long(), "00", "8 bytes, but 1"),
    (Serdes.integer(), "", "4 bytes, but 0"),
    (Serdes.boolean(), "02", "0 or 1"),
    (Serdes.boolean(), "", "0 or 1"),
    (Serdes.uuid(), "6162", "UUID"),
    (Serdes.void(), "", "no bytes"),
    (Serdes.list(Serdes.string()), "", "first byte"),
    (Serdes.list(Serdes.string()), "02", "first byte"),
    (Serdes.list(Serdes.string()), "0000000000", "first byte"),
    (Serdes.list(Serdes.string()), "01" "00000001" "00000002" "61", "too early"),
    (Serdes.list(Serdes.string()), "01" "0000", "too early"),
    (WindowedSerdes.time_windowed(Serdes.string(), 1), "61", "at least 8"),
    (WindowedSerdes.time_windowed(Serdes.string(), 1), "ffffffffffffffff", "window from -1 to 0"),
    (WindowedSerdes.session_windowed(Serdes.string()), "61", "at least 16"),
    (WindowedSerdes.session_windowed(Serdes.string()), "00" * 15 + "01", "session from 1 to 0"),
    (change_serde(Serdes.string()), "", "last byte of a table update is 255"),
    (change_serde(Serdes.string()), "6106", "is 6"),
    (change_serde(Serdes.string()), "610704", "latest"),
    (change_serde(Serdes.string()), "066102", "truncated"),
    (Serdes.json(), "7b", "not JSON"),
    (Serdes.json(Order), b'{"id": "a", "quantity": "b"}'.hex(), r"\$\.quantity"),
    (Serdes.json(Order), b"{}".hex(), "`id`"),
    (Serdes.json(Store), b'{"name": "a", "zip": "b"}'.hex(), r"\$\.zip"),
])
def test_malformed_bytes_raise_serialization_exception(
    serde: Serde[Any], wire: str, message: str
) -> None:
    with pytest.raises(SerializationException, match=message):
        serde.deserialize(bytes.fromhex(wire))


def test_numbers_out_of_range_raise() -> None:
    for serde, value in ((Serdes.long(), 2**63), (Serdes.short(), 40000), (Serdes.float(), 1e300)):
        with pytest.raises(SerializationException, match="does not fit"):
            serde.serialize(value)


def test_double_accepts_integers() -> None:
    assert Serdes.double().deserialize(Serdes.double().serialize(2)) == 2.0


def test_invalid_strings_are_replaced_as_in_java() -> None:
    assert Serdes.string().serialize("a\ud800") == b"a?"
    assert Serdes.string().deserialize(b"a\xff") == "a\ufffd"


def test_uuid_accepts_short_groups_as_in_java() -> None:
    assert Serdes.uuid().deserialize(b"1-2-3-4-5") == UUID("00000001-0002-0003-0004-000000000005")


def test_list_may_end_with_an_empty_string() -> None:
    serde = Serdes.list(Serdes.string())
    assert serde.deserialize(serde.serialize(["a", ""])) == ["a", ""]


@given(st.lists(st.none() | st.text(alphabet=st.characters(codec="utf-8"))))
def test_list_round_trip(value: list[str | None]) -> None:
    serde = Serdes.list(Serdes.string())
    assert serde.deserialize(serde.serialize(value)) == value


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_change_round_trip(new: bytes, old: bytes) -> None:
    serde = change_serde(Serdes.bytes())
    for change in (Change(new, old), Change(new, None), Change(None, old)):
        assert serde.deserialize(serde.serialize(change)) == change


def test_change_without_values_raises() -> None:
    with pytest.raises(StreamsException, match="neither"):
        change_serde(Serdes.string()).serialize(Change(None, None))


def test_changes_with_an_is_latest_byte_are_read() -> None:
    serde = change_serde(Serdes.string())
    assert serde.deserialize(b"o\x00\x03") == Change(None, "o", False)
    assert serde.deserialize(b"n\x01\x04") == Change("n", None, True)
    assert serde.deserialize(b"\x02no\x00\x05") == Change("n", "o", False)


def test_json_is_plain_or_typed() -> None:
    assert Serdes.json().serialize({"b": 1, "a": "é"}) == '{"b":1,"a":"é"}'.encode()
    assert Serdes.json(sort_keys=True).serialize({"b": 1, "a": 2}) == b'{"a":2,"b":1}'
    assert Serdes.json().deserialize(b' {"a": [1, null]}') == {"a": [1, None]}
    for of, value, wire in (
        (Order, Order("a", 2), b'{"id":"a","quantity":2}'),
        (Item, Item("a", 1.5), b'{"name":"a","price":1.5}'),
        (Store, Store(name="a", zip=5), b'{"name":"a","zip":5}'),
    ):
        serde: Serde[Any] = Serdes.json(of)
        assert serde.serialize(value) == wire
        assert serde.deserialize(wire) == value
        assert serde.deserialize(b"null") is None
        assert Serdes.json(of, sort_keys=True).deserialize(wire) == value
    assert Serdes.json(dict[str, int]).deserialize(b'{"a":1}') == {"a": 1}


def test_json_of_an_unsupported_type_raises() -> None:
    with pytest.raises(TypeError, match="dataclass"):
        Serdes.json(5)  # type: ignore[call-overload]


def test_end_of_a_time_window_is_limited_to_the_largest_time() -> None:
    serde = WindowedSerdes.time_windowed(Serdes.string(), MAX_TIME_MS)
    key = Windowed("k", Window(5, MAX_TIME_MS))
    assert serde.deserialize(serde.serialize(key)) == key
    assert serde.deserialize(b"") is None


def test_wrapping_serde_passes_the_topic_on() -> None:
    class Prefixed(Serde[str]):
        def __init__(self, prefix: bytes = b"") -> None:
            super().__init__(lambda v: prefix + v.encode(), lambda d: d.decode())

        def for_topic(self, topic: str, is_key: bool) -> Serde[str]:
            return Prefixed(f"{topic}/{is_key}:".encode())

    for serde in (Serdes.list(Prefixed()), change_serde(Prefixed()),
                  WindowedSerdes.time_windowed(Prefixed(), 5, changelog=True)):
        wrapped = serde.for_topic("t", True)
        assert type(wrapped) is type(serde)
        assert wrapped.inner is not None
        assert wrapped.inner.serialize("v") == b"t/True:v"
    assert Serdes.list(Serdes.string()).for_topic("t", True).inner is Serdes.string()


def test_serde_of_two_functions() -> None:
    serde = Serde.of(lambda n: b"x" * n, len)
    assert serde.deserialize(serde.serialize(3)) == 3
    assert serde.for_topic("t", False) is serde


def test_serde_can_be_a_subclass() -> None:
    class Upper(Serde[str]):
        def __init__(self) -> None: ...

        def serialize(self, value: str) -> bytes:  # type: ignore[override]
            return value.upper().encode()

        def deserialize(self, data: bytes) -> str:  # type: ignore[override]
            return data.decode()

    assert Serdes.list(Upper()).serialize(["a"]).endswith(b"A")


def test_serdes_can_be_pickled() -> None:
    long = pickle.loads(pickle.dumps(Serdes.long()))
    assert long is Serdes.long()
    key = Windowed("k", Window(0, 5))
    serdes = (WindowedSerdes.time_windowed(Serdes.string(), 5), Serdes.list(Serdes.json(Order)),
              change_serde(Serdes.string()))
    values = (key, [Order("a")], Change("a", None))
    for serde, value in zip(serdes, values, strict=True):
        again = pickle.loads(pickle.dumps(serde))
        assert type(again) is type(serde)
        assert again.serialize(value) == serde.serialize(value)  # type: ignore[arg-type]
    assert isinstance(serdes[0], WindowedSerde)
    assert isinstance(serdes[2], ChangeSerde)
    assert repr(serdes[1]) == "<Serde list of json(Order)>"
