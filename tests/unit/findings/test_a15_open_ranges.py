"""None is an open end in the key ranges of every kind of store."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.record import ValueAndTimestamp
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
SUPPLIERS = BuiltInDslStoreSuppliers.ROCKS_DB
SESSION_SUPPLIERS = {
    "persistent": lambda: Stores.persistent_session_store("s", 10**6),
    "in memory": lambda: Stores.in_memory_session_store("s", 10**6),
    "emit on close": lambda: SUPPLIERS.session_store(
        DslSessionParams("s", 10**6, emit_on_close=True)
    ),
}
WINDOW_SUPPLIERS = {
    "persistent": lambda: Stores.persistent_window_store("s", 10**6, 10),
    "in memory": lambda: Stores.in_memory_window_store("s", 10**6, 10),
}
KEY_VALUE_SUPPLIERS = {
    "persistent": lambda: Stores.persistent_key_value_store("s"),
    "in memory": lambda: Stores.in_memory_key_value_store("s"),
    "lru": lambda: Stores.lru_map("s", 10),
}
#: Key range -> the keys that it contains.
RANGES = {
    ("b", None): "bc", (None, "b"): "ab", (None, None): "abc", ("b", "b"): "b", ("c", "a"): "",
}
caching = pytest.mark.parametrize("caching", [False, True])
ranges = pytest.mark.parametrize(("bounds", "keys"), RANGES.items())


def opened(builder: Any, caching: bool) -> Any:
    store = (builder.with_caching_enabled() if caching else builder).build()
    store.init(FakeContext(max_bytes=1_000_000))
    return store


@pytest.mark.parametrize("kind", SESSION_SUPPLIERS)
@caching
@ranges
def test_session_ranges_have_open_ends(
    kind: str, caching: bool, bounds: tuple[Any, Any], keys: str
) -> None:
    store = opened(Stores.session_store_builder(SESSION_SUPPLIERS[kind](), S, S), caching)
    for at, key in enumerate("abc"):
        store.put(Windowed(key, Window(at, at + 5)), key)
    assert [key for (key, _), _ in store.fetch(*bounds)] == [*keys]
    assert [key for (key, _), _ in store.backward_fetch(*bounds)] == [*keys[::-1]]
    assert [key for (key, _), _ in store.find_sessions(*bounds, 0, 100)] == [*keys]
    assert [key for (key, _), _ in store.backward_find_sessions(*bounds, 0, 100)] == [*keys[::-1]]


@caching
@ranges
def test_ranges_of_session_stores_with_headers_have_open_ends(
    caching: bool, bounds: tuple[Any, Any], keys: str
) -> None:
    supplier = SUPPLIERS.session_store(
        DslSessionParams("s", 10**6, format=DslStoreFormat.HEADERS)
    )
    store = opened(Stores.session_store_with_headers_builder(supplier, S, S), caching)
    for at, key in enumerate("abc"):
        store.put(Windowed(key, Window(at, at + 5)), AggregationWithHeaders(key))
    for shown in (store, store.plain):
        assert [key for (key, _), _ in shown.fetch(*bounds)] == [*keys]
        assert [key for (key, _), _ in shown.backward_fetch(*bounds)] == [*keys[::-1]]


def test_the_key_of_a_single_session_fetch_must_not_be_none() -> None:
    store = opened(Stores.session_store_builder(SESSION_SUPPLIERS["persistent"](), S, S), False)
    store.put(Windowed("a", Window(0, 1)), "x")
    assert len([*store.fetch("a")]) == 1
    with pytest.raises(TypeError, match="None"):
        store.fetch(None)


@pytest.mark.parametrize("kind", WINDOW_SUPPLIERS)
@pytest.mark.parametrize("timestamped", [False, True])
@caching
@ranges
def test_window_ranges_have_open_ends(
    kind: str, timestamped: bool, caching: bool, bounds: tuple[Any, Any], keys: str
) -> None:
    make = Stores.timestamped_window_store_builder if timestamped else Stores.window_store_builder
    store = opened(make(WINDOW_SUPPLIERS[kind](), S, S), caching)
    for at, key in enumerate("abc"):
        store.put(key, ValueAndTimestamp(key, 1) if timestamped else key, at)
    assert [key for (key, _), _ in store.fetch(*bounds, 0, 100)] == [*keys]
    assert [key for (key, _), _ in store.backward_fetch(*bounds, 0, 100)] == [*keys[::-1]]


@pytest.mark.parametrize("kind", KEY_VALUE_SUPPLIERS)
@caching
@ranges
def test_key_value_ranges_have_open_ends(
    kind: str, caching: bool, bounds: tuple[Any, Any], keys: str
) -> None:
    store = opened(Stores.key_value_store_builder(KEY_VALUE_SUPPLIERS[kind](), S, S), caching)
    for key in "abc":
        store.put(key, key)
    assert [key for key, _ in store.range(*bounds)] == [*keys]
    assert [key for key, _ in store.reverse_range(*bounds)] == [*keys[::-1]]
