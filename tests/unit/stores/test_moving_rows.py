"""Rows whose snapshot is replaced while a store uses them."""

from __future__ import annotations

import pytest

from penstock.stores.bytes.store import InMemoryBytesStore
from penstock.stores.replica.moving_rows import MovingRows


def filled(keys: range, value: bytes = b"v") -> InMemoryBytesStore:
    store = InMemoryBytesStore()
    store.write((b"%05d" % key, value) for key in keys)
    return store


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_returns_every_row_once(reverse: bool) -> None:
    rows = MovingRows()
    rows.current = filled(range(1000))
    keys = [int(key) for key, _ in rows.scan(b"00010", b"00990", reverse)]
    assert keys == sorted(range(10, 990), reverse=reverse)


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_continues_in_a_new_snapshot(reverse: bool) -> None:
    rows = MovingRows()
    rows.current = filled(range(1000), b"old")
    scan = rows.scan(None, None, reverse)
    first = next(scan)
    rows.current = filled(range(1000), b"new")
    found = [first, *scan]
    assert [int(key) for key, _ in found] == sorted(range(1000), reverse=reverse)
    assert (found[0][1], found[-1][1]) == (b"old", b"new")


def test_writes_are_collected_until_they_are_taken() -> None:
    rows = MovingRows()
    rows.drop_below(b"b")
    rows.write([(b"c", b"1"), (b"d", None)])
    assert rows.get(b"c") is None
    assert rows.take() == (b"b", [(b"c", b"1"), (b"d", None)])
    assert rows.take() == (b"", [])
