"""Damage of an embedded log is reported, and never read as records."""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from contracts.log_records import NOW, numbered, pairs, records, values
from faults.log_damage import damage_log, failures
from penstock.engine.packaging.failure import user_traceback
from penstock.log import Log, TopicPartition, open_log
from penstock.log.errors import LogDamaged
from penstock.log.types import CommittedOffset, DamagedRange

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.fixture
def log(path: Path) -> Iterator[Log]:
    """A log with three batches, committed offsets, a lease and staged records."""
    with open_log(path) as log:
        log.create_topic("orders", 2)
        for begin in (0, 10, 20):
            log.append("orders", 0, numbered(range(begin, begin + 10)))
        log.append("orders", 1, numbered(range(40, 50)))
        log.commit_offsets("app", {ORDERS: 5, TopicPartition("orders", 1): 7})
        yield log


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        assert db.execute(statement).rowcount > 0


@pytest.mark.slow
def test_random_damage_of_a_file_is_noticed(tmp_path: Path) -> None:
    found = damage_log(tmp_path, flips=120, areas=20, seed=3)
    assert failures(found) == {}
    assert sum(outcome == "LogDamaged" for outcome in found.values()) > 40


def read_orders(log: Log) -> None:
    values(log.read("orders", 0, 0))


def read_last_batch(log: Log) -> None:
    values(log.read("orders", 0, 25))


def read_committed(log: Log) -> None:
    log.committed("app")


def append(log: Log) -> None:
    log.append("orders", 0, numbered([1]))


def read_topics(log: Log) -> None:
    log.topics()


def read_topic(log: Log) -> None:
    log.topic("orders")


def create_topic(log: Log) -> None:
    log.create_topic(f"topic-{len(log.topics())}")


def find_time(log: Log) -> None:
    log.offset_for_time("orders", 0, NOW + 1)


@pytest.mark.parametrize(("statement", "operation"), [
    ("UPDATE blobs SET data = data || x'00' WHERE id = 2", read_orders),
    ("UPDATE blobs SET layout = 2 WHERE id = 2", read_orders),
    ("UPDATE blobs SET data = 'text' WHERE id = 2", read_orders),
    ("DELETE FROM blobs WHERE id = 2", read_orders),
    ("UPDATE batches SET records = 9 WHERE base_offset = 10", read_orders),
    ("UPDATE batches SET append_time = 1 WHERE base_offset = 10", read_orders),
    ("UPDATE batches SET blob_id = 1 WHERE base_offset = 10", read_orders),
    ("UPDATE batches SET data_checksum = NULL WHERE base_offset = 10", read_orders),
    ("UPDATE batches SET max_timestamp = 'late' WHERE base_offset = 10", read_orders),
    ("UPDATE batches SET base_offset = 15 WHERE base_offset = 10", read_orders),
    ("UPDATE batches SET partition = 5 WHERE base_offset = 10", read_orders),
    ("DELETE FROM batches WHERE partition = 0 AND base_offset = 0", read_orders),
    ("DELETE FROM batches WHERE base_offset = 10", read_orders),
    ("DELETE FROM batches WHERE base_offset = 20", read_orders),
    ("DELETE FROM batches WHERE base_offset = 20", read_last_batch),
    ("DELETE FROM batches WHERE base_offset = 20", find_time),
    ("UPDATE batches SET max_timestamp = 1 WHERE base_offset = 20", find_time),
    ('UPDATE partitions SET "end" = 20 WHERE partition = 0', append),
    ('UPDATE partitions SET "end" = 20 WHERE partition = 0', read_orders),
    ("UPDATE partitions SET start = 1 WHERE partition = 0", read_orders),
    ("DELETE FROM partitions WHERE partition = 0", read_orders),
    ("DELETE FROM partitions WHERE partition = 0", append),
    ('UPDATE group_offsets SET "offset" = 4 WHERE partition = 0', read_committed),
    ("UPDATE group_offsets SET metadata = 'x' WHERE partition = 0", read_committed),
    ("DELETE FROM group_offsets WHERE partition = 0", read_committed),
    ("DELETE FROM group_offsets", read_committed),
    ("UPDATE group_offsets SET group_name = 'other'", read_committed),
    ("UPDATE topics SET partitions = 1", read_topic),
    ("UPDATE topics SET config = '{\"retention.ms\": \"1\"}'", append),
    ("UPDATE topics SET name = 'order'", read_topic),
    ("DELETE FROM topics", read_topics),
    ("DELETE FROM topics", read_topic),
    ("UPDATE sqlite_sequence SET seq = seq - 1", create_topic),
    ("UPDATE totals SET total = total + 1 WHERE name = 'topics'", read_topics),
])
def test_changed_or_missing_row_is_damage(
    log: Log, path: Path, statement: str, operation: Callable[[Log], None]
) -> None:
    operation(log)
    change(path, statement)
    with pytest.raises(LogDamaged):
        operation(log)


def test_error_names_topic_partition_and_offsets(log: Log, path: Path) -> None:
    change(path, "UPDATE blobs SET data = zeroblob(400) WHERE id = 2")
    with pytest.raises(LogDamaged) as caught:
        read_orders(log)
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.topic, error.partition, error.offsets) == ("orders", 0, (10, 19))
    assert str(error) == (
        "Offsets 10 to 19 of 'orders' [0] are damaged (the checksum of the data differs) in the "
        f"log '{path}'.\n"
        f"`penstock topics verify --log {path}` lists all damage.\n"
        "Restore the file from a backup, or give up the damaged records with "
        f"`penstock topics verify --drop-damaged --log {path}`."
    )
    assert not error.may_pass


