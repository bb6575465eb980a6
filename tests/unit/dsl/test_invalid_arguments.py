"""Invalid arguments raise an error at the call that names the step and says what is expected."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from penstock import (
    AutoOffsetReset,
    BufferConfig,
    ConfigException,
    EmitStrategy,
    JoinWindows,
    LogAndContinueExceptionHandler,
    LogAndContinueProcessingExceptionHandler,
    Materialized,
    Processor,
    Record,
    Serdes,
    SessionWindows,
    SlidingWindows,
    Stores,
    StoreType,
    StreamsBuilder,
    StreamsConfig,
    StreamsException,
    Suppressed,
    TimeWindows,
    Topology,
    TopologyConfig,
    TopologyException,
    UnlimitedWindows,
    WallclockTimestampExtractor,
)
from penstock.serdes import Serde
from penstock.testing import TopologyTestDriver

# The calls below have wrong types on purpose.
# mypy: ignore-errors

STRING = Serdes.string()


class Ignore(Processor[Any, Any]):
    def process(self, record: Record[Any, Any]) -> None:
        pass


class NeedsAnArgument(Ignore):
    def __init__(self, argument: int) -> None:
        pass


ONE = Ignore()


def builder_of(name: str) -> Any:
    return Stores.key_value_store_builder(Stores.in_memory_key_value_store(name), STRING, STRING)


def pair(left: Any, right: Any) -> tuple[Any, Any]:
    return left, right


def yes(value: Any) -> bool:
    return True


class Example:
    """A builder with streams, a table and a global table."""

    def __init__(self) -> None:
        self.builder = StreamsBuilder()
        self.stream = self.builder.stream("in", key=STRING, value=STRING, name="orders")
        self.other = self.builder.stream("other", key=STRING, value=STRING)
        self.table = self.builder.table("table", key=STRING, value=STRING, name="stores")
        self.global_table = self.builder.global_table("global", key=STRING, value=STRING)

    def build(self) -> Topology:
        return self.builder.build()

    def run(self) -> None:
        TopologyTestDriver(self.build()).close()


def topology() -> Topology:
    return Topology().add_source("source", "topic").add_processor("step", Ignore, "source")


Case = tuple[str, Callable[[Example], Any], type[Exception], str]

GRAPH: list[Case] = [
    ("duplicate step name",
     lambda p: (p.stream.filter(yes, name="f").filter(yes, name="f"), p.build()),
     TopologyException, "Processor f is already added"),
    ("unknown parent",
     lambda p: topology().add_processor("next", Ignore, "nothing"),
     TopologyException, r"Parent node nothing of next is unknown.*Nodes: source, step"),
    ("step is its own parent",
     lambda p: topology().add_processor("next", Ignore, "next"),
     TopologyException, "Parent node next of next is unknown .a node cannot be its own parent"),
    ("no parent", lambda p: topology().add_processor("next", Ignore),
     TopologyException, "next has no parents"),
    ("sink as a parent",
     lambda p: topology().add_sink("sink", "out", "step").add_sink("next", "out", "sink"),
     TopologyException, "Sink sink cannot be used as a parent of next"),
    ("source without topics", lambda p: Topology().add_source("source"),
     TopologyException, "source needs either topics or a pattern"),
    ("None as a name", lambda p: Topology().add_source(None, "topic"),
     TypeError, "name of a node must be a string, not None"),
    ("overlapping subscriptions",
     lambda p: (p.builder.stream(["in", "more"], name="both"), p.build()),
     TopologyException, "overlapping but not equal input topics: orders reads .*, both "),
    ("a table and a stream of one topic", lambda p: (p.builder.table("in"), p.build()),
     TopologyException, "Topic in has already been registered by another source, orders"),
    ("pattern matches a topic of another source",
     lambda p: (p.builder.stream(re.compile("i."), name="all"), p.build()),
     TopologyException, "Pattern i. of all matches topic in, .* orders"),
    ("two offset resets for one topic",
     lambda p: (p.builder.stream("in", offset_reset=AutoOffsetReset.latest(), name="again"),
                p.build()),
     TopologyException, "Can't configure different offset reset policies.*orders and again"),
    ("streams of two builders", lambda p: p.stream.merge(Example().stream, name="m"),
     TopologyException, "m: the two sides come from different StreamsBuilders"),
    ("a join across builders", lambda p: p.stream.join(Example().table, pair, name="j"),
     TopologyException, "j: the two sides come from different StreamsBuilders"),
    ("a global table of another builder",
     lambda p: p.stream.join(Example().global_table, yes, pair, name="j"),
     TopologyException, "j: the two sides come from different StreamsBuilders"),
    ("duplicate branch name",
     lambda p: (p.stream.split(name="s-").branch(yes, "a").branch(yes, "a"), p.build()),
     TopologyException, "Processor s-a is already added"),
    ("branch after the default branch",
     lambda p: [split := p.stream.split(name="s-"), split.default_branch(), split.branch(yes)],
     TopologyException, "s- already has a default branch"),
]

STORES: list[Case] = [
    ("store that was not added", lambda p: (p.stream.process(Ignore, "kept", name="p"),
                                              p.build()),
     TopologyException, "StateStore kept of p is not added yet. Stores: "),
    ("store builder instead of a store name",
     lambda p: p.stream.process(Ignore, builder_of("kept"), name="p"),
     TypeError, "p: stores are connected by name, not by StoreBuilder"),
    ("supplier instead of a store builder",
     lambda p: p.builder.add_state_store(Stores.in_memory_key_value_store("kept")),
     TypeError, "a store is added as a StoreBuilder.*key_value_store_builder"),
    ("store name instead of a store builder",
     lambda p: topology().add_state_store("kept", "step"),
     TypeError, "A store is added as a StoreBuilder, not 'kept'"),
    ("a store connected to a source",
     lambda p: topology().add_state_store(builder_of("kept"), "source"),
     TopologyException, "StateStore kept cannot be connected to source"),
    ("a store connected to an unknown processor",
     lambda p: topology().add_state_store(builder_of("kept"), "nothing"),
     TopologyException, "Processor nothing is not added yet"),
    ("duplicate store name",
     lambda p: (p.stream.group_by_key().count(store="kept"),
                p.other.group_by_key().count(store="kept"), p.build()),
     TopologyException, "A different StateStore has already been added with the name kept"),
    ("local and global store with the same name",
     lambda p: (p.builder.global_table("g", store="kept"), p.builder.table("t", store="kept"),
                p.build()),
     TopologyException, "A different GlobalStateStore has already been added with the name kept"),
    ("a serde as a store", lambda p: p.stream.group_by_key().count(store=STRING, name="c"),
     TypeError, "c: store= takes a name, a supplier or a Materialized, not Serde"),
    ("a window store for a count",
     lambda p: p.stream.group_by_key().count(
         store=Stores.in_memory_window_store("kept", 1000, 1000, False)),
     TypeError, "supplier of store kept is a WindowSupplier, which cannot be used here"),
    ("a key-value store for windows",
     lambda p: p.stream.group_by_key().windowed_by(TimeWindows.of(1)).count(
         store=Stores.in_memory_key_value_store("kept")),
     TypeError, "supplier of store kept is a KeyValueSupplier, which cannot be used here"),
    ("a retention shorter than the window",
     lambda p: p.stream.group_by_key().windowed_by(TimeWindows.of(1000)).count(
         store=Materialized("kept", retention=10)),
     ValueError, "retention period of the window store kept must be no smaller than"),
    ("a versioned global table",
     lambda p: p.builder.global_table(
         "t", store=Stores.persistent_versioned_key_value_store("kept", 1000)),
     TopologyException, "GlobalTables cannot be versioned, but store kept of topic t is"),
    ("stores are not builders",
     lambda p: (p.stream.process(type("HasStores", (Ignore,), {"stores": ["kept"]})), p.build()),
     TypeError, "HasStores.stores must contain store builders, not 'kept'"),
    ("stores as a method of a class that is the supplier",
     lambda p: (p.stream.process(type("HasStores", (Ignore,), {"stores": lambda self: []})),
                p.build()),
     TypeError, "HasStores.stores cannot be called without arguments.*static method"),
]

SERDES: list[Case] = [
    ("no serde for a source", lambda p: (p.builder.stream("x", name="read").foreach(pair), p.run()),
     StreamsException, "Failed to initialize serdes for source node read.*default_key_serde"),
    ("no serde for a sink",
     lambda p: (p.stream.map(pair).to("out", name="write"), p.run()),
     StreamsException, "Failed to initialize serdes for sink node write: There is no key serde"),
    ("no serde for a store",
     lambda p: (p.stream.group_by_key().aggregate(list, lambda k, v, a: a, store="sums"), p.run()),
     StreamsException, "Failed to initialize serdes for store sums: .*set default_value_serde"),
    ("string for a serde", lambda p: p.builder.stream("x", key="string", name="s"),
     TypeError, r"s: key= takes a serde or a type that has one, not str: 'string'. str, Order"),
    ("type without a serde", lambda p: p.builder.table("x", value=object, name="t"),
     TypeError, "t: value= takes a serde or a type that has one, not 'object'"),
    ("class of serdes", lambda p: p.builder.table("x", value=Serde, name="t"),
     TypeError, r"t: value= takes .*not 'Serde'. Call it: Serde\(\)"),
    ("serde factory that was not called", lambda p: p.stream.to("x", value=Serdes.long, name="s"),
     TypeError, r"s: value= takes .*, not 'long'. Call it: Serdes.long\(\)"),
    ("string for a serde of a grouping", lambda p: p.stream.group_by(yes, key="s", name="g"),
     TypeError, "g: key= takes a serde"),
    ("string for a serde of a join",
     lambda p: p.stream.join(p.table, pair, other_value="s", name="j"),
     TypeError, "j: other_value= takes a serde"),
    ("string for a serde of a store", lambda p: Materialized("kept", value="s"),
     TypeError, "Materialized..kept..: value= takes a serde"),
    ("string for a deserializer",
     lambda p: Topology().add_source("source", "topic", key_deserializer="string"),
     TypeError, "source: a deserializer is a serde or a function, not 'string'"),
]

FUNCTIONS: list[Case] = [
    ("predicate of three arguments", lambda p: p.stream.filter(lambda a, b, c: True, name="f"),
     TopologyException, r"f: the predicate must take 1 or 2 arguments, \(value\) or \(key, value\),"
     r" but it is <lambda>\(a, b, c\)"),
    ("mapper without arguments", lambda p: p.stream.map_values(lambda: 1, name="m"),
     TopologyException, "m: the mapper must take 1 or 2 arguments"),
    ("not a function", lambda p: p.stream.map({}, name="m"),
     TypeError, "m: the mapper must be a function, not {}"),
    ("initializer and aggregator in the wrong order",
     lambda p: p.stream.group_by_key().aggregate(lambda k, v, a: a, int, name="a"),
     TopologyException, "a: the initializer must take 0 arguments"),
    ("a value for the initializer",
     lambda p: p.stream.group_by_key().aggregate(0, lambda k, v, a: a, name="a"),
     TypeError, "a: the initializer must be a function, not 0"),
    ("aggregator of 2 arguments", lambda p: p.stream.group_by_key().aggregate(int, pair, name="a"),
     TopologyException, r"a: the aggregator must take 3 arguments, \(key, value, aggregate\)"),
    ("reducer of one argument", lambda p: p.stream.group_by_key().reduce(yes, name="r"),
     TopologyException, "r: the reducer must take 2 arguments"),
    ("joiner of one argument", lambda p: p.stream.join(p.table, yes, name="j"),
     TopologyException, r"j: the joiner must take 2 or 3 arguments, \(left, right\) or"),
    ("a joiner of two tables with the key",
     lambda p: p.table.join(p.table, lambda key, left, right: left, name="j"),
     TopologyException, r"j: the joiner of two tables must take 2 arguments, \(left, right\)"),
    ("topic name extractor of one argument", lambda p: p.stream.to(yes, name="s"),
     TopologyException, r"s: the function that names the topic must take 3 arguments"),
    ("list of topics to write to", lambda p: p.stream.to(["a", "b"], name="s"),
     TypeError, r"s: to takes the name of a topic or a function .*, not \['a', 'b'\]"),
    ("partitioner of two arguments", lambda p: p.stream.to("out", partitioner=pair, name="s"),
     TopologyException, r"s: the partitioner must take 4 arguments, \(topic, key, value, part"),
    ("timestamp extractor of 1 argument", lambda p: p.builder.stream("x", timestamp=yes, name="s"),
     TopologyException, r"s: the timestamp extractor must take 2 arguments, \(record, partition_"),
    ("the class of a timestamp extractor",
     lambda p: p.builder.stream("x", timestamp=WallclockTimestampExtractor, name="s"),
     TypeError, r"s: timestamp= takes a function.*Call it: WallclockTimestampExtractor\(\)"),
]

JOINS: list[Case] = [
    ("streams without windows", lambda p: p.stream.join(p.other, pair),
     TypeError, r"inner join of orders: .*\(stream, joiner, windows\).*windows is missing"),
    ("streams with other windows",
     lambda p: p.stream.left_join(p.other, pair, TimeWindows.of(1), name="j"),
     TypeError, "j: a join of two streams needs JoinWindows as its third argument"),
    ("a table with windows", lambda p: p.stream.join(p.table, pair, JoinWindows.of(1), name="j"),
     TypeError, r"j: a join with a table takes \(table, joiner\), but 2 arguments"),
    ("a global table without a key", lambda p: p.stream.join(p.global_table, pair, name="j"),
     TypeError, "j: a join with a global table takes .*joiner is missing"),
    ("an outer join with a table", lambda p: p.stream.outer_join(p.table, pair, name="j"),
     TypeError, "j: the outer join of a stream takes a KStream, not KTable"),
    ("a table joined with a stream", lambda p: p.table.join(p.stream, pair, name="j"),
     TypeError, r"j: the inner join of a table takes a KTable, not KStream.*to_table\(\)"),
    ("the name of a topic", lambda p: p.stream.join("table", pair, name="j"),
     TypeError, "j: the inner join of a stream takes a KStream, a KTable or a GlobalKTable, not s"),
    ("an option of another join",
     lambda p: p.stream.join(p.table, pair, store_name="kept", name="j"),
     TypeError, "j got an unexpected keyword argument 'store_name'. Options: key, value"),
    ("a grace for a table without versions",
     lambda p: p.stream.join(p.table, pair, grace=timedelta(seconds=1), name="j"),
     ValueError, "j: KTable must be versioned to use a grace period in a stream table join"),
    ("table instead of a stream", lambda p: p.stream.merge(p.table, name="m"),
     TypeError, r"m: merge takes a KStream, not KTable.*to_stream\(\)"),
    ("stream instead of a grouped stream",
     lambda p: p.stream.group_by_key().cogroup(lambda k, v, a: a).cogroup(p.other, yes),
     TypeError, "cogroup takes a KGroupedStream, not KStream"),
]

NAMES: list[Case] = [
    ("space", lambda p: p.stream.filter(yes, name="a b"),
     TopologyException, "name 'a b' has an illegal character"),
    ("empty name", lambda p: p.stream.filter(yes, name=""), TopologyException, "must not be empty"),
    ("two dots", lambda p: p.stream.filter(yes, name=".."), TopologyException, "must not be '..'"),
    ("250 characters", lambda p: p.stream.filter(yes, name="n" * 250),
     TopologyException, "at most 249 characters, but this one has 250"),
    ("a number", lambda p: p.stream.filter(yes, name=5),
     TypeError, "name must be a string, not int: 5"),
    ("a store's name", lambda p: p.stream.group_by_key().count(store="a b"),
     TopologyException, "name 'a b' has an illegal character"),
    ("no topic", lambda p: p.builder.stream([]),
     TopologyException, "A stream reads one or more topics"),
    ("None for a topic", lambda p: p.builder.stream(None),
     TopologyException, "A stream reads one or more topics, not None"),
    ("topics of a table", lambda p: p.builder.table(["a", "b"]),
     TopologyException, "A table reads one topic, given by its name"),
]

WINDOWS: list[Case] = [
    ("a size of zero", lambda p: TimeWindows.of(0), ValueError, "Window size must be larger than"),
    ("an advance beyond the size", lambda p: TimeWindows.of(10, advance=20),
     ValueError, "Window advance must be more than zero and at most the window size, 10 ms"),
    ("a negative grace", lambda p: SlidingWindows.of(10, grace=-1),
     ValueError, "grace period must not be negative: -1 ms"),
    ("a negative gap", lambda p: SessionWindows.of(-1), ValueError, "gap must not be negative"),
    ("a negative interval", lambda p: JoinWindows.of(-1), ValueError, "must not be negative"),
    ("microseconds", lambda p: TimeWindows.of(timedelta(seconds=1) / 3),
     ValueError, "size 0:00:00.333333 is not a whole number of milliseconds.*Round it"),
    ("seconds as a float", lambda p: TimeWindows.of(1.5),
     TypeError, "size must be a timedelta or int milliseconds, not float: 1.5"),
    ("datetime without a time zone", lambda p: UnlimitedWindows.of().start_on(datetime(2026, 1, 1)),
     ValueError, "start 2026-01-01T00:00:00 has no time zone"),
    ("duration instead of windows",
     lambda p: p.stream.group_by_key().windowed_by(timedelta(1)),
     TypeError, "orders: windowed_by takes TimeWindows"),
    ("class instead of windows",
     lambda p: p.stream.group_by_key().windowed_by(TimeWindows),
     TypeError, "orders: windowed_by takes TimeWindows"),
    ("the windows of a join", lambda p: p.stream.group_by_key().windowed_by(JoinWindows.of(1)),
     TypeError, "orders: windowed_by takes .*, not JoinWindows"),
    ("final results of windows that never close",
     lambda p: p.stream.group_by_key().windowed_by(UnlimitedWindows.of()).emit_strategy(
         EmitStrategy.on_window_close()),
     ValueError, "Unlimited windows never close"),
    ("string for an emit strategy",
     lambda p: p.stream.group_by_key().windowed_by(TimeWindows.of(1)).emit_strategy("close"),
     TypeError, "orders: emit_strategy takes an EmitStrategy, not 'close'"),
    ("suppress without windows", lambda p: p.table.suppress(Suppressed.until_window_closes()),
     TopologyException, r"Window close time is only defined for windowed.*Got \[stores\]"),
    ("suppress with a duration", lambda p: p.table.suppress(timedelta(1)),
     TypeError, "stores: suppress takes a Suppressed, not timedelta"),
    ("a final buffer that emits early",
     lambda p: Suppressed.until_window_closes(BufferConfig.max_records(1)),
     ValueError, "needs a buffer that never emits early"),
    ("a negative time limit", lambda p: Suppressed.until_time_limit(-1),
     ValueError, "time limit of suppress must not be negative"),
    ("a negative buffer", lambda p: BufferConfig.max_bytes(-1),
     ValueError, "number of bytes in a buffer must be 0 or more"),
]

ARGUMENTS: list[Case] = [
    ("processor instead of a supplier", lambda p: p.stream.process(Ignore(), name="p"),
     TypeError, "p: expected a class .*not an instance of Ignore. Pass Ignore, or lambda"),
    ("processor instead of a supplier in the Processor API",
     lambda p: topology().add_processor("next", Ignore(), "step"),
     TypeError, "next: expected a class or a function without arguments"),
    ("a function of the record", lambda p: p.stream.process(yes, name="p"),
     TypeError, "p: a processor is created without arguments, but yes requires some"),
    ("a class that needs arguments", lambda p: p.stream.process(NeedsAnArgument, name="p"),
     TypeError, r"p: .*but NeedsAnArgument requires some. Pass a function: lambda: N"),
    ("supplier that returns the same processor twice",
     lambda p: p.stream.process(lambda: ONE, name="p"),
     ValueError, "p: <lambda> generates single reference"),
    ("supplier of something else", lambda p: p.stream.process_values(lambda: 5, name="p"),
     StreamsException, "p: the supplier returned 5, which has no method `process`"),
    ("a class without process", lambda p: p.stream.process(dict, name="p"),
     TypeError, "p: dict has no method `process`"),
    ("transformer instead of a supplier",
     lambda p: p.table.transform_values(5, name="t"),
     TypeError, "t: expected a class or a function without arguments"),
    ("string for an offset reset", lambda p: p.builder.stream("x", offset_reset="latest", name="s"),
     TypeError, r"s: offset_reset= takes an AutoOffsetReset, not str: 'latest'"),
    ("no partitions", lambda p: p.stream.repartition(partitions=0, name="r"),
     ValueError, "r: partitions= must be at least 1, not 0"),
    ("string for partitions", lambda p: p.stream.repartition(partitions="3", name="r"),
     ValueError, "r: partitions= must be at least 1, not '3'"),
    ("a label for print", lambda p: p.stream.print("label"),
     TypeError, "orders: print takes a Printed, not str"),
    ("a sink without a topic", lambda p: topology().add_sink("sink", None, "step"),
     TypeError, "sink: the topic of a sink must be a name or a function"),
    ("a dict for the configuration", lambda p: StreamsBuilder({"application.id": "app"}),
     TypeError, "is a StreamsConfig or a TopologyConfig, not dict.*from_properties"),
]


def config(**settings: Any) -> Callable[[Example], Any]:
    return lambda _: StreamsConfig(**{"application_id": "app", **settings})


CONFIG: list[Case] = [
    ("illegal application id", config(application_id="my app"),
     ConfigException, "application_id cannot be 'my app'"),
    ("an unknown setting", config(comit_interval_ms=5), TypeError, "comit_interval_ms"),
    ("an unknown optimization", config(topology_optimization="merge"),
     ConfigException, "topology_optimization cannot be 'merge'.*merge.repartition.topics"),
    ("an unknown guarantee", config(processing_guarantee="once"),
     ConfigException, "processing_guarantee cannot be 'once'. Use one of: exactly_once"),
    ("string for a serde", config(default_value_serde="string"),
     ConfigException, "default_value_serde must be a serde, not str: 'string'"),
    ("a negative interval", config(commit_interval_ms=-1),
     ConfigException, "commit_interval_ms must be at least 0, not -1"),
    ("an interval with microseconds", config(commit_interval_ms=timedelta(microseconds=1)),
     ConfigException, "commit_interval_ms .* is not a whole number of milliseconds"),
    ("string for a switch", config(ensure_explicit_internal_resource_naming="yes"),
     ConfigException, "ensure_explicit_internal_resource_naming must be True or False, not 'yes'"),
    ("handler of another kind",
     config(processing_exception_handler=LogAndContinueExceptionHandler),
     ConfigException, "LogAndContinueExceptionHandler is not a processing exception handler"),
    ("handler instance of another kind",
     config(deserialization_exception_handler=LogAndContinueProcessingExceptionHandler()),
     ConfigException, "ProcessingExceptionHandler is not a deserialization exception handler"),
    ("an unknown handler", config(production_exception_handler="skip"),
     ConfigException, "production exception handler 'skip' does not exist. Handlers: fail, cont"),
    ("a handler of one argument", config(processing_exception_handler=yes),
     ConfigException, r"must take \(context, record, exception\), but yes does not"),
    ("not a handler", config(production_exception_handler=5),
     ConfigException, "A production exception handler must be 'fail', 'continue'"),
    ("not an extractor", config(default_timestamp_extractor=5),
     ConfigException, "timestamp extractor must be a function of .record, partition_time., not"),
    ("not a wrapper", config(processor_wrapper=5),
     ConfigException, "processor_wrapper must be a ProcessorWrapper or its class, not 5"),
    ("wrapper that cannot be imported", config(processor_wrapper="nowhere.Wrapper"),
     ConfigException, "processor_wrapper 'nowhere.Wrapper' cannot be imported"),
    ("unknown store suppliers", config(dsl_store_suppliers="paper"),
     ConfigException, "dsl_store_suppliers cannot be 'paper'"),
    ("not a supplier of stores", config(dsl_store_suppliers=5),
     ConfigException, "dsl_store_suppliers cannot be 5. It needs the methods key_value_store"),
    ("a supplier as the name of a store",
     lambda p: Materialized(Stores.in_memory_key_value_store("counts")),
     TypeError, "Pass the KeyValueSupplier as supplier="),
    ("a type of stores as the name of a store", lambda p: Materialized(StoreType.IN_MEMORY),
     TypeError, "Pass the StoreType as store_type="),
    ("an unknown setting of a topology",
     lambda p: TopologyConfig(StreamsConfig(application_id="app"), {"colour": "red"}),
     ConfigException, "A topology has no setting 'colour'"),
]

CASES = {
    "graph": GRAPH, "stores": STORES, "serdes": SERDES, "functions": FUNCTIONS, "joins": JOINS,
    "names": NAMES, "windows": WINDOWS, "arguments": ARGUMENTS, "config": CONFIG,
}


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        pytest.param(make, error, message, id=f"{kind}: {what}")
        for kind, cases in CASES.items()
        for what, make, error, message in cases
    ],
)
def test_invalid_argument_raises(
    make: Callable[[Example], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make(Example())


def test_access_to_an_unconnected_store_raises() -> None:
    class ReadsStore(Ignore):
        def init(self, context: Any) -> None:
            context.get_state_store("kept")

    example = Example()
    example.builder.add_state_store(builder_of("kept"))
    example.stream.process(Ignore, "kept", name="connected")
    example.stream.process(ReadsStore, name="reads")
    with pytest.raises(StreamsException, match=r"reads has no access to StateStore kept.*connect"):
        example.run()


def test_generated_names_raise_if_explicit_names_are_required() -> None:
    config = StreamsConfig(application_id="app", ensure_explicit_internal_resource_naming=True)
    builder = StreamsBuilder(config)
    builder.stream("in").group_by(yes).count()
    with pytest.raises(TopologyException, match="these names were generated: store KSTREAM-AGG"):
        builder.build()
