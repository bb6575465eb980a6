"""Every step with a hidden store takes an exact name for it, and other names do not change."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from penstock import (
    JoinWindows,
    Materialized,
    Serdes,
    Stores,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
)
from penstock.errors import TopologyException

TEXT = Serdes.string()
SECOND = timedelta(seconds=1)
WINDOWS = JoinWindows.of(SECOND)


def build(define: Callable[[StreamsBuilder, dict[str, Any]], Any], **names: Any) -> Topology:
    """Build a step with exact names, followed by steps with generated names."""
    builder = StreamsBuilder()
    define(builder, names)
    builder.stream("last", key=TEXT, value=TEXT).group_by_key().count().to_stream().to("out")
    return builder.build()


def foreign_key_join(builder: StreamsBuilder, names: dict[str, Any]) -> None:
    left = builder.table("a", key=TEXT, value=TEXT)
    right = builder.table("b", key=TEXT, value=TEXT)
    left.join(right, lambda value: value[:1], lambda x, y: x + y, **names)


def suppress(builder: StreamsBuilder, names: dict[str, Any]) -> None:
    windows = TimeWindows.of(SECOND, grace=timedelta(0))
    counts = builder.stream("a", key=TEXT, value=TEXT).group_by_key().windowed_by(windows).count()
    counts.suppress(Suppressed.until_window_closes(**names))


def stream_joins(kind: str) -> Callable[[StreamsBuilder, dict[str, Any]], None]:
    def define(builder: StreamsBuilder, names: dict[str, Any]) -> None:
        left = builder.stream("a", key=TEXT, value=TEXT)
        right = builder.stream("b", key=TEXT, value=TEXT)
        join = getattr(left, kind)
        join(right, lambda x, y: x, WINDOWS, key=TEXT, value=TEXT, other_value=TEXT, **names)

    return define


def grace_join(builder: StreamsBuilder, names: dict[str, Any]) -> None:
    versions = Stores.persistent_versioned_key_value_store("versions", timedelta(minutes=1))
    table = builder.table(
        "b", store=Materialized(supplier=versions, key=TEXT, value=TEXT)
    )
    stream = builder.stream("a", key=TEXT, value=TEXT)
    stream.join(table, lambda x, y: x, grace=SECOND, **names)


STEPS = [
    (foreign_key_join, {"subscription_store": "x"}),
    (foreign_key_join, {"name": "orders", "subscription_store": "x"}),
    (suppress, {"store": "x"}),
    (suppress, {"name": "final", "store": "x"}),
    (stream_joins("join"), {"this_store": "x", "other_store": "y"}),
    (stream_joins("join"), {"store_name": "pairs", "other_store": "x"}),
    (stream_joins("left_join"), {"this_store": "x", "other_store": "y", "shared_store": "z"}),
    (stream_joins("outer_join"), {"name": "pairs", "shared_store": "x"}),
    (grace_join, {"buffer_store": "x"}),
    (grace_join, {"name": "enrich", "buffer_store": "x"}),
]


@pytest.mark.parametrize(("define", "names"), STEPS)
def test_exact_names_replace_only_the_names_of_their_stores(
    define: Callable[..., Any], names: dict[str, str]
) -> None:
    exact = {option: name for option, name in names.items() if name in "xyz"}
    others = {option: name for option, name in names.items() if option not in exact}
    plain, kept = build(define, **others), build(define, **names)
    replaced = dict(zip(
        [name for name in plain.stores if name not in kept.stores],
        [name for name in kept.stores if name not in plain.stores], strict=True,
    ))
    assert set(replaced.values()) == set(exact.values())
    text = str(plain.describe())
    for name, other in replaced.items():
        text = re.sub(rf"\b{name}\b", other, text)
    # Kafka lists the stores of a node in the order of their hash codes.
    assert _without_order(text) == _without_order(str(kept.describe()))


def _without_order(description: str) -> str:
    return re.sub(
        r"stores: \[(.*?)\]", lambda found: str(sorted(found[1].split(", "))), description
    )


def test_exact_names_belong_to_the_requested_stores() -> None:
    topology = build(
        stream_joins("outer_join"), this_store="this", other_store="other", shared_store="shared"
    )
    roles = {name: spec.role for name, spec in topology.stores.items()}
    assert roles | {"this": "this", "other": "other", "shared": "shared"} == roles


def test_exact_store_name_of_a_named_suppress_can_be_added_later() -> None:
    suppressed = Suppressed.until_window_closes(name="final").with_store("old")
    assert (suppressed.name, suppressed.store) == ("final", "old")


@pytest.mark.parametrize(
    ("define", "names", "message"),
    [
        (stream_joins("join"), {"shared_store": "x"}, "unmatched records, which this join does"),
        (foreign_key_join, {"subscription_store": "a b"}, "illegal character"),
        (suppress, {"store": ""}, "must not be empty"),
    ],
)
def test_exact_name_that_cannot_be_used_is_refused(
    define: Callable[..., Any], names: dict[str, str], message: str
) -> None:
    with pytest.raises((ValueError, TopologyException), match=message):
        build(define, **names)


def test_buffer_name_without_grace_is_refused() -> None:
    builder = StreamsBuilder()
    table = builder.table("b", key=TEXT, value=TEXT)
    with pytest.raises(ValueError, match="buffer_store= names the buffer of a join with grace="):
        builder.stream("a", key=TEXT, value=TEXT).join(table, lambda x, y: x, buffer_store="x")
