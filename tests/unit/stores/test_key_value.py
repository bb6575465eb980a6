"""Key-value stores: plain, with timestamps, with headers, LRU maps."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ConfigException, InvalidStateStoreException, StreamsException
from penstock.record import NO_HEADERS, Headers, ValueAndTimestamp
from penstock.serdes.builtin import Serdes
from penstock.stores import Stores, ValueTimestampHeaders
from unit.stores.fakes import FakeContext

S = Serdes.string()


def open_store(context: Any, supplier: Any = None, kind: str = "key_value", **how: bool) -> Any:
    supplier = supplier or Stores.in_memory_key_value_store("s")
    builder = getattr(Stores, f"{kind}_store_builder")(supplier, S, S)
    if how.get("caching"):
        builder = builder.with_caching_enabled()
    if how.get("logging") is False:
        builder = builder.with_logging_disabled()
    store = builder.build()
    store.init(context)
    return store


def test_entries_are_written_read_and_deleted(context: Any) -> None:
    store = open_store(context)
    context.at(5)
    store.put("b", "2")
    store.put_all([("a", "1"), ("c", "3")])
    assert store.put_if_absent("a", "x") == "1"
    assert store.put_if_absent("d", "4") is None
    assert store.delete("c") == "3"
    assert store.delete("nothing") is None
    assert store["a"] == "1"
    assert "c" not in store
    assert list(store.all()) == [("a", "1"), ("b", "2"), ("d", "4")]
    assert list(store.reverse_all()) == [("d", "4"), ("b", "2"), ("a", "1")]
    assert list(store.range("b", None)) == [("b", "2"), ("d", "4")]
    assert list(store.range("a", "b")) == [("a", "1"), ("b", "2")]
    assert list(store.reverse_range(None, "b")) == [("b", "2"), ("a", "1")]
    assert list(store.range("b", "a")) == []
    assert store.approximate_num_entries == 3
    with pytest.raises(KeyError):
        store["nothing"]


def test_writes_are_logged_with_the_timestamp_of_the_record(context: Any) -> None:
    store = open_store(context)
    context.at(7)
    store.put("a", "1")
    store.put_if_absent("a", "2")
    store.put_if_absent("b", None)
    store.delete("a")
    assert [entry[1:4] for entry in context.logged] == [
        (b"a", b"1", 7), (b"b", None, 7), (b"a", None, 7),
    ]


def test_disabled_logging_logs_nothing(context: Any) -> None:
    store = open_store(context, logging=False)
    store.put("a", "1")
    assert context.logged == []
    assert store["a"] == "1"


def test_prefix_scan_compares_serialized_keys(context: Any) -> None:
    store = open_store(context)
    for key in ("a", "ab", "abc", "b"):
        store.put(key, key)
    assert [key for key, _ in store.prefix_scan("ab", Serdes.string())] == ["ab", "abc"]
    assert [key for key, _ in store.prefix_scan("ab", str.encode)] == ["ab", "abc"]
    with pytest.raises(TypeError):
        store.prefix_scan(None)


def test_iterators_can_be_peeked_and_closed(context: Any) -> None:
    store = open_store(context)
    store.put("a", "1")
    store.put("b", "2")
    with store.all() as rows:
        assert rows.peek_next_key() == "a"
        assert next(rows) == ("a", "1")
        assert rows.peek_next_key() == "b"
        assert list(rows) == [("b", "2")]
        with pytest.raises(LookupError):
            rows.peek_next_key()


def test_store_that_is_not_open_raises(context: Any) -> None:
    store = Stores.key_value_store_builder(
        Stores.in_memory_key_value_store("s"), S, S
    ).build()
    assert not store.is_open
    with pytest.raises(InvalidStateStoreException, match="'s'"):
        store.get("a")
    store.init(context)
    assert store.is_open
    store.close()
    with pytest.raises(InvalidStateStoreException, match="closed"):
        store.get("a")


def test_key_of_none_raises_and_names_the_store(context: Any) -> None:
    store = open_store(context)
    for call in (store.get, store.delete, lambda key: store.put(key, "x")):
        with pytest.raises(TypeError, match="'s'"):
            call(None)


def test_missing_serde_raises_a_configuration_error(context: Any) -> None:
    store = Stores.key_value_store_builder(Stores.in_memory_key_value_store("s"), S).build()
    with pytest.raises(StreamsException, match="value serdes for store s") as error:
        store.init(context)
    assert isinstance(error.value.__cause__, ConfigException)
    context.default_value_serde = S
    store.init(context)


def test_timestamped_values_are_logged_with_their_own_timestamp(context: Any) -> None:
    store = open_store(
        context, Stores.persistent_timestamped_key_value_store("s"), "timestamped_key_value"
    )
    context.at(100)
    store.put("a", ValueAndTimestamp("1", 42))
    assert store.get("a") == ValueAndTimestamp("1", 42)
    assert store.load("a") == ("1", 42)
    store.save("b", "2", 43)
    store.save("a", None, 44)
    assert store.load("a") is None
    assert context.logged == [
        ("s", b"a", b"1", 42, NO_HEADERS), ("s", b"b", b"2", 43, NO_HEADERS),
        ("s", b"a", None, 100, NO_HEADERS),
    ]


def test_plain_persistent_store_drops_timestamps(context: Any) -> None:
    store = open_store(context, Stores.persistent_key_value_store("s"), "timestamped_key_value")
    store.save("a", "1", 42)
    assert store.load("a") == ("1", -1)
    assert list(store.all()) == [("a", ValueAndTimestamp("1", -1))]
    assert context.logged[0][3] == 42


def test_in_memory_store_keeps_timestamps(context: Any) -> None:
    store = open_store(context, kind="timestamped_key_value")
    store.save("a", "1", 42)
    assert store.load("a") == ("1", 42)


HEADERS = Headers([("h", b"1"), ("n", None)])


def test_headers_are_kept_and_logged(context: Any) -> None:
    supplier = Stores.persistent_timestamped_key_value_store_with_headers("s")
    builder = Stores.timestamped_key_value_store_with_headers_builder(supplier, S, S)
    store = builder.build()
    store.init(context)
    context.at(9, headers=Headers([("t", b"")]))
    store.put("a", ValueTimestampHeaders("1", 42, HEADERS))
    assert store.get("a") == ValueTimestampHeaders("1", 42, HEADERS)
    assert store.plain.get("a") == ValueAndTimestamp("1", 42)
    store.delete("a")
    assert context.logged == [
        ("s", b"a", b"1", 42, HEADERS), ("s", b"a", None, 9, Headers([("t", b"")])),
    ]
    store.save("b", "2", 5)
    assert store.get("b") == ValueTimestampHeaders("2", 5, NO_HEADERS)
    assert list(store.plain.all()) == [("b", ValueAndTimestamp("2", 5))]


@pytest.mark.parametrize("supplier", [
    Stores.persistent_key_value_store("s"), Stores.persistent_timestamped_key_value_store("s"),
    Stores.in_memory_key_value_store("s"),
    Stores.persistent_timestamped_key_value_store_with_headers("s"),
], ids=lambda supplier: f"{supplier.persistent}-{supplier.format.name}")
@pytest.mark.parametrize("kind", ["key_value", "timestamped_key_value"])
def test_restored_store_equals_the_original(
    supplier: Any, kind: str
) -> None:
    context = FakeContext()
    first = open_store(context, supplier, kind)
    context.at(3)
    wrap = (lambda v, t: v) if kind == "key_value" else ValueAndTimestamp
    for n in range(20):
        first.put(f"k{n % 7}", wrap(f"v{n}", n) if n % 5 else None)
    second = open_store(FakeContext(), supplier, kind)
    for _, key, value, timestamp, headers in context.logged:
        second.restore(key, value, timestamp, headers)
    assert list(second.all()) == list(first.all())


def test_lru_map_evicts_the_eldest_key_and_logs_it(context: Any) -> None:
    store = open_store(context, Stores.lru_map("s", 2))
    context.at(1)
    store.put("a", "1")
    store.put("b", "2")
    store.get("a")
    store.put("c", "3")
    assert [key for key, _ in store.all()] == ["a", "c"]
    assert [entry[1:3] for entry in context.logged] == [
        (b"a", b"1"), (b"b", b"2"), (b"b", None), (b"c", b"3"),
    ]


def test_advance_keeps_all_entries(context: Any) -> None:
    store = open_store(context)
    store.put("a", "1")
    store.commit()
    store.advance()
    store.put("a", None)
    store.put("b", "2")
    store.advance()
    assert list(store.all()) == [("b", "2")]


commands = st.lists(
    st.tuples(
        st.sampled_from(["put", "delete", "commit", "advance", "get"]),
        st.sampled_from(["a", "b", "ab", "", "c"]), st.sampled_from(["1", "2", "3"]),
    ),
    max_size=30,
)


@given(commands=commands, max_bytes=st.sampled_from([0, 1, 150, 300, 100_000]))
def test_cached_store_behaves_like_a_dictionary(
    commands: list[tuple[str, str, str]], max_bytes: int
) -> None:
    store = open_store(FakeContext(max_bytes), caching=True)
    model: dict[str, str] = {}
    for command, key, value in commands:
        if command == "put":
            store.put(key, value)
            model[key] = value
        elif command == "delete":
            assert store.delete(key) == model.pop(key, None)
        elif command == "get":
            assert store.get(key) == model.get(key)
        else:
            getattr(store, command)()
        assert list(store.all()) == sorted(model.items())
        assert list(store.reverse_all()) == sorted(model.items(), reverse=True)
