"""Processor wrappers (KIP-1112) apply to user processors and to the operators of the DSL."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from penstock import (
    Change,
    FixedKeyRecord,
    JoinWindows,
    KStream,
    Processor,
    ProcessorWrapper,
    Record,
    Serdes,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    StreamsException,
    Suppressed,
    TimeWindows,
    Topology,
    TopologyConfig,
    TopologyException,
)
from penstock.testing import TopologyTestDriver, fixed_key_record

TEXT = Serdes.string()
NUMBER = Serdes.long()


class RecordingProcessor:
    """Records the input and output of the wrapped processor."""

    def __init__(self, name: str, inner: Any, seen: list[Any]) -> None:
        self.name = name
        self.inner = inner
        self.seen = seen

    def init(self, context: Any) -> None:
        self.context = context
        self.inner.init(RecordingContext(context, self))

    def process(self, record: Any) -> None:
        self.seen.append((self.name, record))
        self.inner.process(record)

    def close(self) -> None:
        self.seen.append((self.name, "closed"))
        self.inner.close()


class RecordingContext:
    """A context that records forwarded records and delegates everything else."""

    def __init__(self, context: Any, processor: RecordingProcessor) -> None:
        self._context = context
        self._processor = processor

    def forward(self, record: Any, child: str | None = None) -> None:
        self._processor.seen.append((f"{self._processor.name} forwards", record.value))
        self._context.forward(record, child)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


class RecordingWrapper(ProcessorWrapper):
    def __init__(self) -> None:
        self.wrapped: list[str] = []
        self.fixed_key: list[str] = []
        self.seen: list[Any] = []

    def wrap_processor_supplier(
        self, name: str, supplier: Callable[[], Any]
    ) -> Callable[[], Any]:
        self.wrapped.append(name)
        return lambda: RecordingProcessor(name, supplier(), self.seen)

    def wrap_fixed_key_processor_supplier(
        self, name: str, supplier: Callable[[], Any]
    ) -> Callable[[], Any]:
        self.fixed_key.append(name)
        return lambda: RecordingProcessor(name, supplier(), self.seen)


def recording_config() -> tuple[RecordingWrapper, StreamsConfig]:
    wrapper = RecordingWrapper()
    return wrapper, StreamsConfig(
        application_id="app", processor_wrapper=wrapper, default_key_serde=TEXT,
        default_value_serde=TEXT,
    )


def outputs(topology: Topology, **inputs: list[tuple[str, str, int]]) -> list[Any]:
    """Return the records of topic `out` for inputs of (key, value, timestamp), topic by topic."""
    config = StreamsConfig(
        application_id="app", default_key_serde=TEXT, default_value_serde=TEXT
    )
    with TopologyTestDriver(topology, config) as driver:
        for topic, records in inputs.items():
            source = driver.create_input_topic(topic, TEXT, TEXT)
            for key, value, timestamp in records:
                source.pipe_input(key, value, timestamp=timestamp)
        out = driver.create_output_topic("out", TEXT, TEXT)
        return [(r.key, r.value, r.timestamp) for r in out.read_records_to_list()]


class Shout(Processor[str, str]):
    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record.with_value(record.value.upper()))


class ShoutValues(Processor[str, str]):
    def process(self, record: Any) -> None:
        assert isinstance(record, FixedKeyRecord)
        self.context.forward(record.with_value(record.value.upper()))


def test_processors_are_wrapped_and_sources_and_sinks_are_not() -> None:
    wrapper, config = recording_config()
    builder = StreamsBuilder(config)
    stream = builder.stream("in", key=TEXT, value=TEXT)
    stream.filter(lambda value: True, name="some").map_values(str, name="same").peek(
        lambda key, value: None, name="peek"
    ).flat_map_values(list, name="letters").map(lambda k, v: (v, k), name="turned").process(
        Shout, name="shout"
    ).process_values(ShoutValues, name="again").group_by_key(key=TEXT, value=TEXT).count(
        name="count", store="counts"
    )
    builder.build()
    assert wrapper.wrapped == ["turned", "shout", "count"]
    # The null-key filter of a repartition is wrapped like any filter.
    assert wrapper.fixed_key == [
        "some", "same", "peek", "letters", "again", "counts-repartition-filter",
    ]


def test_wrapped_operator_receives_records_and_forwards_through_the_context() -> None:
    wrapper, config = recording_config()
    builder = StreamsBuilder(config)
    builder.stream("in").map_values(lambda value: value + "!", name="loud").to("out")
    results = outputs(builder.build(), **{"in": [("k", "v", 7)]})
    assert results == [("k", "v!", 7)]
    assert wrapper.seen == [
        ("loud", fixed_key_record("k", "v", 7)), ("loud forwards", "v!"), ("loud", "closed"),
    ]


def test_operator_of_a_table_receives_changes() -> None:
    wrapper, config = recording_config()
    builder = StreamsBuilder(config)
    table = builder.table("in", key=TEXT, value=TEXT, store="kept")
    table.map_values(str.upper, name="upper").to_stream(name="changes").to("out")
    results = outputs(builder.build(), **{"in": [("k", "a", 1), ("k", "b", 2)]})
    assert results == [("k", "A", 1), ("k", "B", 2)]
    upper = [what.value for name, what in wrapper.seen if name == "upper" and what != "closed"]
    assert upper == [Change("a", None), Change("b", None)]


def test_wrapper_can_change_the_output() -> None:
    class DoublingWrapper(ProcessorWrapper):
        def wrap_processor_supplier(
            self, name: str, supplier: Callable[[], Any]
        ) -> Callable[[], Any]:
            class Twice(RecordingProcessor):
                def process(self, record: Any) -> None:
                    self.inner.process(record)
                    self.inner.process(record)

            return lambda: Twice(name, supplier(), [])

    config = StreamsConfig(application_id="app", processor_wrapper=DoublingWrapper)
    topology = (
        Topology(config)
        .add_source("source", "in")
        .add_processor("shout", Shout, "source")
        .add_sink("sink", "out", "shout")
    )
    assert outputs(topology, **{"in": [("k", "a", 1)]}) == [("k", "A", 1), ("k", "A", 1)]


def several(builder: StreamsBuilder) -> KStream[Any, Any]:
    """Joins, windows, branches and buffers, all into one topic."""
    left = builder.stream("left", key=TEXT, value=TEXT)
    right = builder.stream("right", key=TEXT, value=TEXT)
    table = builder.table("table", key=TEXT, value=TEXT)
    joined = left.outer_join(
        right, lambda a, b: f"{a}{b}", JoinWindows.of(timedelta(seconds=1)), key=TEXT, value=TEXT,
        other_value=TEXT,
    )
    enriched = left.left_join(table, lambda a, b: f"{a}/{b}")
    keyed = table.join(table, lambda value: value, lambda a, b: f"{a}>{b}")
    branches = right.split(name="b-").branch(lambda value: value > "m", "late").default_branch()
    counts = (
        left.group_by(lambda value: value[:1], key=TEXT, value=TEXT)
        .windowed_by(TimeWindows.of(timedelta(seconds=2))).count()
        .suppress(Suppressed.until_window_closes())
        .to_stream(lambda key, count: key.key).map_values(str)
    )
    result: KStream[Any, Any] = joined
    for other in (enriched, keyed.to_stream(), *branches.values(), counts):
        result = result.merge(other)
    result.to("out", key=TEXT, value=TEXT)
    return result


def test_wrapper_that_only_records_does_not_change_the_output() -> None:
    inputs = {
        "table": [("a", "x", 0), ("x", "a", 1)],
        "left": [("a", "one", 500), ("x", "two", 2_500), ("a", "three", 9_000)],
        "right": [("a", "nine", 600), ("x", "zero", 2_600), (" ", "z", 20_000)],
    }
    wrapper, config = recording_config()
    plain, wrapped = StreamsBuilder(), StreamsBuilder(config)
    several(plain)
    several(wrapped)
    expected = outputs(plain.build(), **inputs)
    assert len(expected) > 10
    assert outputs(wrapped.build(), **inputs) == expected
    assert str(plain.build().describe()) == str(wrapped.build().describe())
    assert len(wrapper.seen) > 30


def test_wrapped_supplier_can_add_stores() -> None:
    kept = Stores.key_value_store_builder(Stores.in_memory_key_value_store("seen"), TEXT, TEXT)

    class StoringWrapper(ProcessorWrapper):
        def wrap_fixed_key_processor_supplier(
            self, name: str, supplier: Callable[[], Any]
        ) -> Callable[[], Any]:
            class StoringProcessor(RecordingProcessor):
                def process(self, record: Any) -> None:
                    self.context.get_state_store("seen").put(record.key, record.value)
                    self.inner.process(record)

            class Supplier:
                stores = (kept,)

                def __call__(self) -> Any:
                    return StoringProcessor(name, supplier(), [])

            return Supplier()

    config = StreamsConfig(application_id="app", processor_wrapper=StoringWrapper())
    builder = StreamsBuilder(config)
    builder.stream("in", key=TEXT, value=TEXT).filter(lambda value: True, name="all")
    topology = builder.build()
    assert topology.stores_of("all") == ("seen",)
    with TopologyTestDriver(topology, config) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("k", "v")
        assert driver.get_key_value_store("seen").get("k") == "v"


def test_stores_of_a_wrapped_processor_are_added() -> None:
    class HasStores(Shout):
        stores = (
            Stores.key_value_store_builder(Stores.in_memory_key_value_store("own"), TEXT, TEXT),
        )

    _, config = recording_config()
    builder = StreamsBuilder(config)
    builder.stream("in").process(HasStores, name="has-stores")
    assert builder.build().stores_of("has-stores") == ("own",)


def test_processors_of_global_and_read_only_stores_are_not_wrapped() -> None:
    wrapper, config = recording_config()
    kept = Stores.key_value_store_builder(Stores.in_memory_key_value_store("kept"), TEXT, TEXT)
    everywhere = Stores.key_value_store_builder(
        Stores.in_memory_key_value_store("everywhere"), TEXT, TEXT
    )
    topology = Topology(config)
    topology.add_read_only_state_store(kept, "read", "a", "feed", Shout)
    topology.add_global_store(everywhere, "read-all", "b", "feed-all", Shout)
    builder = StreamsBuilder(config)
    builder.global_table("in")
    builder.build()
    assert (wrapper.wrapped, wrapper.fixed_key) == ([], [])


def test_config_given_to_build_selects_the_wrapper() -> None:
    wrapper, config = recording_config()
    builder = StreamsBuilder()
    builder.stream("in").peek(lambda key, value: None, name="peek")
    builder.build()
    assert wrapper.fixed_key == []
    builder.build(TopologyConfig(StreamsConfig(application_id="app"), {
        "processor.wrapper.class": wrapper,
    }))
    assert wrapper.fixed_key == ["peek"]
    builder.build(config)
    assert wrapper.fixed_key == ["peek", "peek"]


def test_configure_receives_the_settings() -> None:
    class Configured(ProcessorWrapper):
        def configure(self, configs: dict[str, Any]) -> None:
            settings.append(configs["my.setting"])

    settings: list[str] = []
    config = StreamsConfig.from_properties(
        {"application.id": "app", "my.setting": "x", "processor.wrapper.class": Configured}
    )
    Topology(config)
    assert settings == ["x"]


def test_wrapper_that_returns_no_supplier_raises() -> None:
    class ReturnsNone(ProcessorWrapper):
        def wrap_fixed_key_processor_supplier(self, name: str, supplier: Any) -> Any:
            return None

    builder = StreamsBuilder(StreamsConfig(application_id="app", processor_wrapper=ReturnsNone))
    builder.stream("in").filter(lambda value: True, name="all")
    with pytest.raises(TopologyException, match="all: the processor wrapper ReturnsNone returned"):
        builder.build()


def test_foreign_context_raises() -> None:
    class ForeignContext(RecordingProcessor):
        def init(self, context: Any) -> None:
            self.inner.init(object())

    class ForeignContextWrapper(ProcessorWrapper):
        def wrap_fixed_key_processor_supplier(
            self, name: str, supplier: Callable[[], Any]
        ) -> Callable[[], Any]:
            return lambda: ForeignContext(name, supplier(), [])

    config = StreamsConfig(application_id="app", processor_wrapper=ForeignContextWrapper)
    builder = StreamsBuilder(config)
    builder.stream("in", key=TEXT, value=TEXT).filter(lambda value: True, name="all")
    with pytest.raises(StreamsException, match=r"all: init\(\) of a wrapped processor received"):
        TopologyTestDriver(builder.build(), config)


def test_missing_serdes_raise_with_a_wrapper() -> None:
    config = StreamsConfig(application_id="app", processor_wrapper=RecordingWrapper())
    builder = StreamsBuilder(TopologyConfig(config))
    left = builder.stream("left", key=TEXT, value=TEXT)
    unknown = left.map_values(lambda value: value or "")
    left.outer_join(unknown, lambda a, b: a, JoinWindows.of(1), key=TEXT)
    with pytest.raises(StreamsException, match="There is no value serde"):
        TopologyTestDriver(builder.build(), config)
