"""The table `totals`: sums of row checksums, which show that a row is missing."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from penstock.log.embedded.checksums import Damage

META = "meta"
TOPICS = "topics"
#: The largest id of a topic so far. SQLite keeps it, too, without a checksum.
LAST_TOPIC_ID = "last topic id"
_GROUP_PREFIX = "group:"


def group_total(group: str) -> str:
    """Return the name of the total of a group's offsets."""
    return f"{_GROUP_PREFIX}{group}"


def add_to_total(db: sqlite3.Connection, name: str, difference: int) -> None:
    """Add the checksum of a new row, or subtract that of a deleted one."""
    db.execute(
        "INSERT INTO totals VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET total = total + ?",
        (name, difference, difference),
    )


def check_last_topic_id(db: sqlite3.Connection) -> None:
    """Raise `Damage` if SQLite would give the id of a deleted topic to a new one."""
    (last,) = db.execute(
        "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'topics'"
    ).fetchone()
    check_total(db, LAST_TOPIC_ID, [last], "The counter of topic ids is damaged")


def delete_total(db: sqlite3.Connection, name: str) -> None:
    """Forget a total, after all its rows are deleted."""
    db.execute("DELETE FROM totals WHERE name = ?", (name,))


def check_total(
    db: sqlite3.Connection, name: str, checksums: Iterable[int], fact: str
) -> None:
    """Raise `Damage` unless these are the checksums of all rows. Use one snapshot for both."""
    row = db.execute("SELECT total FROM totals WHERE name = ?", (name,)).fetchone()
    if sum(checksums) != (0 if row is None else row[0]):
        raise Damage(fact)
