"""Window stores: plain, with timestamps, with headers, for emit on close."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.record import NO_HEADERS, Headers, ValueAndTimestamp
from penstock.serdes.builtin import Serdes
from penstock.stores import (
    BuiltInDslStoreSuppliers,
    DslWindowParams,
    Stores,
    ValueTimestampHeaders,
)
from penstock.windows import Window, Windowed
from unit.stores.fakes import FakeContext

S = Serdes.string()
ROCKS_DB = BuiltInDslStoreSuppliers.ROCKS_DB


def opened(context: Any, builder: Any) -> Any:
    store = builder.build()
    store.init(context)
    return store


def windows(context: Any, supplier: Any, caching: bool = False) -> Any:
    builder = Stores.window_store_builder(supplier, S, S)
    return opened(context, builder.with_caching_enabled() if caching else builder)


def starts(rows: Any) -> list[Any]:
    return [(key.key, key.window.start) for key, _ in rows]


def test_persistent_windows_are_ordered_by_segment_key_and_time(context: Any) -> None:
    store = windows(context, Stores.persistent_window_store("w", 200_000, 10))
    for key, start in (("b", 5), ("a", 50), ("a", 150_000), ("b", 100_001), ("a", 7)):
        store.put(key, "x", start)
    in_order = [("a", 7), ("a", 50), ("b", 5), ("a", 150_000), ("b", 100_001)]
    assert starts(store.all()) == in_order
    assert starts(store.backward_all()) == in_order[::-1]
    assert starts(store.fetch_all(6, 150_000)) == [row for row in in_order if row[1] != 5]
    assert list(store.fetch("a", 0, 200_000)) == [(7, "x"), (50, "x"), (150_000, "x")]
    assert list(store.backward_fetch("a", 8, 149_999)) == [(50, "x")]
    assert starts(store.fetch("b", None, 0, 200_000)) == [("b", 5), ("b", 100_001)]
    assert list(store.fetch("b", "a", 0, 200_000)) == []


def test_in_memory_windows_are_ordered_by_time_and_key(context: Any) -> None:
    store = windows(context, Stores.in_memory_window_store("w", 200_000, 10))
    for key, start in (("b", 5), ("a", 50), ("ab", 5), ("a", 7)):
        store.put(key, "x", start)
    assert starts(store.all()) == [("ab", 5), ("b", 5), ("a", 7), ("a", 50)]
    assert list(store.fetch("a", 0, 100)) == [(7, "x"), (50, "x")]
    assert starts(store.backward_fetch("a", "ab", 0, 100)) == [("a", 50), ("a", 7), ("ab", 5)]


def test_persistent_windows_expire_by_segment_but_reads_hide_them_exactly(context: Any) -> None:
    store = windows(context, Stores.persistent_window_store("w", 100, 10))
    store.put("a", "old", 0)
    store.put("a", "new", 100)
    assert store.fetch("a", 0) is None
    assert list(store.fetch("a", 0, 1000)) == [(100, "new")]
    store.put("a", "late", 0)
    assert context.dropped == []
    assert store.fetch("a", 0) is None
    store.put("a", "far", 120_200)
    store.put("a", "late", 59_999)
    assert len(context.dropped) == 1
    # Refused writes are logged too.
    assert len(context.logged) == 5


def test_in_memory_windows_expire_to_the_millisecond(context: Any) -> None:
    store = windows(context, Stores.in_memory_window_store("w", 100, 10))
    store.put("a", "1", 0)
    store.put("a", "2", 1)
    store.put("a", "3", 100)
    assert list(store.fetch("a", 0, 200)) == [(1, "2"), (100, "3")]
    store.put("a", "late", 0)
    assert len(context.dropped) == 1


def test_retention_of_zero_hides_every_window(context: Any) -> None:
    for supplier in (
        Stores.persistent_window_store("w", 0, 0), Stores.in_memory_window_store("w", 0, 0)
    ):
        store = windows(context, supplier)
        store.put("a", "1", 5)
        assert list(store.all()) == []
        assert store.fetch("a", 5) is None


@pytest.mark.parametrize("make", [
    Stores.persistent_window_store, Stores.in_memory_window_store,
])
def test_duplicates_are_kept_and_null_is_ignored(make: Any) -> None:
    context = FakeContext()
    store = windows(context, make("w", 1000, 10, True))
    for value in ("1", "2"):
        store.put("a", value, 5)
    store.put("a", None, 5)
    store.put("ab", "3", 5)
    store.advance()
    assert list(store.fetch("a", 0, 10)) == [(5, "1"), (5, "2")]
    assert [entry[1][-4:] for entry in context.logged] == [
        n.to_bytes(4, "big") for n in (1, 2, 3, 4)
    ]
    again = windows(FakeContext(), make("w", 1000, 10, True))
    for _, key, value, timestamp, headers in context.logged:
        again.restore(key, value, timestamp, headers)
    again.set_clocks(store.clocks())
    again.put("a", "4", 5)
    assert list(again.fetch("a", 0, 10)) == [(5, "1"), (5, "2"), (5, "4")]


def test_persistent_store_fetches_the_last_duplicate(context: Any) -> None:
    store = windows(context, Stores.persistent_window_store("w", 1000, 10, True))
    store.put("a", "1", 5)
    store.put("a", "2", 5)
    assert store.fetch("a", 5) == "2"
    store.put("a", None, 5)
    assert store.fetch("a", 5) == "2"
    store.put("b", "3", 5)
    assert store.fetch("a", 5) is None


@pytest.mark.parametrize(
    ("make", "loaded"),
    [
        (Stores.persistent_timestamped_window_store, ("2", 7)),
        (Stores.in_memory_window_store, None),
    ],
)
def test_operators_save_duplicates_and_load_the_last(
    context: Any, make: Any, loaded: tuple[str, int] | None
) -> None:
    builder = Stores.timestamped_window_store_builder(make("w", 1000, 10, True), S, S)
    store = opened(context, builder)
    store.save("a", "1", 6, 5)
    store.save("a", "2", 7, 5)
    assert store.load("a", 5) == loaded
    assert [row.value for _, row in store.fetch("a", 0, 10)] == ["1", "2"]


def test_changelog_key_is_key_start_and_sequence(context: Any) -> None:
    for supplier in (
        Stores.persistent_window_store("w", 1000, 10), Stores.in_memory_window_store("w", 1000, 10),
        ROCKS_DB.window_store(DslWindowParams("w", 1000, 10, emit_on_close=True)),
    ):
        context.logged.clear()
        windows(context, supplier).put("key", "v", 258)
        assert context.logged[0][1:3] == (b"key" + (258).to_bytes(8, "big") + b"\0\0\0\0", b"v")


def test_window_end_is_capped_at_the_maximum_time(context: Any) -> None:
    size = 2**63 - 1
    store = windows(context, Stores.in_memory_window_store("w", size, size))
    store.put("a", "1", 10)
    assert next(store.all())[0] == Windowed("a", Window(10, size))


def test_timestamped_windows_are_loaded_and_saved(context: Any) -> None:
    supplier = Stores.persistent_timestamped_window_store("w", 1000, 10)
    store = opened(context, Stores.timestamped_window_store_builder(supplier, S, S))
    context.at(77)
    store.save("a", "1", 42, 10)
    assert store.load("a", 10) == ("1", 42)
    assert list(store.fetch("a", 0, 100)) == [(10, ValueAndTimestamp("1", 42))]
    store.save("a", None, 43, 10)
    assert store.load("a", 10) is None
    assert [entry[2:4] for entry in context.logged] == [(b"1", 42), (None, 77)]
    plain = Stores.persistent_window_store("w", 1000, 10)
    store = opened(context, Stores.timestamped_window_store_builder(plain, S, S))
    store.save("a", "1", 42, 10)
    assert store.load("a", 10) == ("1", -1)


def test_window_store_keeps_headers(context: Any) -> None:
    supplier = Stores.persistent_timestamped_window_store_with_headers("w", 1000, 10)
    store = opened(context, Stores.timestamped_window_store_with_headers_builder(supplier, S, S))
    headers = Headers([("h", b"1")])
    store.put("a", ValueTimestampHeaders("1", 42, headers), 10)
    assert store.fetch("a", 10) == ValueTimestampHeaders("1", 42, headers)
    assert context.logged[0][2:] == (b"1", 42, headers)
    assert list(store.plain.fetch("a", 0, 99)) == [(10, ValueAndTimestamp("1", 42))]
    store.save("b", "2", 5, 10)
    assert store.fetch("b", 10).headers == NO_HEADERS


@pytest.mark.parametrize("sliding", [False, True])
def test_emit_on_close_store_is_time_ordered_and_keeps_one_more_millisecond(
    sliding: bool, context: Any
) -> None:
    supplier = ROCKS_DB.window_store(
        DslWindowParams("w", 100, 10, emit_on_close=True, is_sliding_window=sliding)
    )
    store = opened(context, Stores.timestamped_window_store_builder(supplier, S, S))
    for key, start in (("b", 5), ("a", 50), ("c", 5), ("a", 7)):
        store.save(key, "x", start, start)
    store.advance()
    assert starts(store.fetch_all(0, 100)) == [("b", 5), ("c", 5), ("a", 7), ("a", 50)]
    assert [start for start, _ in store.backward_fetch("a", 0, 100)] == [50, 7]
    store.save("d", "x", 105, 105)
    assert store.load("b", 5) == ("x", 5)
    store.save("d", "x", 106, 106)
    assert store.load("b", 5) is None
    assert starts(store.fetch_all(0, 100)) == [("a", 7), ("a", 50)]


WINDOW_SUPPLIERS = {
    "persistent": Stores.persistent_window_store("w", 300, 10),
    "memory": Stores.in_memory_window_store("w", 300, 10),
    "on close": ROCKS_DB.window_store(DslWindowParams("w", 300, 10, emit_on_close=True)),
    "sliding on close": ROCKS_DB.window_store(
        DslWindowParams("w", 300, 10, emit_on_close=True, is_sliding_window=True)
    ),
}
KEYS = ["", "a", "ab", "b", "a\0\0\0\0\0\0\0\0\0\0\0\0"]
puts = st.lists(
    st.tuples(
        st.sampled_from(KEYS), st.none() | st.sampled_from(["1", "2"]),
        st.integers(0, 400) | st.sampled_from([60_000, 59_999, 120_000]),
    ),
    max_size=25,
)


@given(
    puts=puts, which=st.sampled_from(list(WINDOW_SUPPLIERS)), advancing=st.booleans(),
    key=st.sampled_from(KEYS), low=st.integers(0, 300), high=st.integers(0, 70_000),
)
def test_window_store_behaves_like_a_dictionary(
    *, puts: list[tuple[str, str | None, int]], which: str, advancing: bool, key: str,
    low: int, high: int,
) -> None:
    supplier = WINDOW_SUPPLIERS[which]
    context = FakeContext()
    store = windows(context, supplier)
    model: dict[tuple[str, int], str] = {}
    newest = -1
    for name, value, start in puts:
        store.put(name, value, start)
        newest = max(newest, start)
        interval = supplier.segment_interval_ms
        edge = 1 if not supplier.persistent else 0
        if start // interval >= max(0, newest - 300 + edge) // interval:
            model.pop((name, start), None)
            if value is not None:
                model[name, start] = value
        if advancing:
            store.advance()
    live = newest - 300 + (0 if supplier.time_ordered else 1)
    seen = {(name, start): value for (name, start), value in model.items() if start >= live}
    found = {(row.key, row.window.start): value for row, value in store.all()}
    assert found == seen
    assert starts(store.backward_all()) == starts(store.all())[::-1]
    one = sorted((s, v) for (name, s), v in seen.items() if name == key and low <= s <= high)
    assert list(store.fetch(key, low, high)) == one
    assert list(store.backward_fetch(key, low, high)) == one[::-1]
    some = {(n, s) for n, s in seen if key <= n <= "b" and low <= s <= high}
    assert set(starts(store.fetch(key, "b", low, high))) == some
    for (name, start), value in seen.items():
        assert store.fetch(name, start) == value
    again = windows(FakeContext(), supplier)
    again.set_clocks(store.clocks())
    for _, changelog_key, value, timestamp, headers in context.logged:
        again.restore(changelog_key, value, timestamp, headers)
    assert list(again.all()) == list(store.all())
    assert again.clocks() == store.clocks()


@given(puts=puts, which=st.sampled_from(["persistent", "memory", "on close"]),
       max_bytes=st.sampled_from([1, 300, 100_000]))
def test_cached_window_store_behaves_like_a_dictionary_without_expiry(
    puts: list[tuple[str, str | None, int]], which: str, max_bytes: int
) -> None:
    make = {
        "persistent": lambda: Stores.persistent_timestamped_window_store("w", 10**6, 10),
        "memory": lambda: Stores.in_memory_window_store("w", 10**6, 10),
        "on close": lambda: ROCKS_DB.window_store(
            DslWindowParams("w", 10**6, 10, emit_on_close=True)
        ),
    }[which]
    context = FakeContext(max_bytes)
    builder = Stores.timestamped_window_store_builder(make(), S, S)
    store = opened(context, builder.with_caching_enabled())
    model: dict[tuple[str, int], tuple[str, int]] = {}
    plain = windows(FakeContext(), make())
    for n, (name, value, start) in enumerate(puts):
        store.save(name, value, n, start)
        plain.put(name, value, start)
        model.pop((name, start), None)
        if value is not None:
            model[name, start] = (value, n)
        if n % 7 == 6:
            store.commit()
            store.advance()
        assert starts(store.all()) == starts(plain.all())
        assert starts(store.backward_all()) == starts(plain.backward_all())
        assert store.load(name, start) == model.get((name, start))
        expected = sorted(s for other, s in model if other == name)
        assert [s for s, _ in store.fetch(name, 0, 10**6)] == expected
        assert [s for s, _ in plain.fetch(name, 0, 10**6)] == expected
