"""Small parts of Kafka Streams' public API: ids, wrappers, serdes, states, options."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from penstock import (
    JoinWindows,
    Processor,
    ProcessorWrapper,
    Serdes,
    State,
    StateSerdes,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    TaskId,
    TaskIdFormatException,
    WrappedProcessorSupplier,
)
from penstock.testing import TopologyTestDriver

TEXT = Serdes.string()


def test_task_id_is_parsed() -> None:
    assert TaskId.parse("0_3") == TaskId(0, 3)
    assert TaskId.parse(str(TaskId(12, 34))) == TaskId(12, 34)


@pytest.mark.parametrize("text", ["", "0", "0_", "_3", "0-3", "a_1", "0_3_1", "0_-1", "topo__0_1"])
def test_text_that_is_no_task_id_is_refused(text: str) -> None:
    with pytest.raises(TaskIdFormatException, match="is not a task id"):
        TaskId.parse(text)


class Store(Processor[str, str]):
    stores = (Stores.key_value_store_builder(Stores.in_memory_key_value_store("s"), TEXT, TEXT),)

    def process(self, record: Any) -> None:
        self.context.get_state_store("s").put(record.key, record.value)


class Wrapper(ProcessorWrapper):
    configs: dict[str, Any] = {}  # noqa: RUF012

    def configure(self, configs: Any) -> None:
        type(self).configs = dict(configs)

    def wrap_processor_supplier(self, name: str, supplier: Any) -> Any:
        return self.as_wrapped(supplier)

    def wrap_fixed_key_processor_supplier(self, name: str, supplier: Any) -> Any:
        return self.as_wrapped_fixed_key(supplier)


def test_wrapped_supplier_keeps_its_stores() -> None:
    config = StreamsConfig(application_id="app", processor_wrapper=Wrapper)
    builder = StreamsBuilder(config)
    builder.stream("in", key=TEXT, value=TEXT).peek(print).process(Store)
    with TopologyTestDriver(builder.build(config), config) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("k", "v")
        assert driver.get_key_value_store("s").get("k") == "v"
    assert Wrapper.configs["application.id"] == "app"


def test_supplier_is_wrapped_once() -> None:
    wrapped = ProcessorWrapper.as_wrapped(Store)
    assert isinstance(wrapped, WrappedProcessorSupplier)
    assert ProcessorWrapper.as_wrapped(wrapped) is wrapped
    assert ProcessorWrapper.as_wrapped_fixed_key(wrapped) is wrapped
    assert wrapped.stores is Store.stores


def test_state_serdes_convert_keys_and_values() -> None:
    serdes = StateSerdes("app-s-changelog", TEXT, Serdes.long())
    assert serdes.raw_key("k") == b"k"
    assert serdes.key_from(b"k") == "k"
    assert serdes.value_from(serdes.raw_value(7)) == 7
    assert serdes.raw_value(None) is None
    assert serdes.value_from(None) is None
    assert serdes.topic == "app-s-changelog"


def test_state_serdes_of_types() -> None:
    serdes = StateSerdes.with_builtin_types("topic", str, int)
    assert serdes.raw_value(1) == Serdes.long().serialize(1)
    with pytest.raises(TypeError, match="no serde for the type"):
        StateSerdes.with_builtin_types("topic", str, object)


def test_state_serdes_are_those_of_the_topic() -> None:
    class Registry(type(TEXT)):  # type: ignore[misc]
        def for_topic(self, topic: str, is_key: bool) -> Any:
            asked.append((topic, is_key))
            return self

    asked: list[tuple[str, bool]] = []
    serde = Registry(TEXT.serialize, TEXT.deserialize)
    StateSerdes("t", serde, serde)
    assert asked == [("t", True), ("t", False)]


def test_states_report_where_the_instance_is_in_its_life() -> None:
    assert [state for state in State if state.has_not_started] == [State.CREATED]
    assert [state for state in State if state.has_started_or_finished_shutting_down] == [
        State.PENDING_SHUTDOWN, State.NOT_RUNNING, State.PENDING_ERROR, State.ERROR,
    ]
    assert State.RUNNING.is_valid_transition(State.REBALANCING)
    assert not State.ERROR.is_valid_transition(State.RUNNING)


def test_changelogs_of_a_stream_join_take_settings() -> None:
    builder = StreamsBuilder()
    left = builder.stream("left", key=TEXT, value=TEXT)
    right = builder.stream("right", key=TEXT, value=TEXT)
    left.outer_join(
        right, lambda one, two: f"{one}{two}", JoinWindows.of(timedelta(seconds=1)), key=TEXT,
        value=TEXT, other_value=TEXT, log_config={"retention.ms": "5"},
    )
    topology = builder.build()
    config = StreamsConfig(application_id="app")
    settings = {
        name: dict(store.resolve(config).log_config)
        for name, store in topology.stores.items()
    }
    assert len(settings) == 3
    for name, found in settings.items():
        assert found["retention.ms"] == "5", name
    assert sum(found.get("cleanup.policy") == "delete" for found in settings.values()) == 2
