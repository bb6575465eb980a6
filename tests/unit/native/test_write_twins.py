"""The writes of a commit are grouped and sorted in C as in Python."""

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock import native
from penstock.engine.worker import record_groups
from penstock.record import NO_HEADERS, Headers
from penstock.stores.bytes.lmdb import rows as lmdb_rows
from penstock.stores.bytes.lmdb.long_keys import MAX_KEY_SIZE, PREFIX

if native.core is None:
    pytest.skip(f"penstock runs {native.in_use()}", allow_module_level=True)

core = native.core


def written_rows(count: int, partitions: int, *, with_headers: bool, seed: int) -> list[Any]:
    chance = random.Random(seed)
    some = Headers((("a", b"1"),))
    return [
        (
            f"topic-{chance.randrange(3)}", chance.randrange(partitions) + 1000,
            chance.choice([None, b"k%d" % number]), b"v%d" % number, number,
            some if with_headers and chance.random() < 0.01 else NO_HEADERS,
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("partitions", [1, 4, 50])
@pytest.mark.parametrize("with_headers", [False, True])
def test_rows_are_grouped_as_in_python(
    partitions: int, with_headers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = written_rows(2_000, partitions, with_headers=with_headers, seed=partitions)
    changes = [("store", *row[2:]) for row in rows]
    fast = [record_groups.group_columns(each) for each in (rows, changes, [])]
    monkeypatch.setattr(record_groups, "core", None)
    plain = [record_groups.group_columns(each) for each in (rows, changes, [])]
    for one, other in zip(fast, plain, strict=True):
        assert list(one) == list(other)
        for destination, columns in one.items():
            expected = other[destination]
            assert columns.keys == list(expected.keys)
            assert columns.values == list(expected.values)
            assert columns.timestamps == list(expected.timestamps or ())
            assert (columns.headers is None) == (expected.headers is None)
            assert list(columns.headers or ()) == list(expected.headers or ())


def test_row_that_is_no_record_is_refused() -> None:
    for rows in ([("store", b"k")], ["no tuple"], None):
        with pytest.raises(TypeError):
            core.group_columns(rows)  # type: ignore[arg-type]


class Unsorted(lmdb_rows.WritableLmdbBytesStore):
    """Sorts changes, and has no database."""

    def __init__(self) -> None:
        pass


def test_changes_are_sorted_as_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(3)
    changes = [
        (
            chance.randbytes(chance.randrange(6)),
            None if chance.random() < 0.2 else b"%d" % number,
        )
        for number in range(5_000)
    ]
    fast = [Unsorted()._sort(each) for each in (changes, changes[:1], [])]
    monkeypatch.setattr(lmdb_rows, "core", None)
    assert fast == [Unsorted()._sort(each) for each in (changes, changes[:1], [])]


def test_long_keys_are_left_to_python() -> None:
    longest = b"k" * MAX_KEY_SIZE
    assert core.sorted_changes([(longest, b"v")], PREFIX, MAX_KEY_SIZE) == (
        [(PREFIX + longest, b"v")], []
    )
    assert core.sorted_changes(
        [(b"a", b"v"), (longest + b"k", b"v")], PREFIX, MAX_KEY_SIZE
    ) is None


def test_change_that_is_no_pair_is_refused() -> None:
    for changes in ([(b"k",)], [("text", b"v")], [b"kv"], None):
        with pytest.raises(TypeError):
            core.sorted_changes(changes, PREFIX, MAX_KEY_SIZE)  # type: ignore[arg-type]
