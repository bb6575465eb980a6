"""A failing deserializer of the user, or a failing serde of a store, is called once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import (
    Materialized,
    Response,
    Serde,
    Serdes,
    StreamsBuilder,
    StreamsConfig,
    TimeWindows,
)
from penstock.record import PartitionColumns, TaskId
from penstock.task.blueprint import Blueprint
from penstock.task.queue import RecordRange
from penstock.task.runtime import Environment
from penstock.task.task import Task

TEXT = Serdes.string()
ASKED: list[tuple[str, str]] = []


@pytest.fixture(autouse=True)
def forget_calls() -> None:
    ASKED.clear()


class Flaky:
    """A function that fails at the calls with these numbers."""

    def __init__(self, function: Callable[[Any], Any], *failing: int) -> None:
        self.function, self.failing, self.calls = function, failing, 0

    def __call__(self, data: Any) -> Any:
        self.calls += 1
        if self.calls in self.failing:
            raise ValueError(f"call {self.calls} failed")
        return self.function(data)


def skip(context: Any, record: Any, exception: Exception) -> Response:
    ASKED.append((context.processor_node_id, str(exception)))
    return Response.resume()


def config_of(**settings: Any) -> StreamsConfig:
    return StreamsConfig(
        application_id="test", default_key_serde=TEXT, default_value_serde=TEXT,
        deserialization_exception_handler=skip, processing_exception_handler=skip, **settings,
    )


def run_batch(builder: StreamsBuilder, *values: bytes, config: StreamsConfig) -> Any:
    topology = builder.build()
    groups = [group.id for group in topology.groups()]
    task = Task(Blueprint.of(topology, config, groups), TaskId(0, 0), Environment())
    task.start()
    task.subscribe(topology.nodes[0].name, "in", 0)
    count = len(values)
    rows = PartitionColumns(
        topic="in", partition=0, offsets=range(count), timestamps=[10] * count,
        keys=[b"k"] * count, values=list(values),
    )
    result = task.run({("in", 0): RecordRange(rows)})
    assert result.failure is None, result.failure
    return result


@pytest.mark.parametrize("failing", [1, 2])
@pytest.mark.parametrize("part", ["key", "value"])
def test_failing_deserializer_of_a_source_is_called_once(failing: int, part: str) -> None:
    flaky = Flaky(bytes.decode, failing)
    serdes = {"key": TEXT, "value": TEXT, part: Serde.of(str.encode, flaky)}
    builder = StreamsBuilder()
    builder.stream("in", name="source", **serdes).to("out", key=TEXT, value=TEXT)
    result = run_batch(builder, b"a", b"b", b"c", config=config_of())
    assert [("source", f"call {failing} failed")] == ASKED
    assert flaky.calls == 3
    assert len(result.outputs) == 2


def test_deserializers_are_called_once_for_a_timestamp_extractor() -> None:
    keys, values = Flaky(bytes.decode), Flaky(bytes.decode)
    builder = StreamsBuilder()
    builder.stream(
        "in", key=Serde.of(str.encode, keys), value=Serde.of(str.encode, values),
        timestamp=lambda record, time: 7,
    ).to("out", key=TEXT, value=TEXT)
    result = run_batch(builder, b"a", b"b", config=config_of())
    assert [output[4] for output in result.outputs] == [7, 7]
    assert (keys.calls, values.calls) == (2, 2)


def aggregate(
    builder: StreamsBuilder, key: Serde[Any], value: Serde[Any], windows: TimeWindows | None
) -> None:
    grouped: Any = builder.stream("in").group_by_key(key=key)
    if windows is not None:
        grouped = grouped.windowed_by(windows)
    grouped.aggregate(
        lambda: "", lambda k, v, total: total + v,
        store=Materialized("totals", key=key, value=value),
        name="total",
    ).to_stream(lambda k, v: "k").to("out", key=TEXT, value=TEXT)


@pytest.mark.parametrize("cache", [0, 1_000_000], ids=["no cache", "cache"])
@pytest.mark.parametrize("windows", [None, TimeWindows.of(100)])
@pytest.mark.parametrize("part", ["key", "value"])
def test_failing_serializer_of_a_store_is_called_once(
    cache: int, windows: Any, part: str
) -> None:
    flaky = Flaky(str.encode, 1)
    serdes = {"key": TEXT, "value": TEXT, part: Serde.of(flaky, bytes.decode)}
    builder = StreamsBuilder()
    aggregate(builder, windows=windows, **serdes)
    run_batch(builder, b"a", config=config_of(statestore_cache_max_bytes=cache))
    assert [node for node, _ in ASKED] == ["total"]
    assert "call 1 failed" in ASKED[0][1]
    assert "Store 'totals'" in ASKED[0][1]
    assert flaky.calls == 1


@pytest.mark.parametrize("cache", [0, 1_000_000], ids=["no cache", "cache"])
def test_failing_deserializer_of_a_store_is_called_once(cache: int) -> None:
    flaky = Flaky(lambda data: data.decode().split(), 1)
    kept: Any = Serde.of(lambda words: " ".join(words).encode(), flaky)
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().aggregate(
        list, lambda k, v, words: [*words, v], store=Materialized("totals", key=TEXT, value=kept),
        name="total",
    )
    run_batch(builder, b"a", b"b", b"c", config=config_of(statestore_cache_max_bytes=cache))
    assert [node for node, _ in ASKED] == ["total"]
    assert "call 1 failed" in ASKED[0][1]
    # The flush of a cache reads the row once more: a list is not kept beside its bytes.
    assert flaky.calls == (3 if cache else 2)
