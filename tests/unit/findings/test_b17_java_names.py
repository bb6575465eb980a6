"""An unknown Java name is an AttributeError that names the Python method."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from penstock import (
    JoinWindows,
    KTable,
    Materialized,
    Serdes,
    SessionWindows,
    SlidingWindows,
    Stores,
    StreamsBuilder,
    TimeWindows,
    Topology,
)

TEXT = Serdes.string()


def stream() -> Any:
    return StreamsBuilder().stream("in", key=TEXT, value=TEXT)


def table() -> Any:
    return StreamsBuilder().table("in", key=TEXT, value=TEXT)


JAVA_NAMES: list[tuple[Callable[[], Any], str, str]] = [
    (stream, "mapValues", "map_values"),
    (stream, "groupByKey", "group_by_key"),
    (stream, "selectKey", "select_key"),
    (stream, "toTable", "to_table"),
    (stream, "transformValues", "process_values()"),
    (stream, "through", "repartition(), or to() and StreamsBuilder.stream()"),
    (table, "to", "to_stream().to(topic)"),
    (table, "toStream", "to_stream"),
    (table, "mapValues", "map_values"),
    (lambda: KTable, "mapValues", "map_values"),
    (lambda: stream().group_by_key(), "windowedBy", "windowed_by"),
    (lambda: stream().group_by_key().windowed_by(TimeWindows.of(5)), "emitStrategy",
     "emit_strategy"),
    (lambda: stream().split(), "defaultBranch", "default_branch"),
    (StreamsBuilder, "globalTable", "global_table"),
    (StreamsBuilder, "addStateStore", "add_state_store"),
    (Topology, "addProcessor", "add_processor"),
    (lambda: Materialized, "as", "Materialized(name) or Materialized(supplier=...)"),
    (lambda: Materialized, "as_", "Materialized(name) or Materialized(supplier=...)"),
    (lambda: Materialized, "with_", "Materialized(key=..., value=...)"),
    (lambda: Materialized("s"), "withKeySerde", "Materialized(key=...)"),
    (lambda: Materialized("s"), "withCachingDisabled", "Materialized(caching=False)"),
    (lambda: Serdes, "String", "string"),
    (lambda: Serdes, "UUID", "uuid"),
    (lambda: Serdes, "ByteArray", "Serdes.bytes()"),
    (lambda: Stores, "inMemoryKeyValueStore", "in_memory_key_value_store"),
    (lambda: TimeWindows, "ofSizeWithNoGrace", "TimeWindows.of(size)"),
    (lambda: TimeWindows.of(5), "advanceBy", "advance_by"),
    (lambda: JoinWindows, "ofTimeDifferenceWithNoGrace", "JoinWindows.of(time_difference)"),
    (lambda: SlidingWindows, "ofTimeDifferenceAndGrace",
     "SlidingWindows.of(time_difference, grace)"),
    (lambda: SessionWindows, "ofInactivityGapWithNoGrace", "SessionWindows.of(inactivity_gap)"),
]


@pytest.mark.parametrize(("make", "java", "python"), JAVA_NAMES)
def test_java_name_is_an_error_with_the_python_name(
    make: Callable[[], Any], java: str, python: str
) -> None:
    with pytest.raises(AttributeError) as raised:
        getattr(make(), java)
    assert f"has no attribute '{java}'. In Python, use {python}." in str(raised.value)


def test_other_unknown_names_are_plain_attribute_errors() -> None:
    for target in (stream(), table(), Materialized, Serdes, Materialized("s")):
        with pytest.raises(AttributeError, match=r"has no attribute 'nonsense'$"):
            print(target.nonsense)
        assert not hasattr(target, "_private")


def test_classes_with_hints_are_copied_and_pickled() -> None:
    for made in (Materialized("s", caching=False), TimeWindows.of(5), SlidingWindows.of(3)):
        assert copy.deepcopy(made) == pickle.loads(pickle.dumps(made)) == made
