"""The functions of the cases behave as the Java functions of the reference."""

from __future__ import annotations

import pytest

from conformance.cases import InvalidCase
from conformance.combiners import aggregator, joiner, merger, own_timestamp, reducer
from conformance.functions import list_function, predicate, scalar
from conformance.values import JsonScalar, canonical, equal, from_json_text, text
from penstock import Window, Windowed


def test_function_returns_null_for_an_unsupported_type() -> None:
    assert scalar({"f": "add", "n": 2})("k", "1") is None
    assert scalar({"f": "add", "n": 2})("k", True) is None
    assert scalar({"f": "json_field", "name": "a"})("k", "text") is None
    assert predicate({"f": "gt", "n": 0})("k", "many") is False


def test_longs_overflow_at_64_bits() -> None:
    assert scalar({"f": "add", "n": 1})("k", 2**63 - 1) == -(2**63)
    assert scalar({"f": "mul", "n": 2})("k", 2**62) == -(2**63)
    assert scalar({"f": "mod", "n": 3})("k", -1) == 2


def test_characters_are_utf16_code_units() -> None:
    assert scalar("length")("k", "a\N{GRINNING FACE}") == 3
    assert len(list_function("chars")("k", "\N{GRINNING FACE}") or ()) == 2
    assert reducer("max")("\ue000", "\N{GRINNING FACE}") == "\ue000"


def test_equality_is_typed() -> None:
    assert not equal(1, "1")
    assert not equal(1, True)
    assert not equal({"a": 1}, {"a": True})
    assert equal({"a": 1, "b": [None]}, {"b": [None], "a": 1})


def test_values_are_formatted_as_in_java() -> None:
    assert text(None) == "null"
    assert text({"b": 1, "a": [True, None]}) == '{"a":[true,null],"b":1}'
    assert text(Windowed("k", Window(1, 2))) == "[k@1/2]"
    assert text(from_json_text(b'"x"')) == '"x"'
    assert canonical({"a": "\x1f"}) == '{"a":"\\u001F"}'


def test_json_null_at_the_root_is_null() -> None:
    assert from_json_text(b"null") is None


def test_json_number_at_the_root_is_not_a_long() -> None:
    assert from_json_text(b"5") == JsonScalar(5)
    assert scalar("parse_int")("k", from_json_text(b"5")) is None
    assert scalar({"f": "json_wrap", "name": "n"})("k", from_json_text(b"5")) == {"n": 5}


def test_combiners_of_strings_and_lists() -> None:
    assert aggregator({"f": "concat", "sep": ","})("k", "x", "") == "x"
    assert aggregator("list_remove")("k", "x", ["y", "x", "x"]) == ["y", "x"]
    assert aggregator({"f": "stats", "fn": "identity"})("k", "5", None) == {"count": 1, "sum": 5}
    assert reducer("remove")("a,b,a", "a") == "b,a"
    assert reducer("max")("10", 9) == 9
    assert merger({"f": "concat", "sep": "|"})("k", "", "b") == "b"
    assert joiner("pair")(None, None, 3) == "null/3"


def test_timestamp_follows_the_last_at_sign() -> None:
    after_at = own_timestamp("after_at")
    assert after_at is not None
    assert after_at("a@1@12", -1) == 12
    assert after_at("a", -1) == -1


def test_unknown_function_is_rejected() -> None:
    with pytest.raises(InvalidCase, match="Unknown scalar function 'shout'"):
        scalar("shout")
