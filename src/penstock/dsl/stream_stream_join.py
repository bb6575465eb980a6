"""Adds the nodes and stores of a join of two streams, with Kafka's names and numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from penstock.dsl.functions import joiner_takes_key
from penstock.dsl.plan_builder import NodeRef, PlanBuilder
from penstock.errors import StreamsException
from penstock.topology.join_store_specs import JoinStoreOptions, JoinWindowSpec, SharedJoinSpec
from penstock.topology.plan_nodes import JoinKind, JoinWindowNode, StreamStreamJoinNode
from penstock.windows import JoinWindows


def add_stream_join(
    kind: JoinKind,
    left: NodeRef,
    right: NodeRef,
    joiner: Callable[..., Any],
    windows: JoinWindows,
    name: str | None,
    options: JoinStoreOptions,
) -> StreamStreamJoinNode:
    """Add the join and return the node of its result."""
    builder = left.builder
    names = builder.names
    outer = kind == "outer"
    this_suffix = "-outer-this-join" if outer else "-this-join"
    other_suffix = "-other-join" if kind == "inner" else "-outer-other-join"
    this_window = names.suffixed_or_next(name, "-this-windowed", "KSTREAM-WINDOWED-")
    other_window = names.suffixed_or_next(name, "-other-windowed", "KSTREAM-WINDOWED-")
    this_number = names.next_processor_name("KSTREAM-OUTERTHIS-" if outer else "KSTREAM-JOINTHIS-")
    other_number = names.next_processor_name(
        "KSTREAM-JOINOTHER-" if kind == "inner" else "KSTREAM-OUTEROTHER-"
    )
    merge = names.suffixed_or_next(name, "-merge", "KSTREAM-MERGE-")
    _check_join_stores(options, windows)
    defaults = [
        f"{number if options.store_name is None else options.store_name + suffix}-store"
        for number, suffix in ((this_number, this_suffix), (other_number, other_suffix))
    ]
    if kind != "inner" and not windows.eager:
        defaults.append(SharedJoinSpec.name_of_join(this_number, options, outer=outer))
    this_spec, other_spec, shared = _store_specs(
        builder, defaults, windows, replace(options, step=merge)
    )
    this_node = JoinWindowNode(name=this_window, store=this_spec)
    other_node = JoinWindowNode(name=other_window, store=other_spec)
    builder.plan.add(this_node, left.node)
    builder.plan.add(other_node, right.node)
    node = StreamStreamJoinNode(
        name=merge,
        this_name=this_number if name is None else name + this_suffix,
        other_name=other_number if name is None else name + other_suffix,
        this_window=this_window, other_window=other_window, kind=kind, joiner=joiner,
        with_key=joiner_takes_key(joiner, step=merge), windows=windows, this_store=this_spec,
        other_store=other_spec, shared_store=shared,
        value_serdes=(options.key, options.value, options.other_value),
    )
    builder.plan.add(node, left.node, right.node)
    return node


def _store_specs(
    builder: PlanBuilder, defaults: list[str], windows: JoinWindows, options: JoinStoreOptions
) -> tuple[JoinWindowSpec, JoinWindowSpec, SharedJoinSpec | None]:
    """Return the stores of both sides and of unmatched records. `defaults`: Kafka's names."""
    exact_names = options.exact_names
    if exact_names[2] is not None and len(defaults) < 3:
        raise ValueError(
            f"{options.step}: shared_store= names the store of unmatched records, which this join "
            "does not have. Leave out shared_store=."
        )
    given = options.store_name is not None
    names = [
        builder.name_hidden_store(default, exact, given=given)
        for default, exact in zip(defaults, exact_names, strict=False)
    ]
    this_spec = JoinWindowSpec(names[0], windows, options, "this")
    other_spec = JoinWindowSpec(names[1], windows, options, "other")
    shared = SharedJoinSpec(names[2], options) if len(names) > 2 else None
    for spec, exact in zip((this_spec, other_spec, shared), exact_names, strict=True):
        if spec is not None and exact is None and not given:
            builder.plan.generated_names.append(f"store {spec.name}")
    return this_spec, other_spec, shared


def _check_join_stores(options: JoinStoreOptions, windows: JoinWindows) -> None:
    this_store, other_store = options.this_store, options.other_store
    if this_store is not None and other_store is not None and this_store.name == other_store.name:
        raise StreamsException(
            f"Both stores of the join are named {this_store.name!r}. Give them different names."
        )
    for supplier in (this_store, other_store):
        if supplier is None:
            continue
        if not supplier.retain_duplicates:
            raise StreamsException(
                f"The store {supplier.name!r} of a stream join does not retain duplicates. "
                "Create its supplier with retain_duplicates=True."
            )
        retention_ms = windows.size + windows.grace_ms
        if supplier.retention_ms != retention_ms or supplier.window_size_ms != windows.size:
            raise StreamsException(
                f"The store {supplier.name!r} does not match the windows of the join. "
                f"It has a retention of {supplier.retention_ms} ms and a window size of "
                f"{supplier.window_size_ms} ms; the join needs {retention_ms} ms and "
                f"{windows.size} ms."
            )
