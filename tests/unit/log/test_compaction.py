"""Compaction keeps the newest record of each key, recent tombstones, and all offsets."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from contracts.log_records import Pair, pairs, records
from penstock.log import Log, TopicPartition
from unit.log.conftest import Clock

P0 = TopicPartition("table", 0)
DAY = 86_400_000


def create(log: Log, **config: object) -> None:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    log.create_topic("table", 1, {"cleanup.policy": "compact", **settings})


def contents(log: Log) -> dict[int, Pair]:
    start = log.offsets([P0])[P0].start
    return {
        offset: (key, value)
        for batch in log.read("table", 0, start)
        for columns in [batch.columns()]
        for offset, key, value in zip(columns.offsets, columns.keys, columns.values, strict=True)
    }


def test_newest_record_of_each_key_keeps_its_offset(log: Log, clock: Clock) -> None:
    create(log)
    log.append("table", 0, records((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), at=clock.now))
    log.append("table", 0, records((b"c", b"1"), (b"b", b"2"), at=clock.now))
    report = log.clean()
    assert report.records_compacted == 2
    assert contents(log) == {2: (b"a", b"2"), 3: (b"c", b"1"), 4: (b"b", b"2")}
    assert log.offsets([P0])[P0] == (0, 5, 0)
    reader = log.read("table", 0, 0, 2)
    assert list(reader) == []
    assert reader.position == 2
    log.append("table", 0, records((b"a", b"3"), at=clock.now))
    log.clean(force=True)
    assert contents(log) == {3: (b"c", b"1"), 4: (b"b", b"2"), 5: (b"a", b"3")}


def test_timestamps_and_headers_are_kept(log: Log, clock: Clock) -> None:
    create(log)
    columns = records((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), at=clock.now)
    log.append("table", 0, replace(
        columns, timestamps=[clock.now, clock.now + 1, clock.now + 2],
        headers=[[], [("h", b"x")], []],
    ))
    log.clean()
    (batch,) = log.read("table", 0, 0)
    assert batch.columns().timestamps == [clock.now + 1, clock.now + 2]
    assert batch.columns().headers == [(("h", b"x"),), ()]


def test_removed_tombstones_are_reported_to_readers(log: Log, clock: Clock) -> None:
    create(log, delete_retention_ms=DAY)
    log.append("table", 0, records((b"a", b"1"), (b"b", b"1"), at=clock.now))
    log.append("table", 0, records((b"a", None), at=clock.now))
    clock.now += 10 * DAY
    log.clean()
    # Its retention begins when it is compacted, not when it is written.
    assert contents(log) == {1: (b"b", b"1"), 2: (b"a", None)}
    clock.now += DAY - 1
    log.clean(force=True)
    assert 2 in contents(log)
    assert log.offsets([P0])[P0].tombstones_removed_to == 0
    clock.now += 1
    assert log.clean().records_compacted == 1
    assert contents(log) == {1: (b"b", b"1")}
    assert log.offsets([P0])[P0] == (0, 3, 3)
    (batch,) = log.read("table", 0, 0)
    assert (batch.next_offset, batch.tombstones_removed_to) == (3, 3)


def test_tombstones_are_removed_when_the_topic_is_cleaned_often(
    log: Log, clock: Clock
) -> None:
    create(log, delete_retention_ms=DAY)
    for number in range(60):
        log.append("table", 0, records((b"%d" % number, None), at=clock.now))
        log.clean(force=True)
        clock.now += DAY // 10
    assert min(contents(log)) >= 48
    assert log.offsets([P0])[P0].tombstones_removed_to >= 48


def test_overwritten_tombstone_is_not_reported(log: Log, clock: Clock) -> None:
    create(log, delete_retention_ms=0)
    log.append("table", 0, records((b"a", b"1"), (b"a", None), (b"a", b"2"), at=clock.now))
    log.clean()
    log.clean(force=True)
    assert contents(log) == {2: (b"a", b"2")}
    assert log.offsets([P0])[P0].tombstones_removed_to == 0


def test_start_and_end_stay_when_no_records_are_left(log: Log, clock: Clock) -> None:
    create(log, delete_retention_ms=0)
    log.append("table", 0, records((b"a", b"1"), (b"a", None), at=clock.now))
    log.clean()
    log.clean()
    assert contents(log) == {}
    assert log.offsets([P0])[P0] == (0, 2, 2)
    reader = log.read("table", 0, 0)
    assert list(reader) == []
    assert reader.position == 2
    assert log.append("table", 0, records((b"b", b"1"), at=clock.now)).base_offset == 2


def test_partition_below_the_dirty_ratio_is_not_compacted(log: Log, clock: Clock) -> None:
    create(log, min_cleanable_dirty_ratio=0.5)
    many = [(b"%d" % n, b"1") for n in range(100)]
    log.append("table", 0, records(*many, at=clock.now))
    log.clean()
    log.append("table", 0, records((b"1", b"2"), at=clock.now))
    assert log.clean().records_compacted == 0
    assert log.clean(force=True).records_compacted == 1


def test_records_within_the_compaction_lag_are_kept(log: Log, clock: Clock) -> None:
    create(log, min_compaction_lag_ms=DAY)
    log.append("table", 0, records((b"a", b"1"), (b"a", b"2"), at=clock.now - 2 * DAY))
    log.append("table", 0, records((b"a", b"3"), (b"a", b"4"), at=clock.now))
    log.clean()
    assert contents(log) == {1: (b"a", b"2"), 2: (b"a", b"3"), 3: (b"a", b"4")}


def test_old_records_without_a_key_are_dropped(log: Log, clock: Clock) -> None:
    log.create_topic("table")
    log.append("table", 0, records((None, b"1"), (b"a", b"1"), at=clock.now))
    log.alter_topic("table", {"cleanup.policy": "compact"})
    log.clean()
    assert contents(log) == {1: (b"a", b"1")}


def test_compact_and_delete_can_be_combined(log: Log, clock: Clock) -> None:
    create(log, retention_ms=DAY)
    log.alter_topic("table", {"cleanup.policy": "compact,delete"})
    log.append("table", 0, records((b"a", b"1"), (b"b", b"1"), at=clock.now))
    clock.now += 2 * DAY
    log.append("table", 0, records((b"b", b"2"), (b"b", b"3"), at=clock.now))
    log.clean()
    assert contents(log) == {3: (b"b", b"3")}
    assert log.offsets([P0])[P0][:2] == (2, 4)


@pytest.mark.parametrize("seed", range(6))
def test_random_history_keeps_the_newest_record_of_every_key(
    open_handle: Callable[..., Log], clock: Clock, path: Path, seed: int
) -> None:
    """Compare random appends and cleanings with a dictionary. Little memory needs many passes."""
    log = open_handle(compaction_buffer_bytes=5_000)
    rng = random.Random(seed)
    create(log, delete_retention_ms=DAY, min_cleanable_dirty_ratio=0)
    newest: dict[bytes, tuple[int, bytes | None]] = {}
    written: dict[int, Pair] = {}
    end = 0
    for _ in range(120):
        if rng.random() < 0.2:
            before = log.offsets([P0])[P0]
            log.clean()
            after = log.offsets([P0])[P0]
            assert after[:2] == before[:2]
            assert after.tombstones_removed_to >= before.tombstones_removed_to
        batch = []
        for _ in range(rng.choice((1, 1, 1, 40))):
            key = b"%d" % rng.randrange(60)
            value = None if rng.random() < 0.3 else b"%d" % end
            batch.append((key, value))
            newest[key], written[end] = (end, value), (key, value)
            end += 1
        log.append("table", 0, records(*batch, at=clock.now))
        clock.now += rng.randrange(DAY // 2)
        found = contents(log)
        assert found.items() <= written.items()
        removed_to = log.offsets([P0])[P0].tombstones_removed_to
        for key, (offset, value) in newest.items():
            if offset in found:
                assert found[offset] == (key, value)
            else:
                assert value is None, "the newest value of a key is lost"
                assert offset < removed_to
                assert all(other != key for other, _ in found.values()), "an old value has returned"
    for _ in range(2):
        log.clean(force=True)
        clock.now += 2 * DAY
    live = {(key, value) for key, (_, value) in newest.items() if value is not None}
    assert sorted(pairs(log, "table")) == sorted(live)
    db = sqlite3.connect(path)
    assert db.execute("SELECT count(*) FROM blobs").fetchone() == db.execute(
        "SELECT count(*) FROM batches WHERE records > 0").fetchone()
    db.close()
