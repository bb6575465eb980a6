"""The topologies that are compared with Kafka Streams. tests/kafka/java has the same in Java.

A topology takes a builder and the name of its output topic. Values are strings of four parts:
number, amount, region, words. Functions have the same names as in `Text.java`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock import (
    EmitStrategy,
    JoinWindows,
    KeyValueStore,
    KGroupedStream,
    Materialized,
    Processor,
    ProcessorContext,
    Record,
    Serdes,
    SessionWindows,
    SlidingWindows,
    Stores,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    WindowedSerdes,
)

LONG = Serdes.long()
WINDOWED = WindowedSerdes.time_windowed(Serdes.string(), 2_000)
TUMBLING = TimeWindows.of(2_000, grace=1_000)

Build = Callable[[StreamsBuilder, str], None]
TOPOLOGIES: dict[str, Build] = {}


def compared(build: Build) -> Build:
    """Register a topology under the name of its function."""
    TOPOLOGIES[build.__name__] = build
    return build


# ---- values ----------------------------------------------------------------------------------


def number(value: str) -> str:
    return value.split(",", 1)[0]


def amount(value: str) -> int:
    return int(value.split(",")[1])


def region(value: str) -> str:
    return value.split(",")[2]


def words(value: str) -> list[str]:
    return value.split(",")[3].split(" ")


def both(left: str | None, right: str | None) -> str:
    return f"{'-' if left is None else left} & {'-' if right is None else right}"


def appended(so_far: str, value: str) -> str:
    return f"{so_far}/{number(value)}"[-40:]


def append(key: str, value: str, so_far: str) -> str:
    return appended(so_far, value)


def add(key: str, value: str, total: int) -> int:
    return total + amount(value)


def zero() -> int:
    return 0


def nothing() -> str:
    return ""


def by_region(
    builder: StreamsBuilder, topic: str, name: str | None = None
) -> KGroupedStream[str, str]:
    return builder.stream(topic).group_by(
        lambda key, value: region(value), name=name, key=Serdes.string(), value=Serdes.string()
    )


# ---- aggregations ----------------------------------------------------------------------------


@compared
def count_by_region(builder: StreamsBuilder, output: str) -> None:
    events = builder.stream("events").select_key(lambda key, value: region(value))
    events.group_by_key().count(store="counts").to_stream().to(output, value=LONG)


@compared
def sum_by_region(builder: StreamsBuilder, output: str) -> None:
    sums = by_region(builder, "events").aggregate(
        zero, add, store=Materialized("sums", value=LONG)
    )
    sums.to_stream().to(output, value=LONG)


@compared
def reduce_by_region(builder: StreamsBuilder, output: str) -> None:
    def newest(old: str, new: str) -> Any:
        return None if amount(new) < 10 else new

    by_region(builder, "events").reduce(newest).to_stream().to(output)


@compared
def count_words(builder: StreamsBuilder, output: str) -> None:
    events = builder.stream("events").flat_map(
        lambda key, value: [(word, key) for word in words(value)]
    )
    events.group_by_key().count(store="words").to_stream().to(output, value=LONG)


@compared
def merge_and_repartition(builder: StreamsBuilder, output: str) -> None:
    merged = builder.stream("events").merge(builder.stream("others"))
    (merged.select_key(lambda key, value: region(value)).repartition(name="merged")
        .group_by_key().aggregate(nothing, append, store="merged").to_stream().to(output))


@compared
def count_in_two_partitions(builder: StreamsBuilder, output: str) -> None:
    events = builder.stream("events").repartition(name="two", partitions=2)
    events.group_by_key().count(store="counts").to_stream().to(output, value=LONG)


@compared
def table_by_region(builder: StreamsBuilder, output: str) -> None:
    people = builder.table("people", store="people")
    amounts = people.group_by(
        lambda key, value: (region(value), amount(value)), key=Serdes.string(), value=LONG
    ).aggregate(
        zero, lambda key, value, total: total + value, lambda key, value, total: total - value,
        store=Materialized("amounts", value=LONG),
    )
    amounts.to_stream().to(output, value=LONG)


@compared
def cogroup_by_region(builder: StreamsBuilder, output: str) -> None:
    # Without names, both repartition topics would have the same name, which is an error.
    events = by_region(builder, "events", "events-by-region")
    others = by_region(builder, "others", "others-by-region")
    (events.cogroup(append)
        .cogroup(others, lambda key, value, so_far: appended(so_far + "!", value))
        .aggregate(nothing, store="together").to_stream().to(output))


@compared
def last_seen(builder: StreamsBuilder, output: str) -> None:
    builder.add_state_store(Stores.key_value_store_builder(
        Stores.persistent_key_value_store("last"), Serdes.string(), Serdes.string()
    ))
    builder.stream("events").process(LastSeen, "last").to(output)


class LastSeen(Processor[str, str]):
    """Forwards each value with the previous one of its key. Deletes every tenth amount."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.last: KeyValueStore[str, str] = context.get_state_store("last")

    def process(self, record: Record[str, str]) -> None:
        before = self.last.get(record.key)
        self.context.forward(record.with_value(both(before, record.value)))
        if amount(record.value) % 10 == 0:
            self.last.delete(record.key)
        else:
            self.last.put(record.key, record.value)