def test_damage_that_sqlite_finds_has_offsets_and_no_data(log: Log, path: Path) -> None:
    change(path, "UPDATE blobs SET data = CAST(x'ff41' AS TEXT) WHERE id = 2")
    with pytest.raises(LogDamaged, match=r"Offsets 10 to 29 .* \(a text is not UTF-8\)") as caught:
        read_orders(log)
    assert caught.value.offsets == (10, 29)


def test_failure_of_a_task_has_no_traceback_for_damage(log: Log, path: Path) -> None:
    change(path, "UPDATE blobs SET data = zeroblob(400) WHERE id = 2")
    with pytest.raises(LogDamaged) as caught:
        read_orders(log)
    assert user_traceback(caught.value) == ""


def test_records_before_and_after_the_damage_are_readable(log: Log, path: Path) -> None:
    change(path, "UPDATE blobs SET data = zeroblob(400) WHERE id = 2")
    assert len(values(log.read("orders", 0, 0, 10))) == 10
    assert len(values(log.read("orders", 0, 20))) == 10
    assert len(pairs(log, "orders", 1)) == 10


def test_exchanged_batches_are_damage(log: Log, path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE batches SET base_offset = -1 WHERE base_offset = 10")
        db.execute("UPDATE batches SET base_offset = 10, last_offset = 19 WHERE base_offset = 20")
        db.execute("UPDATE batches SET base_offset = 20, last_offset = 29 WHERE base_offset = -1")
    with pytest.raises(LogDamaged, match="Offsets 10 to 19"):
        read_orders(log)


def test_damaged_lease_is_reported(log: Log, path: Path) -> None:
    lease = log.take_lease("app")
    change(path, "UPDATE leases SET epoch = 0")
    with pytest.raises(LogDamaged, match="lease 'app'"):
        lease.renew()
    with pytest.raises(LogDamaged, match="lease 'app'"), log.transaction(lease) as transaction:
        transaction.append("orders", 0, numbered([1]))


def test_damaged_staged_records_are_not_appended(log: Log, path: Path) -> None:
    (staged,) = log.stage_records(numbered(range(5)))
    change(path, "UPDATE aside SET facts = replace(facts, '5', '6')")
    with pytest.raises(LogDamaged, match="staged records"):
        log.append("orders", 0, staged)


def test_damaged_data_of_staged_records_is_noticed_by_readers(log: Log, path: Path) -> None:
    (staged,) = log.stage_records(numbered(range(5)))
    change(path, f"UPDATE blobs SET data = zeroblob(400) WHERE id = {staged.id}")
    log.append("orders", 0, staged)
    with pytest.raises(LogDamaged, match="Offsets 30 to 34"):
        values(log.read("orders", 0, 30))


def test_damaged_definition_of_a_table_is_noticed_at_the_opening(log: Log, path: Path) -> None:
    log.close()
    data = path.read_bytes()
    path.write_bytes(data.replace(b"bytes INTEGER", b"bytes IMTEGER"))
    with pytest.raises(LogDamaged, match="definition of the table 'batches'"):
        open_log(path)


def test_retention_does_not_hide_damage(path: Path) -> None:
    now = [NOW]
    with open_log(path, clock=lambda: now[0]) as log:
        log.create_topic("orders", 1, {"retention.ms": 1000})
        log.append("orders", 0, numbered([1], at=NOW))
        change(path, "UPDATE batches SET max_timestamp = 1")
        with pytest.raises(LogDamaged):
            log.clean()


def test_compaction_does_not_hide_damage(path: Path) -> None:
    with open_log(path) as log:
        log.create_topic("table", 1, {"cleanup.policy": "compact"})
        for number in range(3):
            log.append("table", 0, records((b"k", b"%d" % number)))
        change(path, "UPDATE blobs SET data = zeroblob(400) WHERE id = 2")
        with pytest.raises(LogDamaged, match="Offsets 1 to 1"):
            log.clean(force=True)


def test_verify_finds_all_damage_and_drops_it(log: Log, path: Path) -> None:
    assert log.verify("orders", 0).damaged == []
    assert log.verify_metadata() == []
    log.take_lease("app")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE blobs SET data = zeroblob(400) WHERE id = 1")
        db.execute("UPDATE batches SET bytes = 1 WHERE base_offset = 20")
        db.execute('UPDATE partitions SET "end" = 1000 WHERE partition = 1')
        db.execute("UPDATE leases SET epoch = 7")
    report = log.verify("orders", 0)
    assert report.records == 10
    assert report.damaged == [
        DamagedRange(0, 9, "the checksum of the data differs"),
        DamagedRange(20, 29, "the checksum of the row differs"),
    ]
    with pytest.raises(LogDamaged, match=r"start and end of 'orders' \[1\]"):
        log.verify("orders", 1)
    assert log.verify_metadata() == ["The lease 'app' is damaged"]

    log.drop_damaged(["orders"])
    assert [log.verify("orders", number).damaged for number in (0, 1)] == [[], []]
    assert log.verify_metadata() == []
    assert values(log.read("orders", 0, 0)) == [b"%d" % n for n in range(10, 20)]
    assert log.offsets([ORDERS, ("orders", 1)]) == {
        ORDERS: (0, 30, 0), TopicPartition("orders", 1): (0, 10, 10),
    }
    assert log.append("orders", 0, numbered([1])).base_offset == 30
    assert log.committed("app")[ORDERS] == CommittedOffset(5)


def test_dropping_leaves_other_topics_as_they_are(log: Log, path: Path) -> None:
    log.create_topic("other")
    log.append("other", 0, numbered([1]))
    change(path, "UPDATE batches SET bytes = bytes + 1 WHERE base_offset = 0")
    log.drop_damaged(["orders"])
    assert len(log.verify("orders", 0).damaged) == 0
    assert len(log.verify("other", 0).damaged) == 1
