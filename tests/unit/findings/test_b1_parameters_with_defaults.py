"""Parameters without a default decide which arguments a function receives."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from penstock import JoinWindows, Serdes, StreamsBuilder, TopologyException
from penstock.testing import TopologyTestDriver

TEXT = Serdes.string()


def mapped(mapper: Callable[..., Any]) -> Any:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=TEXT, value=TEXT)
    stream.map_values(mapper, name="step").map_values(repr).to("out", key=TEXT, value=TEXT)
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("k", "v")
        return driver.create_output_topic("out", TEXT, TEXT).read_value()


def value_and_option(value: str, *, option: int = 2) -> Any:
    return value, option


def both_and_option(key: str, value: str, option: int = 2) -> Any:
    return key, value, option


def default_value(value: str = "none", *, option: int = 2) -> Any:
    return value, option


@pytest.mark.parametrize(("mapper", "expected"), [
    (lambda value="none": value, "'v'"),
    (lambda value, factor=2: value * factor, "'vv'"),
    (lambda value, /, factor=2: value * factor, "'vv'"),
    (lambda value, *others: (value, others), "('v', ())"),
    (lambda key, value, factor=2: key + value * factor, "'kvv'"),
    (lambda *both: both, "('k', 'v')"),
    (lambda **options: options, None),
    (value_and_option, "('v', 2)"),
    (both_and_option, "('k', 'v', 2)"),
    (default_value, "('v', 2)"),
    (functools.partial(both_and_option, "other"), "('other', 'v', 2)"),
    (functools.partial(value_and_option, option=3), "('v', 3)"),
    (list, "['v']"),
])
def test_required_parameters_decide(mapper: Callable[..., Any], expected: str | None) -> None:
    if expected is None:
        with pytest.raises(TopologyException, match="the mapper must take 1 or 2 arguments"):
            mapped(mapper)
    else:
        assert mapped(mapper) == expected


@pytest.mark.parametrize("mapper", [
    lambda value=1, factor=2: value * factor,
    lambda value=1, *others: value,
    Decimal,
    uuid.UUID,
], ids=["lambda", "rest", "Decimal", "UUID"])
def test_function_that_accepts_both_numbers_is_refused(mapper: Callable[..., Any]) -> None:
    with pytest.raises(TopologyException) as caught:
        mapped(mapper)
    message = str(caught.value)
    assert message.startswith("step: the mapper can take 1 or 2 arguments, because its parameters")
    assert message.endswith("have no defaults: (value) or (key, value).")


def test_required_keyword_is_refused_when_the_step_is_added() -> None:
    def scaled(value: str, *, factor: int) -> str:
        return value * factor

    with pytest.raises(TopologyException, match=r"but it is .*scaled\(value: .*\*, factor"):
        mapped(scaled)


def test_joiner_that_accepts_both_numbers_is_refused() -> None:
    builder = StreamsBuilder()
    left, right = (builder.stream(name, key=TEXT, value=TEXT) for name in ("left", "right"))
    with pytest.raises(TopologyException, match="the joiner can take 2 or 3 arguments"):
        left.join(right, lambda a, b=None, factor=2: a, JoinWindows.of(1))
    assert left.join(right, lambda a, b, factor=2: a, JoinWindows.of(1)) is not None
