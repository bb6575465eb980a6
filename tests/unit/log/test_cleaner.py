"""Retention, merging, sweeping: what goes, what stays, and who may be reading meanwhile."""

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


def test_batches_older_than_the_retention_go(log: Log, clock: Clock) -> None:
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


def test_an_old_batch_behind_a_young_one_waits(log: Log, clock: Clock) -> None:
    log.create_topic("orders", 1, {"retention.ms": HOUR})
    for at in (clock.now - 5 * HOUR, clock.now, clock.now - 5 * HOUR):
        log.append("orders", 0, numbered([1], at=at))
    assert log.clean().records_expired == 1
    assert offsets(log.read("orders", 0, 1)) == [1, 2]


def test_when_all_is_old_the_end_stays(log: Log, clock: Clock) -> None:
    log.create_topic("orders", 1, {"retention.ms": HOUR})
    log.append("orders", 0, numbered(range(7), at=clock.now))
    clock.now += 2 * HOUR
    log.clean()
    assert log.offsets([P0])[P0][:2] == (7, 7)
    assert log.append("orders", 0, numbered([1], at=clock.now)).base_offset == 7


def test_without_a_limit_nothing_goes(log: Log, clock: Clock) -> None:
    log.create_topic("orders", 1, {"retention.ms": -1})
    log.append("orders", 0, numbered([1], at=0))
    clock.now += 10**12
    log.clean()
    assert pairs(log, "orders") == [(b"k1", b"1")]


def test_the_oldest_go_when_a_partition_is_too_large(log: Log, clock: Clock) -> None:
    log.create_topic("orders", 2, {"retention.bytes": 5_000})
    for number in range(20):
        log.append("orders", 0, numbered([number], size=1_000, at=clock.now))
    log.append("orders", 1, numbered([0], size=1_000, at=clock.now))
    log.clean()
    left = offsets(log.read("orders", 0, log.offsets([P0])[P0].start))
    assert left == list(range(left[0], 20))
    assert 4 <= len(left) <= 5
    assert len(pairs(log, "orders", 1)) == 1


def test_a_reader_that_is_overtaken_hears_of_it(log: Log, clock: Clock) -> None:
    log.create_topic("orders", 1, {"retention.ms": HOUR})
    for _ in range(3):
        log.append("orders", 0, numbered(range(5000), at=clock.now))
    reading = log.read("orders", 0, 0)
    next(reading)
    clock.now += 2 * HOUR
    log.clean()
    with pytest.raises(OffsetOutOfRange) as caught:
        next(reading)
    assert (caught.value.start, caught.value.end) == (15_000, 15_000)


def test_small_batches_are_merged_and_read_the_same(
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
            for rows in [batch.columns()]
            for row in zip(rows.offsets, rows.timestamps, rows.values,
                           rows.headers or [()] * len(rows), strict=True)
        ]

    before, middle = read(0), read(123)
    reading = log.read("orders", 0, 0, max_records=9_000)
    batches = count(path, "batches")
    assert log.clean().batches_merged == 300
    assert count(path, "batches") == batches - 299
    assert count(path, "blobs") == count(path, "batches")
    assert read(0) == before
    assert read(123) == middle
    assert offsets(reading) == list(range(9_000))
    assert log.clean().batches_merged == 0


def test_a_merge_overtakes_a_reader_without_harm(log: Log, clock: Clock) -> None:
    log.create_topic("orders", 1, {"retention.ms": -1})
    for begin in range(0, 16_000, 100):
        log.append("orders", 0, numbered(range(begin, begin + 100), at=clock.now))
    reading = log.read("orders", 0, 50)
    first = next(reading).columns().values
    assert log.clean().batches_merged > 0
    assert [*first, *values(reading)] == [b"%d" % n for n in range(50, 16_000)]


def test_unused_blobs_are_swept_in_time(
    opened: Callable[..., Log], clock: Clock, path: Path
) -> None:
    log = opened(unused_blob_ms=HOUR)
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


def test_space_of_deleted_topics_goes_back_to_the_file_system(log: Log, path: Path) -> None:
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


def test_only_the_topics_that_were_named_are_cleaned(log: Log, clock: Clock) -> None:
    for name in ("orders", "stores"):
        log.create_topic(name, 1, {"retention.ms": HOUR})
        log.append(name, 0, numbered([1], at=clock.now))
    clock.now += 2 * HOUR
    log.clean(["orders"])
    assert (len(pairs(log, "orders")), len(pairs(log, "stores"))) == (0, 1)
