"""Session stores: plain, with headers, for emit on close."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.record import NO_HEADERS, Headers
from penstock.serdes.builtin import Serdes
from penstock.stores import (
    AggregationWithHeaders,
    BuiltInDslStoreSuppliers,
    DslSessionParams,
    DslStoreFormat,
    Stores,
)
from penstock.windows import Window, Windowed
from unit.stores.fakes import FakeContext

S = Serdes.string()
ROCKS_DB = BuiltInDslStoreSuppliers.ROCKS_DB
KEYS = ["", "a", "ab", "b", "a\0\0\0\0\0\0\0\0\0\0\0\0"]


def opened(context: Any, builder: Any) -> Any:
    store = builder.build()
    store.init(context)
    return store


def sessions(context: Any, supplier: Any, caching: bool = False) -> Any:
    builder = Stores.session_store_builder(supplier, S, S)
    return opened(context, builder.with_caching_enabled() if caching else builder)


def session(key: str, start: int, end: int) -> Windowed[str]:
    return Windowed(key, Window(start, end))


def test_in_memory_sessions_are_ordered_by_end_key_and_descending_start(context: Any) -> None:
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


def test_persistent_sessions_are_ordered_by_key(context: Any) -> None:
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


def test_emit_on_close_sessions_are_found_by_key_and_by_time(context: Any) -> None:
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


def test_session_store_keeps_headers(context: Any) -> None:
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


puts = st.lists(
    st.tuples(
        st.sampled_from(KEYS), st.integers(0, 300), st.integers(0, 100),
        st.sampled_from(["put", "put null", "remove"]),
    ),
    max_size=25,
)


@given(puts=puts, which=st.sampled_from(["persistent", "memory", "on close"]),
       caching=st.booleans(), key=st.sampled_from(KEYS), low=st.integers(0, 400),
       high=st.integers(0, 400))
def test_session_store_behaves_like_a_dictionary_without_expiry(
    *, puts: list[tuple[str, int, int, str]], which: str, caching: bool, key: str, low: int,
    high: int,
) -> None:
    supplier = {
        "persistent": Stores.persistent_session_store("s", 10**6),
        "memory": Stores.in_memory_session_store("s", 10**6),
        "on close": ROCKS_DB.session_store(DslSessionParams("s", 10**6, emit_on_close=True)),
    }[which]
    context = FakeContext(500 if caching else 0)
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
    again = sessions(FakeContext(), supplier)
    for _, changelog_key, value, timestamp, headers in context.logged:
        again.restore(changelog_key, value, timestamp, headers)
    assert {(row.key, *row.window) for row, _ in again.find_sessions(None, None, 0, 10**6)} == set(
        model
    )
