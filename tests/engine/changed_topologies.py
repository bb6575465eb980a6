"""One topology for each kind of step that owns stores, and records that depend on their rows.

`names` are the options that the advice of a refused start asks for, by the step they belong to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from penstock import (
    EmitStrategy,
    JoinWindows,
    KStream,
    Materialized,
    Serdes,
    SessionWindows,
    SlidingWindows,
    Stores,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)

TEXT = Serdes.string()
SECOND = timedelta(seconds=1)
TOPICS = ("a", "b", "extra", "out", "seen")
#: Step of the advice -> the options to add.
Names = Mapping[str, Mapping[str, str]]
#: (topic, key, value, timestamp)
Row = tuple[str, str, str | None, int]


@dataclass(frozen=True)
class Change:
    """A topology, the records of its first and of its second version, and later options."""

    define: Callable[[StreamsBuilder, Names], Any]
    first: tuple[Row, ...]
    second: tuple[Row, ...]
    #: Options that the second version adds, by step: for example a name.
    later: Names = field(default_factory=dict)


def stream(builder: StreamsBuilder, topic: str) -> KStream[str, str]:
    return builder.stream(topic, key=TEXT, value=TEXT)


def write(results: KStream[Any, Any]) -> None:
    """Write keys and values as text."""
    texts = results.map(lambda key, value: (str(getattr(key, "key", key)), str(value)), name="text")
    texts.to("out", key=TEXT, value=TEXT, name="written")


def extra_branch(builder: StreamsBuilder) -> None:
    """Take three numbers before all other steps."""
    stream(builder, "extra").filter(lambda value: True).to("seen")


def foreign_key_join(kind: str) -> Callable[[StreamsBuilder, Names], None]:
    def define(builder: StreamsBuilder, names: Names) -> None:
        left = builder.table("a", store=Materialized("orders", key=TEXT, value=TEXT))
        right = builder.table("b", store=Materialized("customers", key=TEXT, value=TEXT))
        joined = getattr(left, kind)(
            right, lambda value: value[0], lambda x, y: f"{x}{y}",
            **names.get("foreign-key join", {}),
        )
        write(joined.to_stream())

    return define


def tables_of_topics(builder: StreamsBuilder, names: Names) -> None:
    left = builder.table("a", key=TEXT, value=TEXT, **names.get("KTABLE-SOURCE", {}))
    right = builder.table("b", store=Materialized("right", key=TEXT, value=TEXT))
    write(left.join(right, lambda x, y: x + y).to_stream())


def windowed(builder: StreamsBuilder, emit: bool = False) -> Any:
    windows = TimeWindows.of(SECOND, grace=timedelta(0))
    found = stream(builder, "a").group_by_key().windowed_by(windows)
    return found.emit_strategy(EmitStrategy.on_window_close()) if emit else found


def suppress(builder: StreamsBuilder, names: Names) -> None:
    counts = windowed(builder).count(**names.get("KSTREAM-AGGREGATE", {}))
    options = names.get("suppress step", {})
    write(counts.suppress(Suppressed.until_window_closes(**options)).to_stream())


def suppress_updates(builder: StreamsBuilder, names: Names) -> None:
    counts = stream(builder, "a").group_by_key().count(store=Materialized("counts", key=TEXT))
    suppressed = Suppressed.until_time_limit(2_000, **names.get("suppress step", {}))
    write(counts.suppress(suppressed).to_stream())


def windowed_count(builder: StreamsBuilder, names: Names) -> None:
    options = names.get("KSTREAM-AGGREGATE", {})
    write(windowed(builder).aggregate(
        lambda: "", lambda key, value, all: all + value,
        **{"store": Materialized(value=TEXT), **as_store(options)},
    ).to_stream())


def final_count(builder: StreamsBuilder, names: Names) -> None:
    options = names.get("KSTREAM-AGGREGATE", {})
    write(windowed(builder, emit=True).count(**options).to_stream())


def final_count_in_a_named_store(builder: StreamsBuilder, names: Names) -> None:
    options = names.get("KSTREAM-AGGREGATE", {})
    write(windowed(builder, emit=True).count(store="counts", **options).to_stream())


def sessions(builder: StreamsBuilder, names: Names) -> None:
    windows = SessionWindows.of(SECOND, grace=SECOND)
    counts = stream(builder, "a").group_by_key().windowed_by(windows).count(
        **names.get("KSTREAM-AGGREGATE", {})
    )
    write(counts.to_stream())


def sliding(builder: StreamsBuilder, names: Names) -> None:
    windows = SlidingWindows.of(SECOND, grace=SECOND)
    counts = stream(builder, "a").group_by_key().windowed_by(windows).reduce(
        lambda x, y: x + y, **as_store(names.get("KSTREAM-REDUCE", {}))
    )
    write(counts.to_stream())


def as_store(options: Mapping[str, str]) -> dict[str, Any]:
    """Give the serdes with the name of a store."""
    changed: dict[str, Any] = dict(options)
    if "store" in options:
        changed["store"] = Materialized(options["store"], key=TEXT, value=TEXT)
    return changed


def stream_join(kind: str) -> Callable[[StreamsBuilder, Names], None]:
    def define(builder: StreamsBuilder, names: Names) -> None:
        joined = getattr(stream(builder, "a"), kind)(
            stream(builder, "b"), lambda x, y: f"{x}-{y}", JoinWindows.of(SECOND, grace=SECOND),
            key=TEXT, value=TEXT, other_value=TEXT, **names.get("stream-stream join", {}),
        )
        write(joined)

    return define


def grace_join(builder: StreamsBuilder, names: Names) -> None:
    versions = Stores.persistent_versioned_key_value_store("versions", timedelta(minutes=1))
    table = builder.table("b", store=Materialized(supplier=versions, key=TEXT, value=TEXT))
    joined = stream(builder, "a").join(
        table, lambda x, y: x + y, grace=SECOND, **names.get("stream-table join", {})
    )
    write(joined)


def repartitioned_count(builder: StreamsBuilder, names: Names) -> None:
    counts = stream(builder, "a").group_by(lambda value: value, key=TEXT, value=TEXT).count(
        **names.get("KSTREAM-AGGREGATE", {})
    )
    write(counts.to_stream())


def to_table(builder: StreamsBuilder, names: Names) -> None:
    table = stream(builder, "b").to_table(**as_store(names.get("KSTREAM-TOTABLE", {})))
    write(stream(builder, "a").join(table, lambda x, y: x + y))


def grouped_table(builder: StreamsBuilder, names: Names) -> None:
    table = builder.table("a", store=Materialized("rows", key=TEXT, value=TEXT))
    counts = table.group_by(lambda key, value: (value, value), key=TEXT, value=TEXT).count(
        **names.get("KTABLE-AGGREGATE", {})
    )
    write(counts.to_stream())


def cogroup(builder: StreamsBuilder, names: Names) -> None:
    def add(key: str, value: str, all: str) -> str:
        return all + value

    grouped = [stream(builder, topic).group_by_key() for topic in "ab"]
    table = grouped[0].cogroup(add).cogroup(grouped[1], add).aggregate(
        lambda: "",
        **{"store": Materialized(key=TEXT, value=TEXT),
           **as_store(names.get("COGROUPKSTREAM-AGGREGATE", {}))},
    )
    write(table.to_stream())


def joined_tables(builder: StreamsBuilder, names: Names) -> None:
    left, right = (
        builder.table(topic, store=Materialized(topic, key=TEXT, value=TEXT)) for topic in "ab"
    )
    table = left.outer_join(
        right, lambda x, y: f"{x}-{y}",
        **{"store": Materialized(key=TEXT, value=TEXT), **as_store(names.get("KTABLE-MERGE", {}))},
    )
    # Old values come from the store of the join.
    write(table.group_by(lambda key, value: (key, value), key=TEXT, value=TEXT).reduce(
        lambda x, y: x + y, lambda x, y: x.replace(y, "", 1),
        store=Materialized("all", key=TEXT, value=TEXT),
    ).to_stream())


def _a(*records: tuple[str, int]) -> tuple[Row, ...]:
    return tuple(("a", "k", value, time) for value, time in records)


_FOREIGN = (("b", "c", "1", 0), ("a", "k", "cx", 10), ("a", "l", "cy", 20)), (("b", "c", "2", 30),)
_WINDOWED = _a(("x", 100), ("y", 200)), _a(("z", 300), ("x", 2_500), ("y", 5_000))
#: The first window is emitted before the change; a second emission would repeat it.
_FINAL = _a(("x", 100), ("y", 1_100)), _a(("z", 900), ("x", 1_200), ("y", 2_100))
_PAIRS = (
    (("a", "k", "x", 100), ("b", "k", "y", 150), ("a", "l", "z", 200), ("b", "m", "w", 300)),
    (("b", "k", "v", 400), ("a", "m", "u", 500), ("a", "n", "t", 9_000), ("b", "n", "s", 9_500)),
)
_WORDS = _a(("x", 0), ("y", 1)), _a(("x", 2), ("y", 3), ("z", 4))
_BOTH = (("a", "k", "x", 0), ("b", "k", "y", 1)), (("a", "k", "z", 2), ("b", "k", "w", 3))

CHANGES = {
    "foreign-key join": Change(foreign_key_join("join"), *_FOREIGN),
    "foreign-key left join": Change(foreign_key_join("left_join"), *_FOREIGN),
    "foreign-key join, named later": Change(
        foreign_key_join("join"), *_FOREIGN, {"foreign-key join": {"name": "pairs"}}
    ),
    "table": Change(tables_of_topics, *_BOTH),
    "suppress": Change(suppress, *_WINDOWED),
    "suppress, named later": Change(
        suppress, *_WINDOWED, {"suppress step": {"name": "final"}}
    ),
    "suppress updates": Change(suppress_updates, *_WINDOWED),
    "inner join": Change(stream_join("join"), *_PAIRS),
    "left join": Change(stream_join("left_join"), *_PAIRS),
    "outer join": Change(stream_join("outer_join"), *_PAIRS),
    "outer join, named later": Change(
        stream_join("outer_join"), *_PAIRS,
        {"stream-stream join": {"name": "pairs", "store_name": "windows"}},
    ),
    "join with grace": Change(
        grace_join, (("b", "k", "1", 0), ("a", "k", "x", 100)),
        (("b", "k", "2", 50), ("a", "k", "y", 5_000), ("a", "k", "z", 9_000)),
    ),
    "join with grace, named later": Change(
        grace_join, (("b", "k", "1", 0), ("a", "k", "x", 100)),
        (("b", "k", "2", 50), ("a", "k", "y", 5_000), ("a", "k", "z", 9_000)),
        {"stream-table join": {"name": "enrich"}},
    ),
    "count with repartition": Change(repartitioned_count, *_WORDS),
    "count, named later": Change(
        repartitioned_count, *_WORDS, {"KSTREAM-AGGREGATE": {"name": "n", "store": "counts"}}
    ),
    "to_table": Change(to_table, (("b", "k", "1", 0),), _a(("x", 10))),
    "windowed aggregate": Change(windowed_count, *_WINDOWED),
    "final results": Change(final_count, *_FINAL),
    "final results, named later": Change(
        final_count, *_FINAL, {"KSTREAM-AGGREGATE": {"name": "n"}}
    ),
    "sessions": Change(sessions, *_WINDOWED),
    "sliding windows": Change(sliding, *_WINDOWED),
    "grouped table": Change(grouped_table, *_WORDS),
    "cogroup": Change(cogroup, *_BOTH),
    "joined tables": Change(joined_tables, *_BOTH),
}
#: Steps whose stores have names, so that a change needs no advice.
NAMED = {
    "foreign-key join": Change(
        lambda b, _: foreign_key_join("join")(b, {"foreign-key join": {"name": "pairs"}}),
        *_FOREIGN,
    ),
    "suppress": Change(
        lambda b, _: suppress(
            b, {"KSTREAM-AGGREGATE": {"store": "counts"}, "suppress step": {"name": "final"}}
        ),
        *_WINDOWED,
    ),
    "outer join": Change(
        lambda b, _: stream_join("outer_join")(
            b, {"stream-stream join": {"name": "pairs", "store_name": "windows"}}
        ),
        *_PAIRS,
    ),
    # The clocks of this step have the name of the step, which has a number.
    "final results": Change(final_count_in_a_named_store, *_FINAL),
}
