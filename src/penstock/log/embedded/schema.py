"""The format of the file, version 2. `upgrade.py` converts version 1, which has no checksums.

Every transaction keeps these invariants:
- `start`, `end`, `tombstones_removed_to` and `cleaned_to` of a partition never decrease.
- The batches of a partition cover every offset from start to end once. A batch without the layout
  bit `OFFSETS` holds every offset from base to last; an empty batch has the blob id 0 and no blob.
- Every blob belongs to exactly one batch, or is listed in `aside`: it is staged, or unused.
- Every `checksum` is that of the other columns of its row, see `checksums.py`.
- A rewrite of a batch inserts the new blob before it deletes the old one. So the blob id of a batch
  only grows, and an unchanged id means an unchanged batch.
- The epoch of a lease only grows, and its row is never deleted.
"""

from __future__ import annotations

import sqlite3
import uuid

from penstock.log.embedded import checksums, totals
from penstock.log.embedded.checksums import Damage
from penstock.log.errors import NewerFormat, NotALog

APPLICATION_ID = 0x70656E73
FORMAT_VERSION = 2
#: Large enough for blobs, small enough for commits of one record.
PAGE_BYTES = 16_384

#: Table -> the statement that creates it. The file stores the same text.
TABLES = {
    "meta": "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    # 'meta', 'topics' or 'group:NAME' -> the sum of the checksums of these rows; 'last topic id'.
    "totals": "CREATE TABLE totals (name TEXT PRIMARY KEY, total INTEGER NOT NULL) WITHOUT ROWID",
    "topics": """CREATE TABLE topics (
        id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE,
        partitions INTEGER NOT NULL, config TEXT NOT NULL, checksum INTEGER NOT NULL)""",
    "partitions": """CREATE TABLE partitions (
        topic_id INTEGER NOT NULL, partition INTEGER NOT NULL,
        start INTEGER NOT NULL, "end" INTEGER NOT NULL, tombstones_removed_to INTEGER NOT NULL,
        -- Compaction has seen every record below.
        cleaned_to INTEGER NOT NULL, checksum INTEGER NOT NULL,
        PRIMARY KEY (topic_id, partition)) WITHOUT ROWID""",
    # An Arrow IPC record batch message; layout: its columns.
    "blobs":
        "CREATE TABLE blobs (id INTEGER PRIMARY KEY, layout INTEGER NOT NULL, data BLOB NOT NULL)",
    "batches": """CREATE TABLE batches (
        topic_id INTEGER NOT NULL, partition INTEGER NOT NULL,
        base_offset INTEGER NOT NULL, last_offset INTEGER NOT NULL,
        records INTEGER NOT NULL, bytes INTEGER NOT NULL,
        min_timestamp INTEGER NOT NULL, max_timestamp INTEGER NOT NULL,
        -- The timestamp of all its records, if not those in the blob.
        append_time INTEGER,
        -- From when on its tombstones may go; null: it has none, or was not compacted yet.
        delete_horizon INTEGER,
        blob_id INTEGER NOT NULL,
        -- Of the blob and its layout; null: written in format 1.
        data_checksum INTEGER, checksum INTEGER NOT NULL,
        PRIMARY KEY (topic_id, partition, base_offset)) WITHOUT ROWID""",
    # Blobs without a batch. facts: the `BatchInfo` of staged records, empty for unused blobs.
    "aside": """CREATE TABLE aside (
        blob_id INTEGER PRIMARY KEY, token TEXT NOT NULL, created_ms INTEGER NOT NULL,
        facts TEXT NOT NULL, checksum INTEGER NOT NULL)""",
    "group_offsets": """CREATE TABLE group_offsets (
        group_name TEXT NOT NULL, topic_id INTEGER NOT NULL, partition INTEGER NOT NULL,
        "offset" INTEGER NOT NULL, metadata TEXT NOT NULL, committed_ms INTEGER NOT NULL,
        checksum INTEGER NOT NULL,
        PRIMARY KEY (group_name, topic_id, partition)) WITHOUT ROWID""",
    # version grows with every change that members must notice, generation with every assignment.
    # divided: the inputs of the last assignment.
    "groups": """CREATE TABLE groups (
        name TEXT PRIMARY KEY, generation INTEGER NOT NULL, version INTEGER NOT NULL,
        divided TEXT NOT NULL DEFAULT '') WITHOUT ROWID""",
    "members": """CREATE TABLE members (
        group_name TEXT NOT NULL, member_id TEXT NOT NULL, token TEXT NOT NULL,
        client_id TEXT NOT NULL, topics TEXT NOT NULL, strategy TEXT NOT NULL,
        session_timeout_ms INTEGER NOT NULL, beat INTEGER NOT NULL, seen_ms INTEGER NOT NULL,
        owned TEXT NOT NULL, target TEXT NOT NULL,
        PRIMARY KEY (group_name, member_id)) WITHOUT ROWID""",
    "leases": """CREATE TABLE leases (
        name TEXT PRIMARY KEY, epoch INTEGER NOT NULL, beat INTEGER NOT NULL,
        held INTEGER NOT NULL, holder TEXT NOT NULL, checksum INTEGER NOT NULL) WITHOUT ROWID""",
}


def is_empty(db: sqlite3.Connection) -> bool:
    """Return whether the file has no tables and no application id."""
    return (
        _pragma(db, "application_id") == 0
        and db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    )


def check(db: sqlite3.Connection, path: str) -> None:
    """Raise `NotALog`, `NewerFormat` or `Damage` if this version cannot use the file."""
    if _pragma(db, "application_id") != APPLICATION_ID:
        raise NotALog(f"'{path}' is an SQLite file, but not a penstock log. Use another path.")
    version = version_of(db)
    if version > FORMAT_VERSION:
        raise NewerFormat(
            f"'{path}' has format {version}; this penstock supports formats up to "
            f"{FORMAT_VERSION}. Install a newer version."
        )
    if version < 1 or db.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        raise Damage("The header is damaged")
    if version == FORMAT_VERSION:
        found = dict(db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'"))
        for table, statement in TABLES.items():
            if found.get(table) != statement:
                raise Damage(f"The definition of the table '{table}' is damaged")


def prepare(db: sqlite3.Connection) -> None:
    """Set what must be set before the first table of a new file."""
    db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    db.execute("PRAGMA auto_vacuum = INCREMENTAL")


def create(db: sqlite3.Connection) -> None:
    """Create all tables, inside a write transaction."""
    for statement in TABLES.values():
        db.execute(statement)
    db.execute("INSERT INTO meta VALUES ('id', ?)", (uuid.uuid4().hex,))
    write_id_total(db)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    write_version(db)


def write_id_total(db: sqlite3.Connection) -> None:
    """Store the checksum of the id."""
    row = db.execute("SELECT name, value FROM meta").fetchone()
    totals.add_to_total(db, totals.META, checksums.META.of(row))


def write_version(db: sqlite3.Connection) -> None:
    """Store the format version, inside a write transaction."""
    db.execute(f"PRAGMA user_version = {FORMAT_VERSION}")


def version_of(db: sqlite3.Connection) -> int:
    """Return the format version of the file."""
    return _pragma(db, "user_version")


def read_id(db: sqlite3.Connection) -> str:
    """Return the id of the log."""
    rows = db.execute("SELECT name, value FROM meta").fetchall()
    totals.check_total(db, totals.META, map(checksums.META.of, rows), "The id is damaged")
    return str(rows[0][1])


def _pragma(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])
