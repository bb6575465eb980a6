"""The format of the file, version 1.

Every transaction keeps these invariants:
- `start`, `end`, `tombstones_removed_to` and `cleaned_to` of a partition never decrease.
- Batches of a partition do not overlap. A batch without the layout bit `OFFSETS` holds every offset
  from base to last.
- Every blob belongs to exactly one batch, or is listed in `aside`: it is staged, or unused.
- A rewrite of a batch inserts the new blob before it deletes the old one. So the blob id of a batch
  only grows, and an unchanged id means an unchanged batch.
- The epoch of a lease only grows, and its row is never deleted.
"""

from __future__ import annotations

import sqlite3
import uuid

from penstock.log.errors import NewerFormat, NotALog

APPLICATION_ID = 0x70656E73
FORMAT_VERSION = 1
#: Large enough for blobs, small enough for commits of one record.
PAGE_BYTES = 16_384

_TABLES = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    """CREATE TABLE topics (
        id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE,
        partitions INTEGER NOT NULL, config TEXT NOT NULL)""",
    """CREATE TABLE partitions (
        topic_id INTEGER NOT NULL, partition INTEGER NOT NULL,
        start INTEGER NOT NULL DEFAULT 0, "end" INTEGER NOT NULL DEFAULT 0,
        tombstones_removed_to INTEGER NOT NULL DEFAULT 0,
        -- Compaction has seen every record below.
        cleaned_to INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (topic_id, partition)) WITHOUT ROWID""",
    # An Arrow IPC record batch message; layout: its columns.
    "CREATE TABLE blobs (id INTEGER PRIMARY KEY, layout INTEGER NOT NULL, data BLOB NOT NULL)",
    """CREATE TABLE batches (
        topic_id INTEGER NOT NULL, partition INTEGER NOT NULL,
        base_offset INTEGER NOT NULL, last_offset INTEGER NOT NULL,
        records INTEGER NOT NULL, bytes INTEGER NOT NULL,
        min_timestamp INTEGER NOT NULL, max_timestamp INTEGER NOT NULL,
        -- The timestamp of all its records, if not those in the blob.
        append_time INTEGER,
        -- From when on its tombstones may go; null: it has none, or was not compacted yet.
        delete_horizon INTEGER,
        blob_id INTEGER NOT NULL,
        PRIMARY KEY (topic_id, partition, base_offset)) WITHOUT ROWID""",
    # Blobs without a batch. facts: the `BatchInfo` of staged records, empty for unused blobs.
    """CREATE TABLE aside (
        blob_id INTEGER PRIMARY KEY, token TEXT NOT NULL, created_ms INTEGER NOT NULL,
        facts TEXT NOT NULL)""",
    """CREATE TABLE group_offsets (
        group_name TEXT NOT NULL, topic_id INTEGER NOT NULL, partition INTEGER NOT NULL,
        "offset" INTEGER NOT NULL, metadata TEXT NOT NULL, committed_ms INTEGER NOT NULL,
        PRIMARY KEY (group_name, topic_id, partition)) WITHOUT ROWID""",
    # version grows with every change that members must notice, generation with every assignment.
    # divided: the inputs of the last assignment.
    """CREATE TABLE groups (
        name TEXT PRIMARY KEY, generation INTEGER NOT NULL, version INTEGER NOT NULL,
        divided TEXT NOT NULL DEFAULT '') WITHOUT ROWID""",
    """CREATE TABLE members (
        group_name TEXT NOT NULL, member_id TEXT NOT NULL, token TEXT NOT NULL,
        client_id TEXT NOT NULL, topics TEXT NOT NULL, strategy TEXT NOT NULL,
        session_timeout_ms INTEGER NOT NULL, beat INTEGER NOT NULL, seen_ms INTEGER NOT NULL,
        owned TEXT NOT NULL, target TEXT NOT NULL,
        PRIMARY KEY (group_name, member_id)) WITHOUT ROWID""",
    """CREATE TABLE leases (
        name TEXT PRIMARY KEY, epoch INTEGER NOT NULL, beat INTEGER NOT NULL,
        held INTEGER NOT NULL, holder TEXT NOT NULL) WITHOUT ROWID""",
)


def is_empty(db: sqlite3.Connection) -> bool:
    """Return whether the file has no tables and no application id."""
    return (
        _pragma(db, "application_id") == 0
        and db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    )


def check(db: sqlite3.Connection, path: str) -> None:
    """Raise `NotALog` or `NewerFormat` if this version cannot use the file."""
    if _pragma(db, "application_id") != APPLICATION_ID:
        raise NotALog(f"'{path}' is an SQLite file, but not a penstock log. Use another path.")
    version = _pragma(db, "user_version")
    if version > FORMAT_VERSION:
        raise NewerFormat(
            f"'{path}' has format {version}; this penstock supports formats up to "
            f"{FORMAT_VERSION}. Install a newer version."
        )


def prepare(db: sqlite3.Connection) -> None:
    """Set what must be set before the first table of a new file."""
    db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    db.execute("PRAGMA auto_vacuum = INCREMENTAL")


def create(db: sqlite3.Connection) -> None:
    """Create all tables, inside a write transaction."""
    for statement in _TABLES:
        db.execute(statement)
    db.execute("INSERT INTO meta VALUES ('id', ?)", (uuid.uuid4().hex,))
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {FORMAT_VERSION}")


def _pragma(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])
