"""Ordinary steps need no serdes if the sources have them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from penstock import JoinWindows, KStream, KTable, Serdes, StreamsBuilder, StreamsConfig
from penstock.testing import TopologyTestDriver
from penstock.topology.default_serdes import DefaultSerdes
from penstock.topology.nodes import SinkNode
from penstock.topology.serde_check import check_serdes

TEXT = Serdes.string()
Step = Callable[[KStream[str, str], KTable[str, str]], KTable[str, Any] | KStream[str, Any]]


def shout(value: str) -> str:
    return value.upper() + "!"


STEPS: list[tuple[str, Step, dict[str, Any]]] = [
    ("to_table(store=)", lambda s, t: s.to_table(store="kept"), {"k": "v"}),
    ("table.filter(store=)", lambda s, t: t.filter(lambda v: v == "v", store="kept"), {"k": "v"}),
    ("table.map_values(store=)", lambda s, t: t.map_values(shout, store="kept"), {"k": "V!"}),
    ("table.join(store=)", lambda s, t: t.join(t.filter(lambda v: True), lambda a, b: a + b,
                                               store="kept"), {"k": "vv"}),
    ("group_by().count()", lambda s, t: s.group_by(lambda v: v).count(), {"v": 1}),
    ("select_key().group_by_key().count()",
     lambda s, t: s.select_key(lambda v: v).group_by_key().count(), {"v": 1}),
    ("stream-stream join", lambda s, t: s.join(s.map_values(shout), lambda a, b: f"{a} {b}",
                                               JoinWindows.of(10)), {"k": "v V!"}),
    ("stream-stream left join", lambda s, t: s.left_join(
        s.map_values(shout), lambda a, b: a, JoinWindows.of(10)), {"k": "v"}),
    ("table.group_by().count()", lambda s, t: t.group_by(lambda v: (v, v)).count(), {"v": 1}),
    ("aggregate", lambda s, t: s.group_by_key().aggregate(
        int, lambda k, v, total: total + len(v)), {"k": 1}),
    ("aggregate after group_by", lambda s, t: s.group_by(lambda v: v).aggregate(
        str, lambda k, v, all: all + v), {"v": "v"}),
]


@pytest.mark.parametrize(
    ("step", "expected"), [pytest.param(*each[1:], id=each[0]) for each in STEPS]
)
def test_step_needs_no_serde(step: Step, expected: dict[str, Any]) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("stream", key=TEXT, value=TEXT)
    table = builder.table("table", key=TEXT, value=TEXT)
    result = step(stream, table)
    if isinstance(result, KTable):
        result = result.to_stream()
    result.to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("table", TEXT, TEXT).pipe_input("k", "v")
        driver.create_input_topic("stream", TEXT, TEXT).pipe_input("k", "v")
        of = type(next(iter(expected.values())))
        assert driver.create_output_topic("out", str, of).read_key_values_to_map() == expected


def test_workers_get_the_serde_and_not_the_functions() -> None:
    def unresolvable(value: str) -> str:
        raise AssertionError(value)

    builder = StreamsBuilder()
    builder.stream("stream", key=TEXT, value=TEXT).map_values(unresolvable).to("out", name="out")
    topology = builder.build()
    config = StreamsConfig(application_id="app")
    check_serdes(topology, config)
    sink = topology.node("out")
    assert isinstance(sink, SinkNode)
    # A local function cannot be pickled.
    restored = pickle.loads(pickle.dumps(sink.value))
    assert restored.make(DefaultSerdes(config)) is TEXT
