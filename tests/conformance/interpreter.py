"""Builds a case's topology with penstock's DSL: one call for each step (README.md, section 3)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from conformance.cases import InvalidCase
from conformance.combiners import aggregator, initializer, joiner, merger, reducer
from conformance.functions import list_function, name_of, predicate, scalar, string_argument
from conformance.options import (
    join_windows,
    materialized,
    store_builder,
    store_supplier,
    store_type,
    suppressed,
    timestamp_extractor,
    windows,
)
from conformance.user_processors import (
    fixed_key_supplier,
    processor_supplier,
    put_into,
    transformer_supplier,
)
from conformance.values import json_of, text
from conformance.wire import serde
from penstock import (
    AutoOffsetReset,
    Branched,
    EmitStrategy,
    GlobalKTable,
    KGroupedTable,
    KStream,
    KTable,
    Printed,
    StreamsBuilder,
    Topology,
)
from penstock.errors import WrongSerdeException
from penstock.processors.stateless import key_and_value

Step = dict[str, Any]


class Interpreter:
    """Executes the steps of one case.

    `observed` is filled while the topology runs, the other attributes while it is built. `prints`
    are the ids of the steps that print; each prints to its own file.
    """

    def __init__(self, builder: StreamsBuilder) -> None:
        self.builder = builder
        self.nodes: dict[str, Any] = {}
        self.observed: dict[str, list[Any]] = {}
        self.prints: list[str] = []
        self.branches: dict[str, str | None] = {}
        self.named_stores: set[str] = set()

    def step(self, step: Step) -> None:
        """Execute one step of the DSL."""
        method = getattr(self, f"_{step['op']}", None)
        if method is None:
            raise InvalidCase(f"Unknown op {step['op']!r}.")
        result = method(step)
        if "id" in step and result is not None:
            self.nodes[step["id"]] = result

    # ---- parameters ----

    def _node(self, name: str) -> Any:
        if name not in self.nodes:
            raise InvalidCase(f"No step {name!r}. Steps: {', '.join(self.nodes)}.")
        return self.nodes[name]

    def _on(self, step: Step) -> Any:
        on = step["on"]
        return self._node(on[0] if isinstance(on, list) else on)

    def _options(self, step: Step, *names: str) -> dict[str, Any]:
        """The keyword arguments of a call. Absent options are not passed."""
        given: dict[str, Any] = {}
        for name in names:
            if step.get(name) is None:
                continue
            if name in ("key", "value", "other_value"):
                given[name] = serde(step[name])
            elif name == "store":
                given[name] = self._materialized(step)
            else:
                given[name] = step[name]
        return given

    def _materialized(self, step: Step) -> Any:
        if "name" in step["store"]:
            self.named_stores.add(step["store"]["name"])
        return materialized(step["store"])

    def _store_builder(self, spec: dict[str, Any]) -> Any:
        self.named_stores.add(str(spec.get("name")))
        return store_builder(spec)

    def _own_stores(self, step: Step) -> list[Any]:
        return [self._store_builder(spec) for spec in step.get("own_stores", ())]

    # ---- sources ----

    def _consumed(self, step: Step) -> dict[str, Any]:
        options = self._options(step, "key", "value", "name")
        if "ts" in step:
            options["timestamp"] = timestamp_extractor(step["ts"])
        if "reset" in step:
            latest = step["reset"] == "latest"
            reset = AutoOffsetReset.latest() if latest else AutoOffsetReset.earliest()
            options["offset_reset"] = reset
        return options

    def _stream(self, step: Step) -> Any:
        if "pattern" in step:
            topics: Any = re.compile(step["pattern"])
        else:
            topics = step["topics"] if "topics" in step else step.get("topic", "")
        return self.builder.stream(topics, **self._consumed(step))

    def _table_options(self, step: Step) -> dict[str, Any]:
        """The serdes of `Consumed` are also the serdes of the store, even if they are absent."""
        options = {**self._consumed(step), **self._options(step, "store")}
        if "store" in options:
            options["store"] = replace(options["store"], key=None, value=None)
        return options

    def _table(self, step: Step) -> Any:
        options = self._table_options(step)
        return self.builder.table(step.get("topic", ""), **options)

    def _global_table(self, step: Step) -> Any:
        options = self._table_options(step)
        return self.builder.global_table(step.get("topic", ""), **options)

    def _add_store(self, step: Step) -> None:
        self.builder.add_state_store(self._store_builder(step["store"]))

    def _add_global_store(self, step: Step) -> None:
        store = self._store_builder(step["store"])
        self.builder.add_global_store(
            store, step.get("topic", ""), put_into(store.name), **self._consumed(step)
        )

    # ---- stateless steps ----

    def _filter(self, step: Step) -> Any:
        accepts = predicate(step.get("fn"))
        on = self._on(step)
        return on.filter(accepts, **self._options(step, *_view_options(on)))

    def _filter_not(self, step: Step) -> Any:
        accepts = predicate(step.get("fn"))
        on = self._on(step)
        return on.filter_not(accepts, **self._options(step, *_view_options(on)))

    def _map(self, step: Step) -> Any:
        return self._on(step).map(_pairs(step), **self._options(step, "name"))

    def _map_values(self, step: Step) -> Any:
        mapper = _of_value(scalar(step.get("fn")), step)
        on = self._on(step)
        return on.map_values(mapper, **self._options(step, *_view_options(on)))

    def _flat_map(self, step: Step) -> Any:
        each = list_function(step.get("each"))
        key_fn = scalar(step.get("key_fn", "key"))
        value_fn = scalar(step.get("value_fn", "identity"))

        def records(key: Any, value: Any) -> Any:
            elements = each(key, value)
            return elements and [(key_fn(key, e), value_fn(key, e)) for e in elements]

        return self._on(step).flat_map(records, **self._options(step, "name"))

    def _flat_map_values(self, step: Step) -> Any:
        mapper = _of_value(list_function(step.get("each")), step)
        return self._on(step).flat_map_values(mapper, **self._options(step, "name"))

    def _select_key(self, step: Step) -> Any:
        return self._on(step).select_key(scalar(step.get("fn")), **self._options(step, "name"))

    def _watch(self, step: Step) -> Callable[[Any, Any], None]:
        seen = self.observed.setdefault(step.get("id", ""), [])
        return lambda key, value: seen.append([json_of(key), json_of(value)])

    def _peek(self, step: Step) -> Any:
        return self._on(step).peek(self._watch(step), **self._options(step, "name"))

    def _foreach(self, step: Step) -> None:
        self._on(step).foreach(self._watch(step), **self._options(step, "name"))

    def _print(self, step: Step) -> None:
        self.prints.append(step.get("id", ""))
        options = self._options(step, "label", "name")
        if "fn" in step:
            shown = scalar(step["fn"])
            options["mapper"] = lambda key, value: text(shown(key, value))
        else:
            # A JSON value is an object of Java whose text is JSON.
            options["mapper"] = lambda key, value: key_and_value(as_printed(key), as_printed(value))
        self._on(step).print(Printed(file=f"print-{step.get('id', '')}", **options))

    def _merge(self, step: Step) -> Any:
        left, right = (self._node(name) for name in step["on"])
        return left.merge(right, **self._options(step, "name"))

    def _split(self, step: Step) -> None:
        made: dict[str, Any] = {}
        branched = self._on(step).split(**self._options(step, "name"))
        for branch in step.get("branches", ()):
            branched = branched.branch(predicate(branch.get("fn")), _branched(branch, made))
        if "default" in step:
            result = branched.default_branch(_branched(step["default"], made))
        else:
            result = branched.no_default_branch()
        for name, stream in made.items():
            self.nodes[name] = stream
            keys = [key for key, made_stream in result.items() if made_stream is stream]
            self.branches[name] = keys[-1] if keys else None

    def _repartition(self, step: Step) -> Any:
        return self._on(step).repartition(
            **self._options(step, "name", "key", "value", "partitions")
        )

    def _to(self, step: Step) -> None:
        options = self._options(step, "key", "value", "name")
        if "partitioner" in step:
            options["partitioner"] = _partitioner(step["partitioner"])
        topic = _topic_name(step["topic_fn"]) if "topic_fn" in step else step.get("topic", "")
        self._on(step).to(topic, **options)

    def _to_table(self, step: Step) -> Any:
        return self._on(step).to_table(**self._options(step, "name", "store"))

    def _to_stream(self, step: Step) -> Any:
        options = self._options(step, "name")
        if "fn" in step:
            return self._on(step).to_stream(scalar(step["fn"]), **options)
        return self._on(step).to_stream(**options)

    # ---- grouping and aggregating ----

    def _group_by_key(self, step: Step) -> Any:
        return self._on(step).group_by_key(**self._options(step, "name", "key", "value"))

    def _group_by(self, step: Step) -> Any:
        on = self._on(step)
        function = _pairs(step) if isinstance(on, KTable) else scalar(step.get("fn"))
        return on.group_by(function, **self._options(step, "name", "key", "value"))

    def _windowed_by(self, step: Step) -> Any:
        return self._on(step).windowed_by(windows(step["window"]))

    def _emit_strategy(self, step: Step) -> Any:
        at_close = step.get("emit") == "on_window_close"
        return self._on(step).emit_strategy(
            EmitStrategy.on_window_close() if at_close else EmitStrategy.on_window_update()
        )

    def _count(self, step: Step) -> Any:
        return self._on(step).count(**self._options(step, "name", "store"))

    def _reduce(self, step: Step) -> Any:
        on = self._on(step)
        functions = [reducer(step.get("fn"))]
        if isinstance(on, KGroupedTable):
            functions.append(reducer(step.get("sub")))
        return on.reduce(*functions, **self._options(step, "name", "store"))

    def _aggregate(self, step: Step) -> Any:
        functions: list[Callable[..., Any]] = [initializer(step.get("init"))]
        if "fn" in step:
            functions.append(aggregator(step["fn"]))
        if "sub" in step:
            functions.append(aggregator(step["sub"]))
        if "merge" in step:
            functions.append(merger(step["merge"]))
        return self._on(step).aggregate(*functions, **self._options(step, "name", "store"))

    def _cogroup(self, step: Step) -> Any:
        first, *others = step["on"]
        first_fn, *other_fns = (aggregator(spec) for spec in step["fns"])
        cogrouped = self._node(first).cogroup(first_fn)
        for name, fn in zip(others, other_fns, strict=True):
            cogrouped = cogrouped.cogroup(self._node(name), fn)
        return cogrouped

    def _suppress(self, step: Step) -> Any:
        return self._on(step).suppress(suppressed(step))

    # ---- joins ----

    def _join(self, step: Step) -> Any:
        left, right = (self._node(name) for name in step["on"])
        join = getattr(left, step["op"])
        if isinstance(left, KStream) and isinstance(right, KStream):
            return self._join_streams(step, join, right)
        if isinstance(left, KStream) and isinstance(right, KTable):
            options = self._options(step, "key", "value", "other_value", "name", "grace")
            return join(right, _joiner(step), **options)
        if isinstance(left, KStream) and isinstance(right, GlobalKTable):
            key_fn = scalar(step.get("key_fn"))
            return join(right, key_fn, _joiner(step), **self._options(step, "name"))
        if isinstance(left, KTable) and isinstance(right, KTable):
            options = self._options(step, "name", "store")
            if "fk" in step:
                join_fn = joiner(step.get("fn"))
                foreign_key = _of_value(scalar(step["fk"]), step)
                return join(right, foreign_key, lambda a, b: join_fn(None, a, b), **options)
            return join(right, _joiner({"fn": step.get("fn")}), **options)
        raise InvalidCase(f"{type(left).__name__} and {type(right).__name__} cannot be joined.")

    _left_join = _join
    _outer_join = _join

    def _join_streams(self, step: Step, join: Callable[..., Any], right: Any) -> Any:
        options = self._options(step, "key", "value", "other_value", "name", "store_name")
        for side in ("this_store", "other_store"):
            if side in step:
                options[side] = store_supplier(step[side])
        if "type" in step:
            options["dsl_store_suppliers"] = store_type(step["type"])
        if step.get("logging") is False:
            options["logging"] = False
        span = join_windows(step["windows"]) if "windows" in step else None
        return join(right, _joiner(step), span, **options)

    # ---- processors ----

    def _process(self, step: Step) -> Any:
        supplier = processor_supplier(step["processor"], self._own_stores(step))
        return self._on(step).process(
            supplier, *step.get("stores", ()), **self._options(step, "name")
        )

    def _process_values(self, step: Step) -> Any:
        supplier = fixed_key_supplier(step["processor"], self._own_stores(step))
        return self._on(step).process_values(
            supplier, *step.get("stores", ()), **self._options(step, "name")
        )

    def _transform_values(self, step: Step) -> Any:
        supplier = transformer_supplier(step["transformer"], self._own_stores(step))
        return self._on(step).transform_values(
            supplier, *step.get("stores", ()), **self._options(step, "name", "store")
        )

    def processor_api(self, topology: Topology, step: Step) -> None:
        """Execute one step of the Processor API on the topology built by the DSL."""
        op, name, parents = step["op"], step.get("name", ""), step.get("parents", ())
        half: dict[str, Any] = self._options(step, "key", "value")
        if op == "papi_source":
            extractor = timestamp_extractor(step["ts"]) if "ts" in step else None
            readers = {f"{what}_deserializer": given for what, given in half.items()}
            topology.add_source(
                name, *step["topics"], timestamp_extractor=extractor, **readers
            )
        elif op == "papi_processor":
            supplier = processor_supplier(step["processor"], self._own_stores(step))
            topology.add_processor(name, supplier, *parents)
        elif op == "papi_store":
            store = self._store_builder(step["store"])
            topology.add_state_store(store, *step.get("processors", ()))
        elif op == "papi_connect":
            topology.connect_processor_and_state_stores(step["processor"], *step["stores"])
        elif op == "papi_sink":
            writers = {f"{what}_serializer": given for what, given in half.items()}
            topology.add_sink(name, step.get("topic", ""), *parents, **writers)
        else:
            raise InvalidCase(f"Unknown op {op!r}.")


def as_printed(value: Any) -> Any:
    """A JSON value as its text, any other value as it is."""
    return text(value) if isinstance(value, (dict, list)) else value


def _pairs(step: Step) -> Callable[[Any, Any], tuple[Any, Any] | None]:
    if step.get("fn") == "null":
        return lambda key, value: None
    key_fn = scalar(step.get("key_fn", "key"))
    value_fn = scalar(step.get("value_fn", "identity"))
    return lambda key, value: (key_fn(key, value), value_fn(key, value))


def _of_value(function: Callable[[Any, Any], Any], step: Step) -> Callable[..., Any]:
    """The function with the key if the step has `with_key`, otherwise without it."""
    return function if step.get("with_key") else lambda value: function(None, value)


def _joiner(step: Step) -> Callable[..., Any]:
    function = joiner(step.get("fn"))
    return function if step.get("with_key") else lambda left, right: function(None, left, right)


def _branched(branch: Step, made: dict[str, Any]) -> Branched[Any, Any]:
    options = {"name": branch["name"]} if "name" in branch else {}
    if "consume_to" in branch:
        return Branched(consumer=lambda stream: stream.to(branch["consume_to"]), **options)
    via = scalar(branch["via"]) if "via" in branch else None

    def chain(stream: Any) -> Any:
        made[branch.get("id", "")] = stream if via is None else stream.map_values(
            lambda value: via(None, value)
        )
        return made[branch.get("id", "")]

    return Branched(function=chain, **options)


def _view_options(on: Any) -> tuple[str, ...]:
    """The options of filters and maps: only those of tables may have a store."""
    return ("name", "store") if isinstance(on, KTable) else ("name",)


def _partitioner(spec: Step) -> Callable[[str, Any, Any, int], Any]:
    if "drop_if" not in spec:
        raise InvalidCase(f"Unknown partitioner {spec!r}.")
    drops = predicate(spec["drop_if"])
    return lambda topic, key, value, partitions: () if drops(key, value) else (0,)


def _topic_name(spec: Any) -> Callable[[Any, Any, Any], str]:
    if name_of(spec) == "ctx_topic":
        suffix = string_argument(spec, "s")
        return lambda key, value, context: text(context.topic) + suffix
    function = scalar(spec)

    def choose(key: Any, value: Any, context: Any) -> Any:
        topic = function(key, value)
        if topic is not None and not isinstance(topic, str):
            # A ClassCastException in Java, which Kafka Streams blames on the serdes.
            raise WrongSerdeException(
                f"A topic's name must be a string, not {type(topic).__name__}."
            )
        return topic

    return choose
