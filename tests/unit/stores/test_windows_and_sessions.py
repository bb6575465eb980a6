from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.record import NO_HEADERS, Headers, ValueAndTimestamp
from penstock.serdes.builtin import Serdes
from penstock.stores import (
    AggregationWithHeaders,
    BuiltInDslStoreSuppliers,
    DslSessionParams,
    DslStoreFormat,
    DslWindowParams,
    Stores,
    ValueTimestampHeaders,
)
from penstock.windows import Window, Windowed

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


def test_persistent_windows_come_by_segment_then_key_then_time(context: Any) -> None:
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


def test_windows_in_memory_come_by_time_then_key(context: Any) -> None:
    store = windows(context, Stores.in_memory_window_store("w", 200_000, 10))
    for key, start in (("b", 5), ("a", 50), ("ab", 5), ("a", 7)):
        store.put(key, "x", start)
    assert starts(store.all()) == [("ab", 5), ("b", 5), ("a", 7), ("a", 50)]
    assert list(store.fetch("a", 0, 100)) == [(7, "x"), (50, "x")]
    assert starts(store.backward_fetch("a", "ab", 0, 100)) == [("a", 50), ("a", 7), ("ab", 5)]


def test_persistent_windows_expire_by_segment_and_are_hidden_exactly(context: Any) -> None:
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
    # What the store refuses is logged all the same.
    assert len(context.logged) == 5


def test_windows_in_memory_expire_to_the_millisecond(context: Any) -> None:
    store = windows(context, Stores.in_memory_window_store("w", 100, 10))
    store.put("a", "1", 0)
    store.put("a", "2", 1)
    store.put("a", "3", 100)
    assert list(store.fetch("a", 0, 200)) == [(1, "2"), (100, "3")]
    store.put("a", "late", 0)
    assert len(context.dropped) == 1


def test_a_retention_of_zero_shows_nothing(context: Any) -> None:
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
def test_duplicates_are_all_kept_and_null_is_ignored(make: Any, new_context: Any) -> None:
    context = new_context()
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
    again = windows(new_context(), make("w", 1000, 10, True))
    for _, key, value, timestamp, headers in context.logged:
        again.restore(key, value, timestamp, headers)
    again.set_clocks(store.clocks())
    again.put("a", "4", 5)
    assert list(again.fetch("a", 0, 10)) == [(5, "1"), (5, "2"), (5, "4")]


def test_the_last_duplicate_can_be_fetched_from_a_persistent_store(context: Any) -> None:
    store = windows(context, Stores.persistent_window_store("w", 1000, 10, True))
    store.put("a", "1", 5)
    store.put("a", "2", 5)
    assert store.fetch("a", 5) == "2"
    store.put("a", None, 5)
    assert store.fetch("a", 5) == "2"
    store.put("b", "3", 5)
    assert store.fetch("a", 5) is None


def test_the_changelog_key_is_key_start_and_sequence(context: Any) -> None:
    for supplier in (
        Stores.persistent_window_store("w", 1000, 10), Stores.in_memory_window_store("w", 1000, 10),
        ROCKS_DB.window_store(DslWindowParams("w", 1000, 10, emit_on_close=True)),
    ):
        context.logged.clear()
        windows(context, supplier).put("key", "v", 258)
        assert context.logged[0][1:3] == (b"key" + (258).to_bytes(8, "big") + b"\0\0\0\0", b"v")


def test_a_window_ends_at_the_largest_time_at_most(context: Any) -> None:
    size = 2**63 - 1
    store = windows(context, Stores.in_memory_window_store("w", size, size))
    store.put("a", "1", 10)
    assert next(store.all())[0] == Windowed("a", Window(10, size))


def test_timestamped_windows_load_and_save(context: Any) -> None:
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


