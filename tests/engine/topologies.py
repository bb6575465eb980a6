"""Topologies with joins, windows, repartitions and punctuations, and input for them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import timedelta

from penstock import (
    JoinWindows,
    Materialized,
    Processor,
    PunctuationType,
    Record,
    Serdes,
    Stores,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
)

#: (topic, key, value, timestamp)
Event = tuple[str, str | None, str | None, int]


@dataclass(frozen=True)
class Case:
    """A topology, its topics, and the input events in time order."""

    topology: Topology
    topics: dict[str, int]
    events: list[Event]
    outputs: tuple[str, ...] = ("out",)
    changelogs: tuple[str, ...] = ()
    #: A repartition through the log, and batches of different sizes, change the intermediate
    #: results of a key. Then only the last result of each key is compared.
    last_only: bool = False
    tables: tuple[str, ...] = field(default=())


def _events(
    topics: tuple[str, ...], count: int, keys: int, values: tuple[str | None, ...], seed: int
) -> list[Event]:
    rng = random.Random(seed)
    return [
        (rng.choice(topics), f"k{rng.randrange(keys)}", rng.choice(values), 10 * number)
        for number in range(count)
    ]


WORDS = ("a b a", "b", "c a", "", "d d d", "e b c a")


def word_count() -> Case:
    builder = StreamsBuilder()
    (builder.stream("lines").flat_map_values(lambda value: value.split())
        .group_by(lambda key, word: word).count(store="counts")
        .to_stream().map_values(str).to("out"))
    return Case(
        builder.build(), {"lines": 3, "out": 2}, _events(("lines",), 60, 9, WORDS, 1),
        changelogs=("app-counts-changelog",), last_only=True,
    )


def stream_table_join() -> Case:
    builder = StreamsBuilder()
    table = builder.table("table", store="table")
    (builder.stream("stream").left_join(table, lambda left, right: f"{left}+{right}")
        .to("out"))
    return Case(
        builder.build(), {"stream": 2, "table": 2, "out": 2},
        _events(("stream", "table"), 80, 5, ("x", "y", "z", None), 2),
    )


def stream_stream_join() -> Case:
    builder = StreamsBuilder()
    windows = JoinWindows.of(timedelta(milliseconds=60), grace=timedelta(milliseconds=20))
    left, right = builder.stream("left"), builder.stream("right")
    left.outer_join(right, lambda a, b: f"{a}-{b}", windows).to("out")
    return Case(
        builder.build(), {"left": 2, "right": 2, "out": 2},
        _events(("left", "right"), 80, 4, ("x", "y", "z"), 3),
    )


def foreign_key() -> Case:
    builder = StreamsBuilder()
    left, right = builder.table("left"), builder.table("right")
    left.join(right, lambda value: value[:2], lambda a, b: f"{a}+{b}").to_stream().to("out")
    events = _events(("right",), 30, 4, ("r1", "r2", "r3", None), 4)
    events += [
        (topic, key, None if value is None else f"k{value}", 1000 + time)
        for topic, key, value, time in _events(("left",), 30, 6, ("0", "1", "2", "9", None), 5)
    ]
    events += [
        (topic, key, value, 2000 + time)
        for topic, key, value, time in _events(("right",), 30, 4, ("s1", "s2", None), 6)
    ]
    return Case(
        builder.build(), {"left": 3, "right": 2, "out": 2}, events, last_only=True,
    )


def suppressed_windows() -> Case:
    builder = StreamsBuilder()
    windows = TimeWindows.of(timedelta(milliseconds=50), grace=timedelta(milliseconds=20))
    stores = Materialized("windows", key=Serdes.string(), value=Serdes.long())
    (builder.stream("in").group_by_key().windowed_by(windows).count(store=stores)
        .suppress(Suppressed.until_window_closes(name="closing"))
        .to_stream().map(lambda key, count: (key.key, f"{count}@{key.window.start}"))
        .to("out"))
    return Case(
        builder.build(), {"in": 2, "out": 2}, _events(("in",), 90, 4, ("x",), 7),
        changelogs=("app-windows-changelog",),
    )


def global_join() -> Case:
    builder = StreamsBuilder()
    table = builder.global_table("global")
    (builder.stream("in").join(table, lambda key, value: value, lambda a, b: f"{a}+{b}")
        .to("out"))
    events: list[Event] = [("global", f"k{n}", f"g{n}", n) for n in range(4)]
    events += [
        (topic, key, value, 100 + time)
        for topic, key, value, time in _events(("in",), 40, 3, ("k0", "k1", "k2", "k7"), 8)
    ]
    return Case(builder.build(), {"in": 2, "global": 2, "out": 2}, events, tables=("global",))


class Remember(Processor[str, str]):
    """Keeps the last value of each key, and forwards all of them by stream time."""

    def init(self, context: object) -> None:
        super().init(context)  # type: ignore[arg-type]
        self.store = self.context.get_state_store("seen")
        self.context.schedule(
            timedelta(milliseconds=100), PunctuationType.STREAM_TIME, self.flush
        )

    def process(self, record: Record[str, str]) -> None:
        self.store.put(record.key, record.value)

    def flush(self, now: int) -> None:
        for key, value in list(self.store.all()):
            self.context.forward(Record(key, f"{value}@{now}", now))
            self.store.delete(key)


def punctuated() -> Case:
    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value_store_builder(
        Stores.persistent_key_value_store("seen"), Serdes.string(), Serdes.string()
    ))
    builder.stream("in").process(Remember, "seen").to("out")
    return Case(
        builder.build(), {"in": 2, "out": 2}, _events(("in",), 60, 5, ("x", "y"), 9),
        changelogs=("app-seen-changelog",),
    )


def three_stages() -> Case:
    """Two repartitions, and records that go from the first stage to the third."""
    builder = StreamsBuilder()
    stream = builder.stream("in")
    by_value = stream.select_key(lambda key, value: value).repartition(name="by-value")
    counted = by_value.group_by_key().count(store="by-value").to_stream().map_values(str)
    again = counted.select_key(lambda key, value: f"n{int(value) % 3}").repartition(name="again")
    straight = stream.select_key(lambda key, value: f"n{key[1]}").repartition(name="straight")
    (again.merge(straight).group_by_key().count(store="last").to_stream().map_values(str)
        .to("out"))
    return Case(
        builder.build(), {"in": 3, "out": 2}, _events(("in",), 60, 5, ("x", "y", "z"), 10),
        changelogs=("app-last-changelog", "app-by-value-changelog"), last_only=True,
    )


CASES = {
    case.__name__: case for case in (
        word_count, stream_table_join, stream_stream_join, foreign_key, suppressed_windows,
        global_join, punctuated, three_stages,
    )
}
