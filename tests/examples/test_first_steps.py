"""The first script of a new user: in the test driver, in the engine, and under mypy --strict."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from examples.first_steps import Customer, Order, Sales

from examples import first_steps
from penstock import Serdes, Streams, StreamsConfig, Topology
from penstock.clients import AdminClient, Consumer, NewTopic, Producer
from penstock.testing import TopologyTestDriver

SOURCE = Path(first_steps.__file__)
ROOT = SOURCE.parents[1]
#: Topic, type of its values, and records of (key, value).
Inputs = list[tuple[str, Any, list[tuple[str, Any]]]]

ORDERS = [("o1", Order("ann", 120.0)), ("o2", Order("bob", 10.0)), ("o3", Order("ann", 200.0))]
CASES: list[tuple[Callable[[], Topology], Inputs, str, Any, dict[str, Any]]] = [
    (
        first_steps.word_count, [("lines", str, [("1", "The mill"), ("2", "the stream")])],
        "word-counts", int, {"the": 2, "mill": 1, "stream": 1},
    ),
    (
        first_steps.sales_by_minute, [("orders", Order, ORDERS)],
        "sales-by-minute", Sales, {"ann 0": Sales(2, 320.0), "bob 0": Sales(1, 10.0)},
    ),
    (
        first_steps.quotes,
        [("prices", float, [("tea", 4.0)]), ("rates", float, [("tea", 1.1)])],
        "quotes", float, {"tea": 4.4},
    ),
    (
        first_steps.order_cities,
        [("customers", Customer, [("ann", Customer("Ann", "Oslo"))]), ("orders", Order, ORDERS)],
        "order-cities", str, {"o1": "Oslo", "o3": "Oslo"},
    ),
    (first_steps.discounts, [("orders", Order, ORDERS)], "discounts", float, {"ann": 16.0}),
]
PARAMETERS = [pytest.param(*case, id=case[0].__name__) for case in CASES]


@pytest.mark.parametrize(("build", "inputs", "topic", "of", "expected"), PARAMETERS)
def test_the_topology_runs_in_the_test_driver(
    build: Callable[[], Topology], inputs: Inputs, topic: str, of: Any, expected: dict[str, Any]
) -> None:
    with TopologyTestDriver(build()) as driver:
        for source, values, records in inputs:
            driver.create_input_topic(source, str, values).pipe_key_value_list(records)
        assert driver.create_output_topic(topic, str, of).read_key_values_to_map() == expected


@pytest.mark.parametrize(("build", "inputs", "topic", "of", "expected"), PARAMETERS)
def test_the_topology_runs_in_the_engine(
    build: Callable[[], Topology], inputs: Inputs, topic: str, of: Any, expected: dict[str, Any],
    tmp_path: Path,
) -> None:
    log = str(tmp_path / "log.db")
    with AdminClient({"log": log}) as admin:
        names = (*(source for source, _, _ in inputs), topic)
        for created in admin.create_topics([NewTopic(name, 2) for name in names]).values():
            created.result()
    with Producer({"log": log}) as producer:
        for source, values, records in inputs:
            serde = Serdes.of(values)
            for key, value in records:
                producer.produce(source, key=key, value=serde.serialize(value), timestamp=1)
    config = StreamsConfig(application_id="first", log=log, state_dir=str(tmp_path / "state"))
    with Streams(build(), config, master="inline") as streams:
        streams.run_until_caught_up()
    assert read(log, topic, Serdes.of(of)) == expected


def read(log: str, topic: str, serde: Any) -> dict[str, Any]:
    """The latest value of each key of a topic."""
    settings = {"log": log, "group.id": "reader", "auto.offset.reset": "earliest"}
    found = {}
    with Consumer(settings) as consumer:
        consumer.subscribe([topic])
        while (message := consumer.poll(1.0)) is not None:
            found[message.key().decode()] = serde.deserialize(message.value())
    return found


def test_topologies_are_short_and_give_serdes_for_sources_only() -> None:
    tree = ast.parse(SOURCE.read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert len(functions) == len(CASES)
    for function in functions:
        assert function.end_lineno is not None
        assert function.end_lineno - function.lineno < 12, function.name
        for call in ast.walk(function):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                given = {keyword.arg for keyword in call.keywords} & {"key", "value"}
                assert not given or call.func.attr in {"stream", "table"}, function.name


@pytest.mark.slow
def test_the_script_passes_mypy_strict() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", str(SOURCE)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )
    assert ran.returncode == 0, ran.stdout