def test_windows_with_headers(context: Any) -> None:
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
def test_stores_for_emit_on_close_come_by_time_and_show_one_millisecond_more(
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


def sessions(context: Any, supplier: Any, caching: bool = False) -> Any:
    builder = Stores.session_store_builder(supplier, S, S)
    return opened(context, builder.with_caching_enabled() if caching else builder)


def session(key: str, start: int, end: int) -> Windowed[str]:
    return Windowed(key, Window(start, end))


def test_sessions_in_memory_come_by_end_then_key_then_latest_start(context: Any) -> None:
    store = sessions(context, Stores.in_memory_session_store("s", 1000))
    for found in (
        session("ab", 1, 10), session("a", 1, 10), session("a", 5, 10), session("b", 0, 5),
        session("a\0", 2, 10),
    ):
        store.put(found, "x")
    order = [
        session("b", 0, 5), session("a", 5, 10), session("a", 1, 10), session("a\0", 2, 10),
        session("ab", 1, 10),
    ]
    assert [key for key, _ in store.find_sessions(None, None, 0, 1000)] == order
    assert [key for key, _ in store.backward_find_sessions(None, None, 0, 1000)] == order[::-1]
    assert [key for key, _ in store.find_sessions(6, 10)] == order[1:]


def test_persistent_sessions_come_by_key(context: Any) -> None:
    store = sessions(context, Stores.persistent_session_store("s", 1000))
    for found in (session("b", 0, 5), session("a", 1, 10), session("a", 7, 10)):
        store.put(found, "x")
    order = [session("a", 1, 10), session("a", 7, 10), session("b", 0, 5)]
    assert [key for key, _ in store.fetch("a", "b")] == order
    assert [key for key, _ in store.find_sessions("a", 0, 6)] == order[:1]
    assert store.fetch_session("a", 7, 10) == "x"
    store.remove(session("a", 7, 10))
    assert store.fetch_session("a", 7, 10) is None
    with pytest.raises(NotImplementedError):
        store.find_sessions(0, 10)


def test_sessions_for_emit_on_close_are_found_by_key_and_by_time(context: Any) -> None:
    supplier = ROCKS_DB.session_store(DslSessionParams("s", 100, emit_on_close=True))
    store = sessions(context, supplier)
    for found in (session("b", 0, 5), session("a", 1, 10), session("a", 7, 200)):
        store.put(found, "x")
    store.advance()
    assert [key for key, _ in store.find_sessions(0, 50)] == [
        session("b", 0, 5), session("a", 1, 10),
    ]
    assert [key for key, _ in store.find_sessions("a", 0, 500)] == [session("a", 7, 200)]
    store.remove(session("a", 7, 200))
    assert list(store.fetch("a")) == []


def test_sessions_with_headers(context: Any) -> None:
    supplier = ROCKS_DB.session_store(
        DslSessionParams("s", 100, format=DslStoreFormat.HEADERS)
    )
    store = opened(context, Stores.session_store_with_headers_builder(supplier, S, S))
    headers = Headers([("h", None)])
    context.at(3)
    store.put(session("a", 1, 2), AggregationWithHeaders("x", headers))
    assert store.fetch_session("a", 1, 2) == AggregationWithHeaders("x", headers)
    assert context.logged[0][2:] == (b"x", 3, headers)
    assert list(store.plain.fetch("a")) == [(session("a", 1, 2), "x")]
    store.plain.put(session("b", 1, 2), "y")
    assert store.fetch_session("b", 1, 2) == AggregationWithHeaders("y", NO_HEADERS)


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


def fresh(max_bytes: int = 0) -> Any:
    from penstock.record import Current
    from penstock.stores import RecordCache

    class Context:
        default_key_serde = default_value_serde = None

        def __init__(self) -> None:
            self.current = Current()
            self.cache = RecordCache(max_bytes)
            self.logged: list[Any] = []

        def changelog_topic(self, store: str) -> str:
            return store

        def log_change(self, *change: object) -> None:
            self.logged.append(change)

        def drop(self, reason: str) -> None: ...

    return Context()


@given(
    puts=puts, which=st.sampled_from(list(WINDOW_SUPPLIERS)), advancing=st.booleans(),
    key=st.sampled_from(KEYS), low=st.integers(0, 300), high=st.integers(0, 70_000),
)
def test_windows_are_those_of_a_model(
    *, puts: list[tuple[str, str | None, int]], which: str, advancing: bool, key: str,
    low: int, high: int,
) -> None:
    supplier = WINDOW_SUPPLIERS[which]
    context = fresh()
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
    again = windows(fresh(), supplier)
    again.set_clocks(store.clocks())
    for _, changelog_key, value, timestamp, headers in context.logged:
        again.restore(changelog_key, value, timestamp, headers)
    assert list(again.all()) == list(store.all())
    assert again.clocks() == store.clocks()


@given(puts=puts, which=st.sampled_from(["persistent", "memory", "on close"]),
       max_bytes=st.sampled_from([1, 300, 100_000]))
def test_cached_windows_are_those_of_a_model_while_nothing_expires(
    puts: list[tuple[str, str | None, int]], which: str, max_bytes: int
) -> None:
    make = {
        "persistent": lambda: Stores.persistent_timestamped_window_store("w", 10**6, 10),
        "memory": lambda: Stores.in_memory_window_store("w", 10**6, 10),
        "on close": lambda: ROCKS_DB.window_store(
            DslWindowParams("w", 10**6, 10, emit_on_close=True)
        ),
    }[which]
    context = fresh(max_bytes)
    builder = Stores.timestamped_window_store_builder(make(), S, S)
    store = opened(context, builder.with_caching_enabled())
    model: dict[tuple[str, int], tuple[str, int]] = {}
    plain = windows(fresh(), make())
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
        wanted = sorted(s for other, s in model if other == name)
        assert [s for s, _ in store.fetch(name, 0, 10**6)] == wanted
        assert [s for s, _ in plain.fetch(name, 0, 10**6)] == wanted


session_puts = st.lists(
    st.tuples(
        st.sampled_from(KEYS), st.integers(0, 300), st.integers(0, 100),
        st.sampled_from(["put", "put null", "remove"]),
    ),
    max_size=25,
)


@given(puts=session_puts, which=st.sampled_from(["persistent", "memory", "on close"]),
       caching=st.booleans(), key=st.sampled_from(KEYS), low=st.integers(0, 400),
       high=st.integers(0, 400))
def test_sessions_are_those_of_a_model_while_nothing_expires(
    *, puts: list[tuple[str, int, int, str]], which: str, caching: bool, key: str, low: int,
    high: int,
) -> None:
    supplier = {
        "persistent": Stores.persistent_session_store("s", 10**6),
        "memory": Stores.in_memory_session_store("s", 10**6),
        "on close": ROCKS_DB.session_store(DslSessionParams("s", 10**6, emit_on_close=True)),
    }[which]
    context = fresh(500 if caching else 0)
    store = sessions(context, supplier, caching)
    model: dict[tuple[str, int, int], str] = {}
    for n, (name, start, length, action) in enumerate(puts):
        where = session(name, start, start + length)
        if action == "remove":
            store.remove(where)
        else:
            store.put(where, "v" if action == "put" else None)
        model.pop((name, start, start + length), None)
        if action == "put":
            model[name, start, start + length] = "v"
        if n % 5 == 4:
            store.commit()
            store.advance()
    found = [(row.key, *row.window) for row, _ in store.find_sessions(key, low, high)]
    assert set(found) == {
        (n, s, e) for n, s, e in model if n == key and e >= low and s <= high
    }
    everything = list(store.find_sessions(None, None, 0, 10**6))
    assert {(row.key, *row.window) for row, _ in everything} == set(model)
    assert list(store.backward_find_sessions(None, None, 0, 10**6)) == everything[::-1]
    for name, start, end in model:
        assert store.fetch_session(name, start, end) == "v"
    store.commit()
    again = sessions(fresh(), supplier)
    for _, changelog_key, value, timestamp, headers in context.logged:
        again.restore(changelog_key, value, timestamp, headers)
    assert {(row.key, *row.window) for row, _ in again.find_sessions(None, None, 0, 10**6)} == set(
        model
    )
