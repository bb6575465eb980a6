"""`async def` functions are refused when the topology is built."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from penstock import (
    Materialized,
    Printed,
    Processor,
    PunctuationType,
    Serdes,
    StreamsBuilder,
    StreamsException,
)
from penstock.testing import TopologyTestDriver

TEXT = Serdes.string()


async def one(value: Any) -> Any:
    return value


async def two(key: Any, value: Any) -> Any:
    return value


async def three(key: Any, value: Any, aggregate: Any) -> Any:
    return aggregate


async def nothing() -> str:
    return ""


async def generate(value: Any) -> Any:
    yield value


class AsyncCall:
    async def __call__(self, value: Any) -> Any:
        return value


class AsyncProcess:
    async def process(self, record: Any) -> None: ...


def create() -> AsyncProcess:
    return AsyncProcess()


class AsyncInit(Processor[str, str]):
    async def init(self, context: Any) -> None: ...  # type: ignore[override]

    def process(self, record: Any) -> None: ...


class AsyncTransform:
    async def transform(self, key: Any, value: Any) -> Any: ...


STEPS: dict[str, Callable[[Any], Any]] = {
    "map_values": lambda stream: stream.map_values(one),
    "map": lambda stream: stream.map(two),
    "filter": lambda stream: stream.filter(one),
    "flat_map_values": lambda stream: stream.flat_map_values(generate),
    "foreach": lambda stream: stream.foreach(two),
    "peek": lambda stream: stream.peek(two),
    "partial": lambda stream: stream.map_values(partial(two, "k")),
    "object": lambda stream: stream.map_values(AsyncCall()),
    "group_by": lambda stream: stream.group_by(one),
    "reduce": lambda stream: stream.group_by_key().reduce(two),
    "initializer": lambda stream: stream.group_by_key().aggregate(nothing, lambda k, v, a: a),
    "aggregator": lambda stream: stream.group_by_key().aggregate(str, three),
    "table mapper": lambda stream: stream.to_table(store=Materialized("t")).map_values(one),
    "join": lambda stream: stream.join(stream.to_table(), two),
    "topic": lambda stream: stream.to(three),
    "process": lambda stream: stream.process(AsyncProcess),
    "process, function": lambda stream: stream.process(create),
    "init": lambda stream: stream.process(AsyncInit),
    "process_values": lambda stream: stream.process_values(AsyncProcess),
    "transform_values": lambda stream: stream.to_table().transform_values(AsyncTransform),
    "print": lambda stream: stream.print(Printed(mapper=two)),
}


@pytest.mark.parametrize("step", STEPS)
def test_async_function_is_refused(step: str) -> None:
    stream = StreamsBuilder().stream("in", key=TEXT, value=TEXT)
    with pytest.raises(TypeError, match="is an async function"):
        STEPS[step](stream)


def test_async_punctuator_is_refused() -> None:
    class Tick(Processor[str, str]):
        def init(self, context: Any) -> None:
            context.schedule(1000, PunctuationType.STREAM_TIME, one)

        def process(self, record: Any) -> None: ...

    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).process(Tick)
    with pytest.raises((TypeError, StreamsException)) as raised:
        TopologyTestDriver(builder.build())
    assert "is an async function" in f"{raised.value} {raised.value.__cause__}"
