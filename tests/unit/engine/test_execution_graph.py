"""The execution graph: stages, tasks, and which topics use the shuffle or the log."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from conformance.cases import CASES, Case, case_files, read_cases
from conformance.interpreter import Interpreter
from conformance.options import configuration
from penstock import (
    Materialized,
    Serdes,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    TimeWindows,
    Topology,
)
from penstock.engine.layout.execution_graph import ExecutionGraph, build_graph, cycle_edges
from penstock.engine.layout.internal_topics import is_internal
from penstock.errors import MissingSourceTopicException
from penstock.record import TaskId
from penstock.testing.task_layout import partitioned_layout
from penstock.topology.nodes import SinkNode, SourceNode

TEXT = Serdes.string()
CONFIG = StreamsConfig(application_id="app", execution="batch")
Built = Callable[[Callable[[StreamsBuilder], Any]], Topology]


def text_stream(builder: StreamsBuilder, topic: str) -> Any:
    return builder.stream(topic, key=TEXT, value=TEXT)


def test_layout_of_existing_replicas_stays_the_same(built: Built) -> None:
    """A replica with another hash is rebuilt, so renaming a class must not change the hash."""
    def build(b: StreamsBuilder) -> None:
        words = text_stream(b, "words")
        words.group_by_key().count(store="counts").suppress(
            Suppressed.until_time_limit(timedelta(seconds=5))
        ).to_stream()
        versions = Stores.persistent_versioned_key_value_store("versions", timedelta(hours=1))
        table = b.table("table", key=TEXT, value=TEXT, store=versions)
        words.join(table, lambda word, row: word + row, grace=timedelta(seconds=1))

    graph = build_graph(built(build), CONFIG, {"words": 1, "table": 1})
    assert [each.layout for each in graph.subtopologies.values()] == ["3c6da642566b5eb9"]


def test_shuffle_carries_a_repartition_topic_to_the_next_stage(built: Built) -> None:
    graph = build_graph(
        built(lambda b: text_stream(b, "words").group_by(lambda k, v: v).count(store="counts")),
        CONFIG, {"words": 3},
    )
    assert [each.stage for each in graph.subtopologies.values()] == [0, 1]
    assert graph.shuffled == {"app-counts-repartition": 1}
    assert graph.writers == {"app-counts-repartition": {0}}
    assert graph.repartition_topics == {}
    assert graph.subtopologies[1].reads == (
        ("counts-repartition-source", "app-counts-repartition"),
    )
    assert graph.subtopologies[1].shuffled == {"app-counts-repartition"}
    assert graph.subtopologies[1].restore_topics == {"counts": "app-counts-changelog"}
    assert graph.stages == (
        tuple(TaskId(0, n) for n in range(3)), tuple(TaskId(1, n) for n in range(3)),
    )
    assert graph.source_topics == {"words": 3}


def test_stage_is_the_longest_path_from_a_source(built: Built) -> None:
    def define(b: StreamsBuilder) -> None:
        twice = text_stream(b, "a").repartition(name="x").repartition(name="y")
        once = text_stream(b, "c").repartition(name="z")
        twice.merge(once).merge(text_stream(b, "d")).to("out")

    graph = build_graph(built(define), CONFIG, {"a": 2, "c": 2, "d": 2})
    stages = {
        topic: graph.subtopologies[reader].stage for topic, reader in graph.shuffled.items()
    }
    assert stages == {
        "app-x-repartition": 1, "app-y-repartition": 2, "app-z-repartition": 2,
    }
    assert sorted(graph.source_topics) == ["a", "c", "d"]
    (start,) = graph.writers["app-x-repartition"]
    assert graph.downstream([start]) == {
        graph.shuffled["app-x-repartition"], graph.shuffled["app-y-repartition"],
    }


def test_responses_of_a_foreign_key_join_use_the_log(built: Built) -> None:
    def define(b: StreamsBuilder) -> None:
        left = b.table("left", key=TEXT, value=TEXT)
        right = b.table("right", key=TEXT, value=TEXT)
        left.join(right, lambda value: value, lambda a, b: a + b).to_stream().to("out")

    graph = build_graph(built(define), CONFIG, {"left": 2, "right": 3})
    (responses,) = graph.repartition_topics
    assert "-SUBSCRIPTION-RESPONSE-" in responses
    assert list(graph.shuffled.values()) == [1]
    assert graph.subtopologies[0].stage == 0
    assert graph.subtopologies[1].stage == 1
    assert graph.repartition_topics[responses] == {
        "cleanup.policy": "delete", "retention.ms": "-1", "segment.bytes": "52428800",
        "message.timestamp.type": "CreateTime",
    }


def test_repartition_into_the_same_sub_topology_uses_the_log(built: Built) -> None:
    def define(b: StreamsBuilder) -> None:
        stream = text_stream(b, "a")
        stream.merge(stream.repartition(name="again")).to("out")

    graph = build_graph(built(define), CONFIG, {"a": 2})
    assert list(graph.repartition_topics) == ["app-again-repartition"]
    assert graph.shuffled == {}
    assert graph.partitions["app-again-repartition"] == 2


def test_user_topic_that_is_written_and_read_is_read_from_the_log(built: Built) -> None:
    def define(b: StreamsBuilder) -> None:
        text_stream(b, "a").to("b")
        text_stream(b, "b").to("c")

    graph = build_graph(built(define), CONFIG, {"a": 2, "b": 4, "c": 1, "other": 9})
    assert [each.stage for each in graph.subtopologies.values()] == [0, 0]
    assert graph.source_topics == {"a": 2, "b": 4}
    assert graph.partitions == {"a": 2, "b": 4, "c": 1}


def test_pattern_does_not_match_internal_topics(built: Built) -> None:
    graph = build_graph(
        built(lambda b: b.stream(re.compile(".*"), key=TEXT, value=TEXT).to("out")), CONFIG,
        {"a": 1, "app-tasks": 1, "app-counts-changelog": 1, "app-x-repartition": 1, "app-own": 1},
    )
    assert sorted(graph.source_topics) == ["a", "app-own"]


@pytest.mark.parametrize(("topic", "internal"), [
    ("app-tasks", True),
    ("app-counts-changelog", True),
    ("app-x-repartition", True),
    ("app-changelog", True),
    ("app-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000006-topic", True),
    ("app-name-subscription-response-topic", True),
    ("app-x-repartition-2", False),
    ("application-counts-changelog", False),
    ("app-orders", False),
    ("app", False),
])
def test_internal_topics_are_recognised_by_name(topic: str, internal: bool) -> None:
    assert is_internal(topic, "app") is internal


def test_topic_of_a_global_table_must_exist(built: Built) -> None:
    topology = built(lambda b: b.global_table("countries", key=TEXT, value=TEXT, store="all"))
    with pytest.raises(MissingSourceTopicException, match="countries of the global store all"):
        build_graph(topology, CONFIG, {"a": 1})
    graph = build_graph(topology, CONFIG, {"countries": 2})
    assert (graph.global_topics, graph.partitions) == ({"countries"}, {"countries": 2})


def test_task_has_queues_only_for_topics_with_its_partition(built: Built) -> None:
    graph = build_graph(
        built(lambda b: text_stream(b, "narrow").merge(text_stream(b, "wide")).to("out")), CONFIG,
        {"narrow": 1, "wide": 2},
    )
    assert {topic for _, topic in graph.queues(TaskId(0, 0))} == {"narrow", "wide"}
    assert [topic for _, topic in graph.queues(TaskId(0, 1))] == ["wide"]


def test_changelogs_have_the_settings_of_kafka_streams_and_of_the_user(built: Built) -> None:
    def define(b: StreamsBuilder) -> None:
        grouped = text_stream(b, "a").group_by_key()
        grouped.count(store=Materialized("plain", log_config={"segment.bytes": "1000"}))
        windows = TimeWindows.of(timedelta(minutes=5), grace=timedelta(minutes=1))
        grouped.windowed_by(windows).count(store="windows")
        supplier = Stores.persistent_versioned_key_value_store("versions", timedelta(hours=1))
        b.table("t", key=TEXT, value=TEXT, store=Materialized(supplier=supplier))
        grouped.count(store=Materialized("unlogged", logging=False))

    config = StreamsConfig(application_id="app", extra={"topic.min.insync.replicas": 2})
    graph = build_graph(built(define), config, {"a": 2, "t": 3})
    always = {"message.timestamp.type": "CreateTime", "min.insync.replicas": "2"}
    assert graph.changelogs == {
        "app-plain-changelog": (2, {**always, "cleanup.policy": "compact",
                                    "segment.bytes": "1000"}),
        "app-windows-changelog": (2, {**always, "cleanup.policy": "compact,delete",
                                      "retention.ms": "-1"}),
        "app-versions-changelog": (3, {**always, "cleanup.policy": "compact",
                                       "min.compaction.lag.ms": "90000000"}),
    }
    assert graph.window_retention_ms == {
        "app-windows-changelog": 360_000 + 180_000 + 86_400_000,
    }


# ---- cycles ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(200))
def test_removing_the_cycle_edges_breaks_all_cycles(seed: int) -> None:
    rng = random.Random(seed)
    size = rng.randint(1, 8)
    edges = {
        (rng.randrange(size), rng.randrange(size)) for _ in range(rng.randint(0, 16))
    }
    closing = cycle_edges(edges)
    assert closing <= edges
    assert not any(_is_on_a_cycle(edges - closing, node) for node in range(size))
    # Every edge is part of a cycle.
    assert all(_is_on_a_cycle(edges, writer) for writer, _ in closing)
    assert closing == cycle_edges(sorted(edges, key=lambda edge: rng.random()))


def _is_on_a_cycle(edges: set[tuple[int, int]], start: int) -> bool:
    seen: set[int] = set()
    pending = {start}
    while pending:
        pending = {reader for writer, reader in edges if writer in pending} - seen
        seen |= pending
    return start in seen


# ---- the topologies of the conformance cases ---------------------------------------------------


def _topologies() -> Iterator[tuple[Case, Topology, StreamsConfig]]:
    for path in case_files([CASES]):
        for case in read_cases(path):
            try:
                config = configuration(case)
                builder = StreamsBuilder(config if case.get("topology_config") else None)
                steps = Interpreter(builder)
                for step in case.get("topology", ()):
                    if not step["op"].startswith("papi_"):
                        steps.step(step)
                topology = builder.build(config)
                for step in case.get("topology", ()):
                    if step["op"].startswith("papi_"):
                        steps.processor_api(topology, step)
            except Exception:
                # The case tests a topology that cannot be built.
                assert "exception" in case["expect"] or "error" in case["expect"], case["id"]
                continue
            yield case, topology, config


def _external(case: Case, topology: Topology, partitions: int) -> dict[str, int]:
    named = {
        topic for node in topology.nodes if isinstance(node, SourceNode) for topic in node.topics
    }
    named |= {
        node.topic for node in topology.nodes
        if isinstance(node, SinkNode) and isinstance(node.topic, str)
    }
    named |= {event["topic"] for event in case.get("input", ()) if "topic" in event}
    return dict.fromkeys(named - set(topology.internal_topics), partitions)


@pytest.mark.slow
def test_conformance_cases_shuffle_records_to_later_stages_only() -> None:
    seen = with_cycles = 0
    for case, topology, config in _topologies():
        external = _external(case, topology, 3)
        graph = build_graph(topology, config, external)
        _check(case, topology, graph)
        _check_tasks(case, graph, topology, config, external)
        seen += 1
        with_cycles += bool(graph.repartition_topics)
    assert seen > 3_000
    assert with_cycles > 300


def _check(case: Case, topology: Topology, graph: ExecutionGraph) -> None:
    application = graph.application_id
    internal = {f"{application}-{name}" for name in topology.internal_topics}
    assert graph.shuffled.keys() | graph.repartition_topics.keys() == internal, case["id"]
    assert graph.shuffled.keys().isdisjoint(graph.repartition_topics), case["id"]
    for topic, reader in graph.shuffled.items():
        stage = graph.subtopologies[reader].stage
        assert all(graph.subtopologies[each].stage < stage for each in graph.writers[topic])
        assert topic in graph.subtopologies[reader].shuffled
        assert graph.subtopologies[reader].tasks == graph.partitions[topic]
    for each in graph.subtopologies.values():
        above = [
            graph.subtopologies[writer].stage for topic in each.shuffled
            for writer in graph.writers[topic]
        ]
        assert each.stage == 1 + max(above, default=-1), case["id"]


def _check_tasks(
    case: Case, graph: ExecutionGraph, topology: Topology, config: StreamsConfig,
    external: dict[str, int],
) -> None:
    """The tasks and queues are the same as those of the test driver."""
    tasks = partitioned_layout(topology, config, external).tasks
    assert {
        task.task_id: tuple((source, queue) for source, queue, _ in task.queues)
        for task in tasks
    } == {task_id: graph.queues(task_id) for task_id in graph.tasks}, case["id"]
