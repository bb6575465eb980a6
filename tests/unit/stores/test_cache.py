from __future__ import annotations

from typing import Any

from penstock.record import NO_HEADERS, Headers, ValueAndTimestamp
from penstock.serdes.builtin import Serdes
from penstock.stores import Stores
from penstock.windows import Window, Windowed

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
    """Kafka's estimate for an entry of `table` written by a record of `topic`."""
    return len(key) + 24 + 1 + 8 + len(value) + 8 + 8 + len("topic") + 4


def test_without_bytes_there_is_no_cache(context: Any) -> None:
    store = table(context)
    assert store.set_flush_listener(lambda *heard: None, True) is False
    store.save("a", "1", 1)
    assert len(context.logged) == 1


def test_writes_wait_for_the_commit_and_only_the_last_is_heard(cached: Any) -> None:
    store = table(cached)
    heard: list[Any] = []
    assert store.set_flush_listener(lambda *change: heard.append(change), True) is True
    cached.at(10, 0)
    store.save("a", "1", 10)
    cached.at(11, 1, HEADERS)
    store.save("b", "2", 5)
    store.save("a", "3", 12)
    assert store.load("a") == ("3", 12)
    assert heard == []
    assert cached.logged == []
    cached.at(99, 2)
    store.commit()
    assert heard == [("b", "2", None, 5, HEADERS), ("a", "3", None, 12, HEADERS)]
    assert [entry[1:4] for entry in cached.logged] == [(b"b", b"2", 5), (b"a", b"3", 12)]
    assert (cached.current.timestamp, cached.current.offset) == (99, 2)
    heard.clear()
    store.save("a", "4", 13)
    store.commit()
    assert heard == [("a", "4", "3", 13, NO_HEADERS)]
    store.commit()
    assert len(heard) == 1


def test_old_values_are_sent_only_if_asked_for(cached: Any) -> None:
    store = table(cached)
    heard: list[Any] = []
    store.set_flush_listener(lambda *change: heard.append(change), False)
    store.save("a", "1", 1)
    store.commit()
    store.save("a", "2", 2)
    store.commit()
    cached.at(7)
    store.save("a", None, 3)
    store.commit()
    assert [change[1:3] for change in heard] == [("1", None), ("2", None), (None, None)]
    assert heard[-1][3] == 7


def test_the_listener_runs_under_the_record_that_wrote_and_after_the_write(cached: Any) -> None:
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


def test_an_insert_and_its_deletion_send_nothing(cached: Any) -> None:
    store = table(cached)
    heard: list[Any] = []
    store.set_flush_listener(lambda *change: heard.append(change), True)
    store.save("a", "1", 1)
    store.save("a", None, 2)
    store.save("nothing", None, 2)
    store.commit()
    assert heard == []
    assert cached.logged == []


def test_without_a_listener_deletions_are_logged(cached: Any) -> None:
    store = table(cached)
    store.save("nothing", None, 2)
    store.commit()
    assert [entry[1:3] for entry in cached.logged] == [(b"nothing", None)]


def test_going_over_the_budget_flushes_the_eldest_and_all_other_changes(new_context: Any) -> None:
    context = new_context(max_bytes=entry_bytes("a", "1") * 2)
    store = table(context)
    heard: list[Any] = []
    store.set_flush_listener(lambda *change: heard.append(change[0]), False)
    context.at(1)
    store.save("a", "1", 1)
    store.save("b", "1", 1)
    assert heard == []
    assert context.cache.size == entry_bytes("a", "1") * 2
    store.load("a")
    store.save("c", "1", 1)
    assert heard == ["b", "a", "c"]
    assert context.cache.size == entry_bytes("a", "1") * 2
    assert context.cache.evictions == 1


def test_headers_count_in_the_size_of_an_entry(cached: Any) -> None:
    store = table(cached)
    cached.at(1, 0, HEADERS)
    store.save("a", "1", 1)
    assert cached.cache.size == entry_bytes("a", "1") + 4


def test_stores_share_the_budget_but_only_the_written_one_gives_way(new_context: Any) -> None:
    context = new_context(max_bytes=entry_bytes("a", "1") * 2)
    context.at(1)
    first, second = table(context), table(context)
    heard: list[str] = []
    first.set_flush_listener(lambda *change: heard.append("first"), False)
    second.set_flush_listener(lambda *change: heard.append("second"), False)
    first.save("a", "1", 1)
    first.save("b", "1", 1)
    second.save("a", "1", 1)
    assert heard == ["second"]


def test_a_value_read_below_stays_in_the_cache(cached: Any) -> None:
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


def test_a_listener_may_write_to_the_store_it_listens_to(cached: Any) -> None:
    store = table(cached)

    def hear(key: str, *rest: Any) -> None:
        if key == "a":
            store.save("b", "2", 2)

    store.set_flush_listener(hear, False)
    store.save("a", "1", 1)
    store.commit()
    assert [entry[1] for entry in cached.logged] == [b"a"]
    store.commit()
    assert [entry[1] for entry in cached.logged] == [b"a", b"b"]


def test_cached_windows_and_sessions_give_windowed_keys(cached: Any) -> None:
    builder = Stores.timestamped_window_store_builder(
        Stores.persistent_timestamped_window_store("w", 100, 10), S, S
    )
    store = builder.with_caching_enabled().build()
    store.init(cached)
    heard: list[Any] = []
    store.set_flush_listener(lambda *change: heard.append(change), True)
    cached.at(7)
    store.save("a", "1", 5, 0)
    store.commit()
    builder = Stores.session_store_builder(Stores.persistent_session_store("s", 100), S, S)
    sessions = builder.with_caching_enabled().build()
    sessions.init(cached)
    sessions.set_flush_listener(lambda *change: heard.append(change), True)
    sessions.put(Windowed("a", Window(1, 4)), "x")
    sessions.remove(Windowed("a", Window(2, 3)))
    sessions.commit()
    assert heard == [
        (Windowed("a", Window(0, 10)), "1", None, 5, NO_HEADERS),
        (Windowed("a", Window(1, 4)), "x", None, 7, NO_HEADERS),
    ]


def test_the_cache_shows_windows_that_the_store_has_not_seen_expire(cached: Any) -> None:
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


def test_stores_with_duplicates_have_no_cache(cached: Any) -> None:
    builder = Stores.window_store_builder(
        Stores.persistent_window_store("w", 100, 10, True), S, S
    )
    store = builder.with_caching_enabled().build()
    store.init(cached)
    assert store.set_flush_listener(lambda *change: None, True) is False