# ---- windows ---------------------------------------------------------------------------------


@compared
def tumbling_windows(builder: StreamsBuilder, output: str) -> None:
    counts = builder.stream("events").group_by_key().windowed_by(TUMBLING).count(store="tumbling")
    counts.to_stream().to(output, key=WINDOWED, value=LONG)


@compared
def hopping_windows_by_region(builder: StreamsBuilder, output: str) -> None:
    hopping = TimeWindows.of(3_000, advance=1_000, grace=500)
    sums = by_region(builder, "events").windowed_by(hopping).aggregate(
        zero, add, store=Materialized("hopping", value=LONG)
    )
    sums.to_stream().to(output, key=WINDOWED, value=LONG)


@compared
def sliding_windows(builder: StreamsBuilder, output: str) -> None:
    sliding = SlidingWindows.of(1_000, grace=1_500)
    texts = builder.stream("events").group_by_key().windowed_by(sliding).aggregate(
        nothing, append, store="sliding"
    )
    texts.to_stream().to(output, key=WINDOWED)


@compared
def session_windows_by_region(builder: StreamsBuilder, output: str) -> None:
    sessions = by_region(builder, "events").windowed_by(SessionWindows.of(400, grace=1_000))
    sessions.count(store="sessions").to_stream().to(
        output, key=WindowedSerdes.session_windowed(Serdes.string()), value=LONG
    )


@compared
def suppressed_by_region(builder: StreamsBuilder, output: str) -> None:
    counts = by_region(builder, "events").windowed_by(TUMBLING).count(store="closing")
    closed = counts.suppress(Suppressed.until_window_closes(name="closed"))
    closed.to_stream().to(output, key=WINDOWED, value=LONG)


@compared
def emitted_on_close(builder: StreamsBuilder, output: str) -> None:
    windows = builder.stream("events").group_by_key().windowed_by(TUMBLING)
    counts = windows.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(store="final")
    counts.to_stream().to(output, key=WINDOWED, value=LONG)


# ---- joins -----------------------------------------------------------------------------------


@compared
def inner_join(builder: StreamsBuilder, output: str) -> None:
    left, right = builder.stream("left"), builder.stream("right")
    left.join(right, both, JoinWindows.of(300, grace=400)).to(output)


@compared
def outer_join(builder: StreamsBuilder, output: str) -> None:
    left, right = builder.stream("left"), builder.stream("right")
    left.outer_join(right, both, JoinWindows.of(100, grace=200, before=250)).to(output)


@compared
def left_join_by_region(builder: StreamsBuilder, output: str) -> None:
    events = builder.stream("events").select_key(lambda key, value: region(value))
    others = builder.stream("others").select_key(lambda key, value: region(value))
    events.left_join(others, both, JoinWindows.of(200, grace=3_000)).to(output)


@compared
def table_lookup_by_region(builder: StreamsBuilder, output: str) -> None:
    places = builder.table("places", store="places")
    events = builder.stream("events").select_key(lambda key, value: region(value))
    events.left_join(places, both).to(output)


@compared
def outer_join_of_tables(builder: StreamsBuilder, output: str) -> None:
    people = builder.table("people", store="people")
    accounts = builder.table("accounts", store="accounts")
    people.outer_join(accounts, both, store="joined").to_stream().to(output)


@compared
def foreign_key_join(builder: StreamsBuilder, output: str) -> None:
    links = builder.table("links", store="links")
    places = builder.table("places", store="places")
    links.left_join(places, region, both, store="joined").to_stream().to(output)


@compared
def global_table_join(builder: StreamsBuilder, output: str) -> None:
    rates = builder.global_table("rates")
    events = builder.stream("events")
    events.left_join(rates, lambda key, value: region(value), both).to(output)
