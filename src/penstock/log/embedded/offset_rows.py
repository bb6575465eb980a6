"""The table `group_offsets`. The total of a group shows that one of its rows is missing."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import NamedTuple

from penstock.log.embedded import totals
from penstock.log.embedded.checksums import GROUP_OFFSETS, Damage

_SELECT = (
    'SELECT group_name, topic_id, partition, "offset", metadata, committed_ms, checksum '
    "FROM group_offsets"
)


class OffsetRow(NamedTuple):
    """A row of the table `group_offsets`, without its checksum."""

    group: str
    topic_id: int
    partition: int
    offset: int
    metadata: str
    committed_ms: int


def groups_with_offsets(db: sqlite3.Connection) -> set[str]:
    """Return the names of the groups that have committed offsets. Use one snapshot."""
    rows = db.execute("SELECT DISTINCT group_name FROM group_offsets").fetchall()
    names = {totals.group_total(name) for (name,) in rows}
    others = {totals.META, totals.TOPICS, totals.LAST_TOPIC_ID}
    found = {name for (name,) in db.execute("SELECT name FROM totals WHERE total != 0")}
    if found - others != names:
        raise Damage("The offsets of groups are damaged")
    return {name for (name,) in rows}


def read_offset_rows(db: sqlite3.Connection, group: str) -> list[OffsetRow]:
    """Return all offsets of a group. Use one snapshot."""
    rows = db.execute(f"{_SELECT} WHERE group_name = ?", (group,)).fetchall()
    fact = f"The offsets of group '{group}' are damaged"
    if not all(map(GROUP_OFFSETS.matches, rows)):
        raise Damage(fact)
    totals.check_total(db, totals.group_total(group), (row[-1] for row in rows), fact)
    return [OffsetRow._make(row[:-1]) for row in rows]


def write_offset_rows(db: sqlite3.Connection, group: str, rows: Iterable[OffsetRow]) -> None:
    """Insert or replace rows of a group, inside a write transaction."""
    old = {
        (topic_id, partition): checksum
        for topic_id, partition, checksum in db.execute(
            "SELECT topic_id, partition, checksum FROM group_offsets WHERE group_name = ?", (group,)
        )
    }
    written = [(*row, GROUP_OFFSETS.of(row)) for row in rows]
    db.executemany("INSERT OR REPLACE INTO group_offsets VALUES (?, ?, ?, ?, ?, ?, ?)", written)
    # A partition may occur once only: the caller has a mapping.
    difference = sum(row[-1] - old.get(row[1:3], 0) for row in written)
    totals.add_to_total(db, totals.group_total(group), difference)


def delete_offsets_of_topic(db: sqlite3.Connection, topic_id: int) -> None:
    """Delete the offsets that groups have committed for a topic."""
    rows = db.execute(
        "SELECT group_name, checksum FROM group_offsets WHERE topic_id = ?", (topic_id,)
    ).fetchall()
    db.execute("DELETE FROM group_offsets WHERE topic_id = ?", (topic_id,))
    for group, checksum in rows:
        totals.add_to_total(db, totals.group_total(group), -checksum)


def delete_offsets_of_group(db: sqlite3.Connection, group: str) -> None:
    """Delete all offsets of a group."""
    db.execute("DELETE FROM group_offsets WHERE group_name = ?", (group,))
    totals.delete_total(db, totals.group_total(group))
