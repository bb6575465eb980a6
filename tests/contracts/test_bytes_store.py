"""What every inner store must do."""

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


INNER: dict[str, Callable[[Path], Any]] = {"memory": in_memory, "lmdb": on_disk}


@pytest.fixture(params=INNER.values(), ids=INNER.keys())
def inner(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BytesStore]:
    with request.param(tmp_path / "rows") as store:
        yield store


def keys_of_all_sizes() -> list[bytes]:
    return sorted({fill * size for size in SIZES for fill in (b"\x00", b"a", b"\xff")})


def test_keys_of_every_size_are_kept_and_scanned_in_order(inner: BytesStore) -> None:
    keys = keys_of_all_sizes()
    rows = [(key, b"v%d" % index) for index, key in enumerate(keys)]
    inner.write(reversed(rows))
    assert [inner.get(key) for key in keys] == [value for _, value in rows]
    assert list(inner.scan(None, None)) == rows
    assert list(inner.scan(None, None, True)) == rows[::-1]
    assert inner.count() == len(rows)


@pytest.mark.parametrize("reverse", [False, True])
def test_ranges_are_half_open(inner: BytesStore, reverse: bool) -> None:
    keys = keys_of_all_sizes()
    inner.write((key, b"x") for key in keys)
    for low in [None, *keys, b"b"]:
        for high in [None, *keys, b"b"]:
            wanted = [
                key for key in keys
                if (low is None or key >= low) and (high is None or key < high)
            ]
            found = [key for key, _ in inner.scan(low, high, reverse)]
            assert found == (wanted[::-1] if reverse else wanted)


def test_empty_values_are_values(inner: BytesStore) -> None:
    inner.write([(b"a", b"")])
    assert inner.get(b"a") == b""
    assert list(inner.scan(None, None)) == [(b"a", b"")]


def test_deleting_what_is_not_there_does_nothing(inner: BytesStore) -> None:
    inner.write([(b"a", None), (b"b", b"1"), (b"b", None)])
    assert inner.get(b"b") is None
    assert list(inner.scan(None, None)) == []


def test_drop_below_forgets_smaller_keys_only(inner: BytesStore) -> None:
    inner.write((bytes((n,)), b"x") for n in range(10))
    inner.drop_below(b"\x04")
    assert [key for key, _ in inner.scan(None, None)] == [bytes((n,)) for n in range(4, 10)]
    assert inner.get(b"\x03") is None


def test_drop_below_a_long_key_cuts_between_keys_that_share_their_beginning(
    inner: BytesStore,
) -> None:
    keys = keys_of_all_sizes()
    for key in keys:
        inner.write((each, b"x") for each in keys)
        inner.drop_below(key)
        left = [each for each in keys if each >= key]
        assert [each for each, _ in inner.scan(None, None)] == left
        assert inner.count() == len(left)


def test_long_keys_are_replaced_and_deleted_one_by_one(inner: BytesStore) -> None:
    keys = [b"k" * 600 + b"%d" % n for n in range(5)]
    inner.write((key, b"old") for key in keys)
    inner.write([(keys[1], b"new"), (keys[3], None), (b"k" * 600, b"between")])
    assert [inner.get(key) for key in keys] == [b"old", b"new", b"old", None, b"old"]
    assert inner.get(b"k" * 600) == b"between"
    assert inner.get(b"k" * 509) is None
    assert inner.count() == 5
    inner.write((key, None) for key in [*keys, b"k" * 600])
    assert (inner.count(), list(inner.scan(None, None))) == (0, [])


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_survives_writes(inner: BytesStore, reverse: bool) -> None:
    inner.write((b"%05d" % n, b"x") for n in range(1000))
    seen = []
    for key, _ in inner.scan(None, None, reverse):
        seen.append(key)
        inner.write([(key, None), (key + b"new", None)])
    assert len(seen) == 1000
    assert inner.count() == 0


def test_successor_is_the_end_of_a_prefix() -> None:
    assert successor(b"ab") == b"ac"
    assert successor(b"a\xff") == b"b"
    assert successor(b"\xff\xff") is None
    assert successor(b"") is None


short = st.binary(max_size=3)
changes = st.lists(st.tuples(short, st.none() | st.binary(max_size=2)), max_size=20)


@given(batches=st.lists(changes, max_size=4), pending=changes, low=st.none() | short,
       high=st.none() | short, reverse=st.booleans())
def test_an_overlay_is_a_dictionary_with_order(
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
    wanted = sorted(
        (key, value) for key, value in model.items()
        if (low is None or key >= low) and (high is None or key < high)
    )
    assert list(overlay.scan(low, high, reverse)) == (wanted[::-1] if reverse else wanted)
    assert all(overlay.get(key) == value for key, value in model.items())
    assert overlay.count() == len(model)
    overlay.advance()
    assert dict(overlay.scan(None, None)) == model


def test_an_overlay_that_does_not_advance_leaves_nothing() -> None:
    inner = InMemoryBytesStore()
    inner.write([(b"a", b"1")])
    overlay = Overlay(inner)
    overlay.put(b"a", None)
    overlay.put(b"b", b"2")
    assert overlay.get(b"a") is None
    assert list(inner.scan(None, None)) == [(b"a", b"1")]


def test_a_scan_of_an_overlay_shows_what_was_there_when_it_began() -> None:
    overlay = Overlay(InMemoryBytesStore())
    overlay.put(b"a", b"1")
    overlay.put(b"b", b"2")
    scan = overlay.scan(None, None)
    overlay.put(b"a", None)
    overlay.put(b"c", b"3")
    assert list(scan) == [(b"a", b"1"), (b"b", b"2")]


def test_expired_rows_go_when_the_overlay_advances() -> None:
    inner = InMemoryBytesStore()
    inner.write([(b"a", b"1"), (b"c", b"3")])
    overlay = Overlay(inner)
    overlay.put(b"aa", b"x")
    overlay.put(b"d", b"4")
    overlay.drop_below(b"b")
    overlay.advance()
    assert list(inner.scan(None, None)) == [(b"c", b"3"), (b"d", b"4")]
