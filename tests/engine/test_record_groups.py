"""Grouping records as columns equals grouping them one by one."""

from __future__ import annotations

import random
from itertools import accumulate
from typing import Any

import pytest

from penstock.engine.worker import record_groups as module
from penstock.engine.worker.record_groups import group_records, without_shuffle_columns
from penstock.log.types import as_header_pairs
from penstock.record import NO_HEADERS, Headers

Row = tuple[Any, ...]


def rows_of(batch: Any) -> list[Row]:
    headers = (
        [as_header_pairs(each) for each in batch.column("headers").to_pylist()]
        if "headers" in batch.schema.names else [NO_HEADERS] * batch.num_rows
    )
    return list(zip(
        batch.column("key").to_pylist(), batch.column("value").to_pylist(),
        batch.column("timestamp").to_pylist(), headers, strict=True,
    ))


def group_one_by_one(rows: list[Row]) -> dict[Row, list[Row]]:
    found: dict[Row, list[Row]] = {}
    for row in rows:
        found.setdefault(row[:-4], []).append(row[-4:])
    return found


def random_rows(count: int, destinations: int, seed: int, *, headers: bool = False) -> list[Row]:
    draw = random.Random(seed)
    some = (NO_HEADERS, Headers((("h", b"1"), ("h", None))))
    return [
        (f"t{draw.randrange(destinations)}", draw.randrange(destinations),
         draw.choice((None, b"", b"key")), draw.choice((None, b"v" * draw.randrange(9))),
         draw.randrange(100),
         draw.choice(some) if headers else NO_HEADERS)
        for _ in range(count)
    ]


@pytest.fixture(params=[0, 1000], ids=["arrow", "python"])
def grouping(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both implementations, with chunks of 8 rows."""
    monkeypatch.setattr(module, "_CHUNK_ROWS", 8)
    monkeypatch.setattr(module, "_MAX_PYTHON_ROWS", request.param)


@pytest.mark.parametrize("headers", [False, True])
@pytest.mark.parametrize("destinations", [1, 3])
@pytest.mark.parametrize("count", [0, 1, 5, 100])
@pytest.mark.usefixtures("grouping")
def test_each_destination_gets_its_rows_in_the_order_of_writing(
    count: int, destinations: int, headers: bool
) -> None:
    rows = random_rows(count, destinations, seed=count + destinations, headers=headers)
    found = {destination: rows_of(batch) for destination, batch in group_records(rows).groups()}
    assert found == group_one_by_one(rows)


@pytest.mark.usefixtures("grouping")
def test_changes_are_grouped_by_store() -> None:
    rows = [("s", b"a", b"1", 1, NO_HEADERS), ("t", b"a", b"2", 2, NO_HEADERS),
            ("s", b"b", None, 3, NO_HEADERS)]
    assert {destination: rows_of(batch) for destination, batch in group_records(rows).groups()} == {
        ("s",): [(b"a", b"1", 1, NO_HEADERS), (b"b", None, 3, NO_HEADERS)],
        ("t",): [(b"a", b"2", 2, NO_HEADERS)],
    }


@pytest.mark.usefixtures("grouping")
def test_running_maximum_covers_all_earlier_rows() -> None:
    rows = [(*row[:2], b"%d" % number, *row[3:]) for number, row in
            enumerate(random_rows(50, 3, seed=4))]
    maxima = list(accumulate((row[4] for row in rows), max))
    for _, batch in group_records(rows, running_maximum=True).groups():
        numbers = [int(key) for key in batch.column("key").to_pylist()]
        assert batch.column("running_maximum").to_pylist() == [maxima[n] for n in numbers]


def test_running_maximum_is_removed_for_the_log() -> None:
    ((_, batch),) = group_records(random_rows(5, 1, seed=1), running_maximum=True).groups()
    assert without_shuffle_columns(batch).schema.names == ["timestamp", "key", "value"]
    assert without_shuffle_columns(without_shuffle_columns(batch)).num_rows == 5


@pytest.mark.usefixtures("grouping")
def test_topics_are_in_the_order_of_their_first_record() -> None:
    rows = [(topic, number, b"k", b"v", 1, NO_HEADERS)
            for topic, number in (("zz", 1), ("aa", 0), ("zz", 0), ("aa", 1))]
    assert [destination for destination, _ in group_records(rows).groups()] == [
        ("zz", 0), ("zz", 1), ("aa", 0), ("aa", 1),
    ]
