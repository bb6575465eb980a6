"""The types of tables; checked by mypy, never run."""

from __future__ import annotations

from typing import Any, assert_type

from penstock import (
    KGroupedTable,
    KStream,
    KTable,
    Materialized,
    Serdes,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Windowed,
)

builder = StreamsBuilder()
names = builder.table("names", key=Serdes.integer(), value=Serdes.string())
cities = builder.table("cities", key=Serdes.string(), value=Serdes.double())

assert_type(names.filter(lambda name: name > "a"), KTable[int, str])
assert_type(names.filter_not(lambda key, name: key > len(name), store="few"), KTable[int, str])
assert_type(names.map_values(len), KTable[int, int])
assert_type(
    names.map_values(lambda key, name: name * key, store=Materialized("n", value=Serdes.string())),
    KTable[int, str],
)
assert_type(names.to_stream(), KStream[int, str])
assert_type(names.to_stream(lambda name: name), KStream[str, str])
assert_type(names.to_stream(lambda key, name: (key, name)), KStream[tuple[int, str], str])
assert_type(names.queryable_store_name, str | None)


class Length:
    def transform(self, key: int, value: str | None) -> float:
        return 0.0


assert_type(names.transform_values(Length), KTable[int, float])

grouped = names.group_by(lambda key, name: (name, key), key=Serdes.string())
assert_type(grouped, KGroupedTable[str, int])
assert_type(grouped.count(), KTable[str, int])
assert_type(grouped.reduce(lambda a, b: a + b, lambda a, b: a - b), KTable[str, int])
assert_type(
    grouped.aggregate(float, lambda k, v, sum: sum + v, lambda k, v, sum: sum - v),
    KTable[str, float],
)

lengths = names.map_values(len)
assert_type(names.join(lengths, lambda name, length: name * length), KTable[int, str])
assert_type(
    names.left_join(lengths, lambda name, length: (name, length)),
    KTable[int, tuple[str, int | None]],
)
assert_type(
    names.outer_join(lengths, lambda name, length: (name, length), store="both"),
    KTable[int, tuple[str | None, int | None]],
)
assert_type(names.join(cities, lambda name: name, lambda name, size: size), KTable[int, float])
assert_type(
    names.left_join(cities, lambda key, name: name, lambda name, size: (name, size),
                    subscription_store="subscriptions"),
    KTable[int, tuple[str, float | None]],
)

windowed = names.to_stream().group_by_key().windowed_by(TimeWindows.of(1000)).count()
final = windowed.suppress(Suppressed.until_window_closes())
assert_type(final, KTable[Windowed[int], int])
assert_type(final.to_stream(lambda key, count: key.window.start), KStream[int, int])
assert_type(final.to_stream(lambda key, count: key.key), KStream[int, int])

assert_type(Materialized("a"), Materialized[Any, Any])
assert_type(Materialized("a", key=Serdes.string()), Materialized[str, Any])
assert_type(Materialized("a", key=Serdes.string(), value=Serdes.long()), Materialized[str, int])
