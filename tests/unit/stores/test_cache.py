"""The record cache: flushes, evictions, listeners."""

from __future__ import annotations

import tracemalloc
from struct import pack
from typing import Any

from penstock.record import NO_HEADERS, Headers, ValueAndTimestamp
from penstock.serdes.builtin import Serdes
from penstock.stores import Stores
from penstock.stores.bytes.store import InMemoryBytesStore
from penstock.windows import Window, Windowed
from unit.stores.fakes import FakeContext

S = Serdes.string()
HEADERS = Headers([("h", b"123")])


def table(context: Any) -> Any:
    builder = Stores.timestamped_key_value_store_builder(
        Stores.persistent_timestamped_key_value_store("t"), S, S
    )
    store = builder.with_caching_enabled().build()
    store.init(context)
    return store


def entry_bytes(key: str, value: str) -> int:
    """Kafka's size estimate for an entry of `table` that a record of `topic` wrote."""
    return len(key) + 24 + 1 + 8 + len(value) + 8 + 8 + len("topic") + 4


def test_cache_of_zero_bytes_is_disabled(context: Any) -> None:
    store = table(context)
    assert store.set_flush_listener(lambda *flushed: None, True) is False
    store.save("a", "1", 1)
    assert len(context.logged) == 1


def test_commit_forwards_only_the_last_write_of_a_key(cached: Any) -> None:
    store = table(cached)
    flushed: list[Any] = []
    assert store.set_flush_listener(lambda *change: flushed.append(change), True) is True
    cached.at(10, 0)
    store.save("a", "1", 10)
    cached.at(11, 1, HEADERS)
    store.save("b", "2", 5)
    store.save("a", "3", 12)
    assert store.load("a") == ("3", 12)
    assert flushed == []
    assert cached.logged == []
    cached.at(99, 2)
    store.commit()
    assert flushed == [("b", "2", None, 5, HEADERS), ("a", "3", None, 12, HEADERS)]
    assert [entry[1:4] for entry in cached.logged] == [(b"b", b"2", 5), (b"a", b"3", 12)]
    assert (cached.current.timestamp, cached.current.offset) == (99, 2)
    flushed.clear()
    store.save("a", "4", 13)
    store.commit()
    assert flushed == [("a", "4", "3", 13, NO_HEADERS)]
    store.commit()
    assert len(flushed) == 1


def test_old_values_are_sent_only_on_request(cached: Any) -> None:
    store = table(cached)
    flushed: list[Any] = []
    store.set_flush_listener(lambda *change: flushed.append(change), False)
    store.save("a", "1", 1)
    store.commit()
    store.save("a", "2", 2)
    store.commit()
    cached.at(7)
    store.save("a", None, 3)
    store.commit()
    assert [change[1:3] for change in flushed] == [("1", None), ("2", None), (None, None)]
    assert flushed[-1][3] == 7


def test_listener_runs_after_the_write_in_the_context_of_the_writing_record(cached: Any) -> None:
    store = table(cached)
    seen: list[Any] = []
    cached.at(10, 4, HEADERS)
    store.set_flush_listener(
        lambda *change: seen.append((cached.current.offset, len(cached.logged))), False
    )
    store.save("a", "1", 10)
    cached.at(20, 5)
    store.commit()
    assert seen == [(4, 1)]


def test_insert_and_deletion_cancel_out(cached: Any) -> None:
    store = table(cached)
    flushed: list[Any] = []
    store.set_flush_listener(lambda *change: flushed.append(change), True)
    store.save("a", "1", 1)
    store.save("a", None, 2)
    store.save("nothing", None, 2)
    store.commit()
    assert flushed == []
    assert cached.logged == []


def test_deletions_are_logged_without_a_listener(cached: Any) -> None:
    store = table(cached)
    store.save("nothing", None, 2)
    store.commit()
    assert [entry[1:3] for entry in cached.logged] == [(b"nothing", None)]


def test_exceeded_budget_evicts_the_eldest_entry_and_flushes_all_changes() -> None:
    context = FakeContext(max_bytes=entry_bytes("a", "1") * 2)
    store = table(context)
    flushed: list[Any] = []
    store.set_flush_listener(lambda *change: flushed.append(change[0]), False)
    context.at(1)
    store.save("a", "1", 1)
    store.save("b", "1", 1)
    assert flushed == []
    assert context.cache.size == entry_bytes("a", "1") * 2
    store.load("a")
    store.save("c", "1", 1)
    assert flushed == ["b", "a", "c"]
    assert context.cache.size == entry_bytes("a", "1") * 2
    assert context.cache.evictions == 1


def test_headers_count_towards_the_size_of_an_entry(cached: Any) -> None:
    store = table(cached)
    cached.at(1, 0, HEADERS)
    store.save("a", "1", 1)
    assert cached.cache.size == entry_bytes("a", "1") + 4


