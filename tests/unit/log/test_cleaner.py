"""Retention, merging of batches, and deletion of unused data, also while others read."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from contracts.log_records import numbered, offsets, pairs, values
from penstock.log import Log, RecordColumns, TopicPartition
from penstock.log.errors import OffsetOutOfRange, StagedRecordsGone
from unit.log.conftest import Clock

P0 = TopicPartition("orders", 0)
HOUR = 3_600_000


def count(path: Path, table: str) -> int:
    db = sqlite3.connect(path)
    try:
        return int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
    finally:
        db.close()


def test_batches_older_than_retention_ms_expire(log: Log, clock: Clock) -> None:
    log.create_topic("orders", 1, {"retention.ms": 10 * HOUR})
    for hour in range(15):
        log.append("orders", 0, numbered([2 * hour, 2 * hour + 1], at=clock.now))
        clock.now += HOUR
    assert log.clean().records_expired == 10
    assert log.offsets([P0])[P0][:2] == (10, 30)
    assert offsets(log.read("orders", 0, 10)) == list(range(10, 30))
    assert log.clean().records_expired == 0
    with pytest.raises(OffsetOutOfRange):
        log.read("orders", 0, 9)


def test_old_batch_after_a_young_one_does_not_expire(log: Log, clock: Clock) -> None:
    log.create_topic("orders", 1, {"retention.ms": HOUR})
    for at in (clock.now - 5 * HOUR, clock.now, clock.now - 5 * HOUR):
        log.append("orders", 0, numbered([1], at=at))
    assert log.clean().records_expired == 1
    assert offsets(log.read("orders", 0, 1)) == [1, 2]


def test_end_stays_when_all_batches_expire(log: Log, clock: Clock) -> None:
    log.create_topic("orders", 1, {"retention.ms": HOUR})
    log.append("orders", 0, numbered(range(7), at=clock.now))
    clock.now += 2 * HOUR
    log.clean()
    assert log.offsets([P0])[P0][:2] == (7, 7)
    assert log.append("orders", 0, numbered([1], at=clock.now)).base_offset == 7


def test_nothing_expires_without_a_limit(log: Log, clock: Clock) -> None:
    log.create_topic("orders", 1, {"retention.ms": -1})
    log.append("orders", 0, numbered([1], at=0))
    clock.now += 10**12
    log.clean()
    assert pairs(log, "orders") == [(b"k1", b"1")]


def test_oldest_batches_expire_beyond_retention_bytes(log: Log, clock: Clock) -> None:
    log.create_topic("orders", 2, {"retention.bytes": 5_000})
    for number in range(20):
        log.append("orders", 0, numbered([number], size=1_000, at=clock.now))
    log.append("orders", 1, numbered([0], size=1_000, at=clock.now))
    log.clean()
    left = offsets(log.read("orders", 0, log.offsets([P0])[P0].start))
    assert left == list(range(left[0], 20))
    assert 4 <= len(left) <= 5
    assert len(pairs(log, "orders", 1)) == 1


def test_reader_overtaken_by_retention_fails(log: Log, clock: Clock) -> None:
    log.create_topic("orders", 1, {"retention.ms": HOUR})
    for _ in range(3):
        log.append("orders", 0, numbered(range(5000), at=clock.now))
    reader = log.read("orders", 0, 0)
    next(reader)
    clock.now += 2 * HOUR
    log.clean()
    with pytest.raises(OffsetOutOfRange) as caught:
        next(reader)
    assert (caught.value.start, caught.value.end) == (15_000, 15_000)


def test_merged_batches_have_the_same_records(
    log: Log, clock: Clock, path: Path
) -> None:
    log.create_topic("orders", 1, {"retention.ms": -1})
    for number in range(300):
        headers = [[("n", b"%d" % number)]] if number % 3 == 0 else None
        timestamps = [clock.now] if number % 2 else None
        log.append("orders", 0, RecordColumns([b"k"], [b"%d" % number], timestamps, headers))
        clock.now += 1
    log.append("orders", 0, numbered(range(300, 9_000), size=100, at=clock.now))

    def read(start: int) -> list[object]:
        return [
            row
            for batch in log.read("orders", 0, start)
            for columns in [batch.columns()]
            for row in zip(columns.offsets, columns.timestamps, columns.values,
                           columns.headers or [()] * len(columns), strict=True)
        ]

    before, middle = read(0), read(123)
    reader = log.read("orders", 0, 0, max_records=9_000)
    batches = count(path, "batches")
    assert log.clean().batches_merged == 300
    assert count(path, "batches") == batches - 299
    assert count(path, "blobs") == count(path, "batches")
    assert read(0) == before
    assert read(123) == middle
    assert offsets(reader) == list(range(9_000))
    assert log.clean().batches_merged == 0


def test_merge_does_not_disturb_a_reader(log: Log, clock: Clock) -> None:
    log.create_topic("orders", 1, {"retention.ms": -1})
    for begin in range(0, 16_000, 100):
        log.append("orders", 0, numbered(range(begin, begin + 100), at=clock.now))
    reader = log.read("orders", 0, 50)
    first = next(reader).columns().values
    assert log.clean().batches_merged > 0
    assert [*first, *values(reader)] == [b"%d" % n for n in range(50, 16_000)]


def test_unused_staged_records_expire(
    open_handle: Callable[..., Log], clock: Clock, path: Path
) -> None:
    log = open_handle(unused_blob_ms=HOUR)
    log.create_topic("orders")
    (old,) = log.stage_records(numbered([1], at=clock.now))
    clock.now += HOUR // 2
    (young,) = log.stage_records(numbered([2], at=clock.now))
    clock.now += HOUR // 2
    assert log.clean().blobs_swept == 1
    with pytest.raises(StagedRecordsGone):
        log.append("orders", 0, old)
    log.append("orders", 0, young)
    assert (count(path, "blobs"), count(path, "aside")) == (1, 0)
    assert values(log.read("orders", 0, 0)) == [b"2"]


def test_space_of_deleted_topics_is_freed(log: Log, path: Path) -> None:
    log.create_topic("orders")
    for begin in range(0, 200_000, 10_000):
        log.append("orders", 0, numbered(range(begin, begin + 10_000), size=40))
    log.delete_topic("orders")
    assert count(path, "batches") == 0
    report = log.clean()
    assert report.blobs_swept == 20
    assert count(path, "blobs") == 0
    log.close()
    assert path.stat().st_size < 6_000_000


def test_only_given_topics_are_cleaned(log: Log, clock: Clock) -> None:
    for name in ("orders", "stores"):
        log.create_topic(name, 1, {"retention.ms": HOUR})
        log.append(name, 0, numbered([1], at=clock.now))
    clock.now += 2 * HOUR
    log.clean(["orders"])
    assert (len(pairs(log, "orders")), len(pairs(log, "stores"))) == (0, 1)
