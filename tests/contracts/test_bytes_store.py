"""The contract of every `BytesStore`, and the overlay over one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.stores.bytes.lmdb.environment import LmdbEnvironment
from penstock.stores.bytes.overlay import Overlay
from penstock.stores.bytes.store import BytesStore, InMemoryBytesStore, successor

SIZES = (0, 1, 508, 509, 510, 511, 512, 5000)


@contextmanager
def in_memory(where: Path) -> Iterator[BytesStore]:
    yield InMemoryBytesStore()


@contextmanager
def on_disk(where: Path) -> Iterator[BytesStore]:
    environment = LmdbEnvironment.open(where, create=True)
    with environment.writing(["rows"]) as transaction:
        yield transaction.open_writable("rows")
    environment.close()


STORES: dict[str, Callable[[Path], Any]] = {"memory": in_memory, "lmdb": on_disk}


@pytest.fixture(params=STORES.values(), ids=STORES.keys())
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BytesStore]:
    with request.param(tmp_path / "rows") as opened:
        yield opened


def keys_of_all_sizes() -> list[bytes]:
    return sorted({fill * size for size in SIZES for fill in (b"\x00", b"a", b"\xff")})


def test_keys_of_every_size_are_scanned_in_order(store: BytesStore) -> None:
    keys = keys_of_all_sizes()
    rows = [(key, b"v%d" % index) for index, key in enumerate(keys)]
    store.write(reversed(rows))
    assert [store.get(key) for key in keys] == [value for _, value in rows]
    assert list(store.scan(None, None)) == rows
    assert list(store.scan(None, None, True)) == rows[::-1]
    assert store.count() == len(rows)


@pytest.mark.parametrize("reverse", [False, True])
def test_ranges_are_half_open(store: BytesStore, reverse: bool) -> None:
    keys = keys_of_all_sizes()
    store.write((key, b"x") for key in keys)
    for low in [None, *keys, b"b"]:
        for high in [None, *keys, b"b"]:
            expected = [
                key for key in keys
                if (low is None or key >= low) and (high is None or key < high)
            ]
            found = [key for key, _ in store.scan(low, high, reverse)]
            assert found == (expected[::-1] if reverse else expected)


def test_empty_values_are_values(store: BytesStore) -> None:
    store.write([(b"a", b"")])
    assert store.get(b"a") == b""
    assert list(store.scan(None, None)) == [(b"a", b"")]


def test_deleting_a_missing_key_does_nothing(store: BytesStore) -> None:
    store.write([(b"a", None), (b"b", b"1"), (b"b", None)])
    assert store.get(b"b") is None
    assert list(store.scan(None, None)) == []


def test_drop_below_deletes_only_smaller_keys(store: BytesStore) -> None:
    store.write((bytes((n,)), b"x") for n in range(10))
    store.drop_below(b"\x04")
    assert [key for key, _ in store.scan(None, None)] == [bytes((n,)) for n in range(4, 10)]
    assert store.get(b"\x03") is None


def test_drop_below_separates_long_keys_with_a_common_prefix(
    store: BytesStore,
) -> None:
    keys = keys_of_all_sizes()
    for key in keys:
        store.write((each, b"x") for each in keys)
        store.drop_below(key)
        left = [each for each in keys if each >= key]
        assert [each for each, _ in store.scan(None, None)] == left
        assert store.count() == len(left)


def test_long_keys_are_replaced_and_deleted_individually(store: BytesStore) -> None:
    keys = [b"k" * 600 + b"%d" % n for n in range(5)]
    store.write((key, b"old") for key in keys)
    store.write([(keys[1], b"new"), (keys[3], None), (b"k" * 600, b"between")])
    assert [store.get(key) for key in keys] == [b"old", b"new", b"old", None, b"old"]
    assert store.get(b"k" * 600) == b"between"
    assert store.get(b"k" * 509) is None
    assert store.count() == 5
    store.write((key, None) for key in [*keys, b"k" * 600])
    assert (store.count(), list(store.scan(None, None))) == (0, [])


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_stays_valid_during_writes(store: BytesStore, reverse: bool) -> None:
    store.write((b"%05d" % n, b"x") for n in range(1000))
    seen = []
    for key, _ in store.scan(None, None, reverse):
        seen.append(key)
        store.write([(key, None), (key + b"new", None)])
    assert len(seen) == 1000
    assert store.count() == 0


def test_successor_is_the_exclusive_end_of_a_prefix() -> None:
    assert successor(b"ab") == b"ac"
    assert successor(b"a\xff") == b"b"
    assert successor(b"\xff\xff") is None
    assert successor(b"") is None


short = st.binary(max_size=3)
changes = st.lists(st.tuples(short, st.none() | st.binary(max_size=2)), max_size=20)


@given(batches=st.lists(changes, max_size=4), pending=changes, low=st.none() | short,
       high=st.none() | short, reverse=st.booleans())
def test_overlay_behaves_like_an_ordered_dictionary(
    batches: list[list[tuple[bytes, bytes | None]]], pending: list[tuple[bytes, bytes | None]],
    low: bytes | None, high: bytes | None, reverse: bool,
) -> None:
    overlay = Overlay(InMemoryBytesStore())
    model: dict[bytes, bytes] = {}

    def write(batch: list[tuple[bytes, bytes | None]]) -> None:
        for key, value in batch:
            overlay.put(key, value)
            model.pop(key, None) if value is None else model.__setitem__(key, value)

    for batch in batches:
        write(batch)
        overlay.advance()
    write(pending)
    expected = sorted(
        (key, value) for key, value in model.items()
        if (low is None or key >= low) and (high is None or key < high)
    )
    assert list(overlay.scan(low, high, reverse)) == (expected[::-1] if reverse else expected)
    assert all(overlay.get(key) == value for key, value in model.items())
    assert overlay.count() == len(model)
    overlay.advance()
    assert dict(overlay.scan(None, None)) == model


def test_overlay_without_advance_changes_nothing() -> None:
    committed = InMemoryBytesStore()
    committed.write([(b"a", b"1")])
    overlay = Overlay(committed)
    overlay.put(b"a", None)
    overlay.put(b"b", b"2")
    assert overlay.get(b"a") is None
    assert list(committed.scan(None, None)) == [(b"a", b"1")]


def test_overlay_scan_returns_the_rows_of_its_start() -> None:
    overlay = Overlay(InMemoryBytesStore())
    overlay.put(b"a", b"1")
    overlay.put(b"b", b"2")
    scan = overlay.scan(None, None)
    overlay.put(b"a", None)
    overlay.put(b"c", b"3")
    assert list(scan) == [(b"a", b"1"), (b"b", b"2")]


def test_advance_deletes_expired_rows() -> None:
    committed = InMemoryBytesStore()
    committed.write([(b"a", b"1"), (b"c", b"3")])
    overlay = Overlay(committed)
    overlay.put(b"aa", b"x")
    overlay.put(b"d", b"4")
    overlay.drop_below(b"b")
    overlay.advance()
    assert list(committed.scan(None, None)) == [(b"c", b"3"), (b"d", b"4")]
