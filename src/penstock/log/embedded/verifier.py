"""Checks a whole log, and gives up what is damaged."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

from penstock.log.embedded import schema
from penstock.log.embedded.batch_rows import (
    BATCH_COLUMNS,
    SELECT_BATCHES,
    BatchRow,
    insert_batch,
    insert_row,
    load,
)
from penstock.log.embedded.checksums import ASIDE, BATCHES, LEASES, Damage
from penstock.log.embedded.database import Database, damage_text, is_damage
from penstock.log.embedded.offset_rows import groups_with_offsets, read_offset_rows
from penstock.log.embedded.partitions import (
    PartitionKey,
    PartitionRow,
    read_partition,
    write_partition,
)
from penstock.log.embedded.topics import all_topics, find_partition, topic_names
from penstock.log.embedded.totals import check_last_topic_id
from penstock.log.types import DamagedRange, VerifyReport

_MAX_PROBLEMS = 20


class Verifier:
    """Reads everything that the log holds."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def metadata(self) -> list[str]:
        """Return the problems of the file and of everything but the records."""
        problems: list[str] = []
        with self._database.snapshot() as db:
            for (line,) in db.execute(f"PRAGMA integrity_check({_MAX_PROBLEMS})"):
                if line != "ok":
                    problems.append(f"SQLite: {line}")
            with _collect(problems):
                all_topics(db)
                check_last_topic_id(db)
            with _collect(problems):
                for group in sorted(groups_with_offsets(db)):
                    topic_names(db, {row.topic_id for row in read_offset_rows(db, group)})
            with _collect(problems):
                problems += [f"The lease '{row[0]}' is damaged" for row in _damaged_leases(db)]
                if _damaged_unreferenced(db):
                    problems.append("The list of staged records is damaged")
        return problems

    def partition(self, topic: str, partition: int) -> VerifyReport:
        """Check all batches of a partition."""
        report = VerifyReport()
        with self._database.snapshot() as db:
            _, row = find_partition(db, topic, partition)
            key = PartitionKey(row.topic_id, partition)
            batches = map(BatchRow._make, db.execute(f"{SELECT_BATCHES} ORDER BY base_offset", key))
            has_gaps = self._database.format < schema.FORMAT_VERSION
            _check_batches(db, row, batches, report, has_gaps=has_gaps)
        return report

    def drop_damaged(self, topics: Collection[str]) -> None:
        """Replace damaged batches by empty ones, and forget damaged leases and staged records.

        Builds the table of batches again, because the damage may be in its structure. The data of
        damaged batches is not deleted: its pages may belong to other tables, too.
        """
        with self._database.writing() as db:
            rows = [
                BatchRow._make(row)
                for row in db.execute(f"SELECT {', '.join(BATCH_COLUMNS)} FROM batches")
            ]
            db.execute("DROP TABLE batches")
            db.execute(schema.TABLES["batches"])
            by_key: dict[PartitionKey, list[BatchRow]] = {}
            for row in rows:
                by_key.setdefault(row.key, []).append(row)
            for topic in all_topics(db):
                for number in range(topic.partitions):
                    key = PartitionKey(topic.id, number)
                    batches = by_key.get(key, [])
                    if topic.name in topics:
                        _keep_intact(db, key, batches)
                    else:
                        for batch in batches:
                            insert_row(db, batch)
            for name, *_ in _damaged_leases(db):
                db.execute("DELETE FROM leases WHERE name = ?", (name,))
            for blob_id, *_ in _damaged_unreferenced(db):
                db.execute("DELETE FROM aside WHERE blob_id = ?", (blob_id,))


@contextmanager
def _collect(problems: list[str]) -> Iterator[None]:
    """Add the damage that the block finds."""
    try:
        yield
    except Damage as damage:
        problems.append(damage.fact)
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        problems.append(f"SQLite: {damage_text(error)}")


def _check_batches(
    db: sqlite3.Connection, partition: PartitionRow, batches: Iterable[BatchRow],
    report: VerifyReport, *, has_gaps: bool = False,
) -> list[BatchRow]:
    """Add the damage of a partition to the report, and return its intact batches."""
    intact: list[BatchRow] = []
    position = partition.start
    is_first, bad_row = True, False
    for row in batches:
        if not BATCHES.matches(row) or (row.base < position and not is_first):
            # The row cannot be trusted. The offsets that it covered are missing.
            bad_row = True
            continue
        if row.base > position and not has_gaps:
            report.damaged.append(_missing(position, row.base, bad_row))
        is_first = bad_row = False
        position = row.last + 1
        problem = _data_problem(db, row)
        if problem is not None:
            report.damaged.append(DamagedRange(row.base, row.last, problem))
            continue
        intact.append(row)
        report.records += row.records
        report.unchecked_batches += row.records > 0 and row.data_checksum is None
    if position < partition.end and not has_gaps:
        report.damaged.append(_missing(position, partition.end, bad_row))
    return intact


def _data_problem(db: sqlite3.Connection, row: BatchRow) -> str | None:
    try:
        load(db, row)
    except Damage as damage:
        return damage.problem
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        return damage_text(error)
    return None


def _missing(first: int, end: int, bad_row: bool) -> DamagedRange:
    problem = "the checksum of the row differs" if bad_row else "their batches are missing"
    return DamagedRange(first, end - 1, problem)


def _keep_intact(db: sqlite3.Connection, key: PartitionKey, batches: list[BatchRow]) -> None:
    """Insert the intact batches of a partition, and empty ones for the rest."""
    try:
        partition = read_partition(db, *key)
        assert partition is not None
    except Damage:
        partition = _rebuild_partition(db, key, batches)
        write_partition(db, partition)
    report = VerifyReport()
    for row in _check_batches(db, partition, batches, report):
        insert_row(db, row)
    for damaged in report.damaged:
        insert_batch(db, key, damaged[:2], None)


def _rebuild_partition(
    db: sqlite3.Connection, key: PartitionKey, batches: list[BatchRow]
) -> PartitionRow:
    """Derive the offsets of a partition from its batches and the committed offsets.

    `tombstones_removed_to` is the end, so that all state is built again.
    """
    found = [row for row in batches if BATCHES.matches(row)]
    (committed,) = db.execute(
        'SELECT coalesce(max("offset"), 0) FROM group_offsets WHERE topic_id = ? AND partition = ?',
        key,
    ).fetchone()
    end = max([committed, *(row.last + 1 for row in found)])
    start = min((row.base for row in found), default=end)
    return PartitionRow(*key, start, end, end, start)


def _damaged_leases(db: sqlite3.Connection) -> list[tuple[object, ...]]:
    rows = db.execute("SELECT name, epoch, beat, held, holder, checksum FROM leases")
    return [row for row in rows if not LEASES.matches(row)]


def _damaged_unreferenced(db: sqlite3.Connection) -> list[tuple[object, ...]]:
    rows = db.execute("SELECT blob_id, token, created_ms, facts, checksum FROM aside")
    return [row for row in rows if not ASIDE.matches(row)]
