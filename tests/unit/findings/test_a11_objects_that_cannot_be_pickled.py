"""The test driver refuses what Spark would refuse when the application starts."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from penstock import Processor, Serdes, StreamsBuilder, StreamsConfig, Topology, TopologyException
from penstock.testing import TopologyTestDriver

TEXT = Serdes.string()


def locking() -> Topology:
    lock = threading.Lock()

    def shout(value: str) -> str:
        with lock:
            return value.upper()

    builder = StreamsBuilder()
    words = builder.stream("words", key=TEXT, value=TEXT)
    words.map_values(shout, name="shout").to("shouts", key=TEXT, value=TEXT)
    return builder.build()


def test_closure_over_a_lock_is_refused_with_the_error_of_spark() -> None:
    with pytest.raises(TopologyException) as raised:
        TopologyTestDriver(locking())
    message = str(raised.value)
    assert message.startswith("The step 'shout' cannot be sent to Spark's workers. Its function")
    assert "uses 'lock', a _thread.lock, which cannot be pickled" in message
    assert "context.resource(name, factory)" in message


def test_check_can_be_turned_off() -> None:
    with TopologyTestDriver(locking(), check_pickling=False) as driver:
        driver.create_input_topic("words", TEXT, TEXT).pipe_input("tea")
        assert driver.create_output_topic("shouts", TEXT, TEXT).read_value() == "TEA"


def test_setting_that_cannot_be_pickled_is_refused() -> None:
    config = StreamsConfig(application_id="app", extra={"my.lock": threading.Lock()})
    builder = StreamsBuilder()
    builder.stream("words", key=TEXT, value=TEXT).to("shouts", key=TEXT, value=TEXT)
    with pytest.raises(TopologyException, match="The setting extra cannot be sent"):
        TopologyTestDriver(builder.build(), config)


def test_processor_supplier_with_a_lock_is_refused() -> None:
    class Locking(Processor[Any, Any]):
        def __init__(self, lock: Any) -> None:
            self.lock = lock

    lock = threading.Lock()
    builder = StreamsBuilder()
    builder.stream("words", key=TEXT, value=TEXT).process(lambda: Locking(lock), name="lock")
    with pytest.raises(TopologyException, match="The step 'lock' cannot be sent"):
        TopologyTestDriver(builder.build())


def test_check_does_not_copy_the_objects_of_a_test() -> None:
    seen: list[str] = []
    builder = StreamsBuilder()
    words = builder.stream("words", key=TEXT, value=TEXT)
    words.foreach(lambda key, value: seen.append(value))
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("words", TEXT, TEXT).pipe_input("tea")
    assert seen == ["tea"]