def test_stores_share_the_budget_and_only_the_written_store_evicts() -> None:
    context = FakeContext(max_bytes=entry_bytes("a", "1") * 2)
    context.at(1)
    first, second = table(context), table(context)
    flushed: list[str] = []
    first.set_flush_listener(lambda *change: flushed.append("first"), False)
    second.set_flush_listener(lambda *change: flushed.append("second"), False)
    first.save("a", "1", 1)
    first.save("b", "1", 1)
    second.save("a", "1", 1)
    assert flushed == ["second"]


def test_read_value_stays_in_the_cache(cached: Any) -> None:
    store = table(cached)
    store.save("a", "1", 1)
    store.commit()
    store.advance()
    store._cache_layer.clear()
    assert cached.cache.size == 0
    assert store.get("a") == ValueAndTimestamp("1", 1)
    assert cached.cache.size == entry_bytes("a", "1") - len("topic")
    store.commit()
    assert len(cached.logged) == 1


def test_listener_can_write_to_its_store(cached: Any) -> None:
    store = table(cached)

    def on_flush(key: str, *rest: Any) -> None:
        if key == "a":
            store.save("b", "2", 2)

    store.set_flush_listener(on_flush, False)
    store.save("a", "1", 1)
    store.commit()
    assert [entry[1] for entry in cached.logged] == [b"a"]
    store.commit()
    assert [entry[1] for entry in cached.logged] == [b"a", b"b"]


def test_flushed_windows_and_sessions_have_windowed_keys(cached: Any) -> None:
    builder = Stores.timestamped_window_store_builder(
        Stores.persistent_timestamped_window_store("w", 100, 10), S, S
    )
    store = builder.with_caching_enabled().build()
    store.init(cached)
    flushed: list[Any] = []
    store.set_flush_listener(lambda *change: flushed.append(change), True)
    cached.at(7)
    store.save("a", "1", 5, 0)
    store.commit()
    builder = Stores.session_store_builder(Stores.persistent_session_store("s", 100), S, S)
    sessions = builder.with_caching_enabled().build()
    sessions.init(cached)
    sessions.set_flush_listener(lambda *change: flushed.append(change), True)
    sessions.put(Windowed("a", Window(1, 4)), "x")
    sessions.remove(Windowed("a", Window(2, 3)))
    sessions.commit()
    assert flushed == [
        (Windowed("a", Window(0, 10)), "1", None, 5, NO_HEADERS),
        (Windowed("a", Window(1, 4)), "x", None, 7, NO_HEADERS),
    ]


def test_cache_returns_windows_whose_expiry_is_not_flushed(cached: Any) -> None:
    builder = Stores.timestamped_window_store_builder(
        Stores.persistent_timestamped_window_store("w", 100, 10), S, S
    )
    store = builder.with_caching_enabled().build()
    store.init(cached)
    store.save("a", "1", 0, 0)
    store.save("a", "2", 1000, 1000)
    assert store.load("a", 0) == ("1", 0)
    assert [start for start, _ in store.fetch("a", 0, 5000)] == [0, 1000]
    assert store.clocks() == {"stream_time": -1}
    store.commit()
    assert store.clocks() == {"stream_time": 1000}


def test_stores_with_duplicates_are_not_cached(cached: Any) -> None:
    builder = Stores.window_store_builder(
        Stores.persistent_window_store("w", 100, 10, True), S, S
    )
    store = builder.with_caching_enabled().build()
    store.init(cached)
    assert store.set_flush_listener(lambda *change: None, True) is False


def test_reads_without_writes_use_bounded_memory(cached: Any) -> None:
    store = table(cached)
    store.save("a", "1", 1)
    store.load("a")
    tracemalloc.start()
    try:
        for _ in range(200_000):
            store.load("a")
        assert tracemalloc.get_traced_memory()[0] < 200_000
    finally:
        tracemalloc.stop()


def test_aggregation_reads_a_committed_row_once(cached: Any) -> None:
    reads: list[bytes] = []

    class CountedRows(InMemoryBytesStore):
        def get(self, key: bytes) -> bytes | None:
            reads.append(key)
            return super().get(key)

    rows = CountedRows()
    rows.write([(b"a", pack(">q", 7) + b"1")])
    supplier = Stores.persistent_timestamped_key_value_store("t").with_rows(lambda name: rows)
    builder = Stores.timestamped_key_value_store_builder(supplier, S, S)
    store = builder.with_caching_enabled().build()
    store.init(cached)
    fold_row = store.fold_row(str, lambda key, value, old: old + value)
    fold_row(b"a", "a", "2", 5)
    fold_row(b"new", "new", "3", 5)
    assert reads == [b"a", b"new"]
    assert (store.load("a"), store.load("new")) == (("12", 7), ("3", 5))
