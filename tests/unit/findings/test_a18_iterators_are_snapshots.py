"""Store iterators are snapshots: later writes and deletions are not visible in them."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.serdes.builtin import Serdes
from penstock.stores import Stores
from penstock.windows import Window, Windowed
from unit.stores.fakes import FakeContext

S = Serdes.string()
BUILDERS = {
    "key-value, persistent": lambda: Stores.key_value_store_builder(
        Stores.persistent_key_value_store("s"), S, S
    ),
    "key-value, in memory": lambda: Stores.key_value_store_builder(
        Stores.in_memory_key_value_store("s"), S, S
    ),
    "window, persistent": lambda: Stores.window_store_builder(
        Stores.persistent_window_store("s", 10**6, 10), S, S
    ),
    "window, in memory": lambda: Stores.window_store_builder(
        Stores.in_memory_window_store("s", 10**6, 10), S, S
    ),
    "session, persistent": lambda: Stores.session_store_builder(
        Stores.persistent_session_store("s", 10**6), S, S
    ),
    "session, in memory": lambda: Stores.session_store_builder(
        Stores.in_memory_session_store("s", 10**6), S, S
    ),
}


def put(store: Any, kind: str, key: str, value: str | None) -> None:
    if kind.startswith("key"):
        store.put(key, value)
    elif kind.startswith("window"):
        store.put(key, value, 0)
    else:
        store.put(Windowed(key, Window(0, 5)), value)


def scan(store: Any, kind: str) -> Any:
    return store.fetch(None, None) if kind.startswith("session") else store.all()


@pytest.mark.parametrize("kind", BUILDERS)
@pytest.mark.parametrize("caching", [False, True])
@pytest.mark.parametrize("advance", [False, True])
@pytest.mark.parametrize("started", [False, True])
def test_iterator_is_a_snapshot(kind: str, caching: bool, advance: bool, started: bool) -> None:
    builder: Any = BUILDERS[kind]()
    store = (builder.with_caching_enabled() if caching else builder).build()
    store.init(FakeContext(max_bytes=1_000_000))
    for key in "bdf":
        put(store, kind, key, "old")
    if advance:
        store.commit()
        store.advance()
    rows = scan(store, kind)
    if started:
        assert rows.has_next()
    for key in "aceg":
        put(store, kind, key, "new")
    put(store, kind, "d", None)
    put(store, kind, "f", "new")
    found = [(getattr(key, "key", key), value) for key, value in rows]
    assert found == [("b", "old"), ("d", "old"), ("f", "old")]
    assert [value for _, value in scan(store, kind)] == ["new", "old", "new", "new", "new", "new"]
