"""Files of format 1, which have no checksums.

`files/format-1.db.gz` was written by the last version with that format. It has plain, staged and
compacted records, committed offsets, a lease, and a deleted topic.
"""

from __future__ import annotations

import gzip
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from contracts.log_records import numbered, offsets, pairs, records, values
from faults.log_damage import Original, Trial, failures, open_at, read_all, run
from penstock.log import Log, TopicPartition, open_log
from penstock.log.errors import LogDamaged, LogReadOnly
from penstock.log.types import CommittedOffset, StagedRecords, VerifyReport

OLD_FILE = Path(__file__).parent / "files" / "format-1.db.gz"
STAGED = StagedRecords(11, "b9d69178665448fb8f4c569b63962bcd", 1)


@pytest.fixture
def old(path: Path) -> Path:
    path.write_bytes(gzip.decompress(OLD_FILE.read_bytes()))
    return path


def check_contents(log: Log) -> None:
    assert log.id == "75d872ad001a4c0891f588db69081254"
    assert [(topic.name, topic.id[-2:]) for topic in log.topics()] == [
        ("orders", "-2"), ("table", "-3")]
    assert pairs(log, "orders") == [(b"a", b"1"), (b"b", None), (None, b"3"), (b"c", b"4")]
    first, *_ = log.read("orders", 0, 0)
    assert first.columns().headers == [(("h", b"x"),), (), (), ()]
    assert log.offsets([("orders", 1), ("table", 0)]) == {
        ("orders", 1): (10, 2000, 0), ("table", 0): (0, 8, 8)}
    assert values(log.read("orders", 1, 10)) == [b"value %d" % n for n in range(10, 2000)]
    assert offsets(log.read("table", 0, 0)) == [2, 5, 6]
    reader = log.read("table", 0, 7)
    assert list(reader) == []
    assert reader.position == 8
    assert log.groups() == ["app", "other"]
    assert log.committed("app") == {("orders", 0): (2, ""), ("orders", 1): (1500, "")}
    assert log.committed("other") == {("table", 0): CommittedOffset(3, "µ note")}
    assert log.offset_for_time("orders", 1, 700) == (700, 700)


def version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])


def test_old_file_has_its_contents_after_the_upgrade(old: Path) -> None:
    for _ in range(2):
        with open_log(old) as log:
            check_contents(log)
        assert version(old) == 2


def test_reader_does_not_change_an_old_file(old: Path) -> None:
    before = old.read_bytes()
    with open_log(old, read_only=True) as log:
        check_contents(log)
        assert log.verify_metadata() == []
        assert log.verify("table", 0) == VerifyReport(records=3, unchecked_batches=3)
        with pytest.raises(LogReadOnly):
            log.create_topic("new")
    assert old.read_bytes() == before
    assert version(old) == 1


def test_upgraded_file_is_as_any_other(old: Path) -> None:
    with open_log(old) as log:
        assert log.append("orders", 0, STAGED).base_offset == 4
        assert pairs(log, "orders")[-1] == (b"s", b"staged")
        assert log.take_lease("lease").epoch == 4
        assert log.create_topic("new").id.endswith("-4")
        log.commit_offsets("app", {TopicPartition("orders", 0): 5})
        log.append("table", 0, records((b"a", b"9"), (b"d", b"10")))
        log.clean(force=True)
        assert offsets(log.read("table", 0, 0)) == [5, 8, 9]
        assert log.verify_metadata() == []


def test_old_batches_are_unchecked_until_they_are_rewritten(old: Path) -> None:
    with open_log(old) as log:
        log.append("orders", 0, numbered([1]))
        assert log.verify("orders", 0) == VerifyReport(records=5, unchecked_batches=2)
        for number in range(20):
            log.append("orders", 0, numbered([number]))
        log.clean()
        assert log.verify("orders", 0) == VerifyReport(records=25, unchecked_batches=0)


def test_new_batches_in_an_old_file_are_checked(old: Path) -> None:
    with open_log(old) as log:
        log.append("orders", 0, numbered([1]))
        with closing(sqlite3.connect(old)) as db, db:
            db.execute("UPDATE blobs SET data = zeroblob(400) WHERE id = 12")
        with pytest.raises(LogDamaged, match="Offsets 4 to 4"):
            pairs(log, "orders")


@pytest.mark.slow
def test_damage_of_an_old_file_does_not_crash_the_process(old: Path, tmp_path: Path) -> None:
    data = old.read_bytes()
    with open_at(old) as log:
        original = Original(data, read_all(log), STAGED, has_checksums=False)
    rng = random.Random(5)
    flips = [Trial("flip", rng.randrange(8 * len(data))) for _ in range(100)]
    found = run(original, tmp_path, flips)
    assert failures(found) == {}
    assert "LogDamaged" in found.values()
