"""Methods of a stream accept functions of (value) and of (key, value)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import Serdes, StreamsBuilder, TopologyException
from penstock.testing import TopologyTestDriver

TEXT = Serdes.string()


def seen_by(method: str, make: Callable[[list[Any]], Callable[..., object]]) -> list[Any]:
    seen: list[Any] = []
    builder = StreamsBuilder()
    getattr(builder.stream("in", key=TEXT, value=TEXT), method)(make(seen), name="step")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("k", "v")
    return seen


@pytest.mark.parametrize("method", ["peek", "foreach"])
def test_action_receives_the_value_or_key_and_value(method: str) -> None:
    assert seen_by(method, lambda seen: seen.append) == ["v"]
    assert seen_by(method, lambda seen: lambda key, value: seen.append((key, value))) == [
        ("k", "v")
    ]
    # A function of any number of arguments receives both.
    assert seen_by(method, lambda seen: lambda *both: seen.append(both)) == [("k", "v")]


@pytest.mark.parametrize("method", ["peek", "foreach"])
def test_action_of_three_arguments_raises(method: str) -> None:
    with pytest.raises(TopologyException, match=r"step: the action must take 1 or 2 arguments, \("):
        seen_by(method, lambda seen: lambda a, b, c: None)
