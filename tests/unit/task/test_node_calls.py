"""The number of records that each node of a task has processed."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from penstock import (
    Branched,
    JoinWindows,
    Processor,
    ProcessorContext,
    Record,
    Serdes,
    StreamsBuilder,
    StreamsConfig,
    Topology,
)
from penstock.record import PartitionColumns, TaskId
from penstock.task.blueprint import Blueprint
from penstock.task.queue import RecordRange
from penstock.task.result import TaskResult
from penstock.task.runtime import Environment
from penstock.task.task import Task

TEXT, LONG = Serdes.string(), Serdes.long()


def config(level: str = "INFO", **settings: Any) -> StreamsConfig:
    return StreamsConfig(
        application_id="app", default_key_serde=TEXT, default_value_serde=TEXT,
        metrics_recording_level=level, **settings,
    )


def records(topic: str, values: list[str | None], first: int = 0) -> PartitionColumns:
    return PartitionColumns(
        topic=topic, partition=0, offsets=range(first, first + len(values)),
        timestamps=[first + at for at in range(len(values))], keys=[b"k"] * len(values),
        values=[None if value is None else value.encode() for value in values],
    )


def started(topology: Topology, settings: StreamsConfig) -> Task:
    blueprint = Blueprint.of(topology, settings)
    task = Task(blueprint, TaskId(0, 0), Environment())
    task.start()
    for source in blueprint.sources:
        task.subscribe(source.name, blueprint.topic(source.topics[0]), 0)
    return task


def run(task: Task, **inputs: list[str | None]) -> TaskResult:
    return task.run({
        (topic, 0): RecordRange(records(topic, values)) for topic, values in inputs.items()
    })


def processed(result: TaskResult) -> dict[str, int]:
    return {each.tags[0]: each.number for each in result.readings if each.sensor == "process"}


@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
def test_each_node_counts_the_records_that_reach_it(level: str) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", name="source")
    large = stream.filter(lambda key, value: value > "3", name="filter")
    large.map_values(lambda value: value * 2, name="map").to("out", name="sink")
    large.flat_map_values(lambda value: [value] * 3, name="flat").foreach(
        lambda key, value: None, name="each"
    )
    stream.peek(lambda key, value: None, name="peek").filter(
        lambda key, value: False, name="none"
    ).to("nothing", name="unused")
    result = run(started(builder.build(), config(level)), **{"in": list("123456")})
    assert processed(result) == {
        "source": 6, "filter": 6, "map": 3, "sink": 3, "flat": 3, "each": 9, "peek": 6,
        "none": 6, "unused": 0,
    }


def test_nodes_that_only_pass_records_on_count_their_own() -> None:
    builder = StreamsBuilder()
    left, right = builder.stream("left", name="one"), builder.stream("right", name="other")
    merged = left.merge(right, name="merge")
    branches = merged.split(name="split-").branch(
        lambda key, value: value == "a", Branched("a")
    ).default_branch(Branched("rest"))
    for name, branch in branches.items():
        branch.to("out", name=f"{name}-sink")
    left.to("out", name="copy")
    task = started(builder.build(), config())
    assert processed(run(task, left=["a", "b"], right=["a", "a", "c"])) == {
        "one": 2, "other": 3, "merge": 5, "split-": 5, "split-a": 3, "split-rest": 2, "copy": 2,
        "split-a-sink": 3, "split-rest-sink": 2,
    }


def test_counts_start_again_with_each_commit() -> None:
    builder = StreamsBuilder()
    builder.stream("in", name="source").map_values(str.upper, name="map").to("out", name="sink")
    task = started(builder.build(), config())
    for first, count in ((0, 3), (3, 0), (3, 2_500)):
        result = task.run({("in", 0): RecordRange(records("in", ["v"] * count, first))})
        counts = processed(result)
        if count:
            assert counts == {"source": count, "map": count, "sink": count}
        else:
            assert set(counts.values()) <= {0}


def test_records_that_no_node_receives_are_not_processed() -> None:
    builder = StreamsBuilder()
    builder.stream("in", name="source", value=LONG).foreach(lambda key, value: None, name="each")
    settings = config(deserialization_exception_handler="continue")
    task = started(builder.build(), settings)
    good, bad = "\0" * 8, "bad"
    for values in ([good, bad, good], [bad], [bad, bad, good], [good] * 3):
        counts = processed(run(task, **{"in": list(values)}))
        assert counts.get("source", 0) == counts.get("each", 0) == values.count(good)


def test_failing_records_count_for_the_node_that_fails() -> None:
    builder = StreamsBuilder()
    (
        builder.stream("in", name="source")
        .map_values(lambda value: 1 // int(value), name="plain")
        .map(lambda key, value: (key, 1 // (value - 1)), name="guarded")
        .foreach(lambda key, value: None, name="each")
    )
    settings = config(processing_exception_handler="continue")
    counts = processed(run(started(builder.build(), settings), **{"in": list("01234")}))
    assert counts == {"source": 5, "plain": 5, "guarded": 4, "each": 3}


def test_children_of_an_aggregation_count_the_updates_that_it_forwards() -> None:
    builder = StreamsBuilder()
    (
        builder.stream("in", name="source").group_by_key().count(store="counts", name="count")
        .to_stream(name="stream").to("out", value=LONG, name="sink")
    )
    for cache_bytes, forwarded in ((0, 4), (10_000, 1)):
        settings = config(statestore_cache_max_bytes=cache_bytes)
        counts = processed(run(started(builder.build(), settings), **{"in": list("abcd")}))
        assert counts == {"source": 4, "count": 4, "stream": forwarded, "sink": forwarded}


class Splitting(Processor[str, str]):
    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record)
        if record.value == "a":
            self.context.forward(record, child="chosen")


class Collecting(Processor[str, str]):
    def process(self, record: Record[str, str]) -> None:
        pass


def test_records_for_one_child_count_for_it() -> None:
    topology = Topology()
    topology.add_source("source", "in")
    topology.add_processor("split", Splitting, "source")
    topology.add_processor("chosen", Collecting, "split")
    topology.add_sink("sink", "out", "split")
    counts = processed(run(started(topology, config()), **{"in": ["a", "b"]}))
    assert counts == {"source": 2, "split": 2, "chosen": 3, "sink": 2}


def test_operators_count_their_records_once() -> None:
    """In pure Python and natively, whether the task guards them or not."""
    builder = StreamsBuilder()
    stream = builder.stream("in", name="source").select_key(lambda key, value: value, name="key")
    table = stream.map_values(str.upper, name="guarded")
    # With several children and a sink among them, the parent is guarded.
    table.to("out", name="one")
    table.filter_not(lambda key, value: value == "A", name="not").to(
        lambda key, value, context: "chosen", name="two"
    )
    task = started(builder.build(), config())
    assert processed(run(task, **{"in": list("aab")})) == {
        "source": 3, "key": 3, "guarded": 3, "one": 3, "not": 3, "two": 1,
    }


def test_joins_count_the_records_of_both_sides() -> None:
    builder = StreamsBuilder()
    left, right = builder.stream("left", name="l"), builder.stream("right", name="r")
    left.join(
        right, lambda one, other: one, JoinWindows.of(timedelta(seconds=1))
    ).foreach(lambda key, value: None, name="each")
    counts = processed(run(started(builder.build(), config()), left=["a", "b"], right=["c"]))
    assert (counts.pop("l"), counts.pop("r"), counts.pop("each")) == (2, 1, 2)
    # Each side is stored by one node and joined by another one, before both are merged.
    assert Counter(counts.values()) == {2: 3, 1: 2}
