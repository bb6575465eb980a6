"""Detects missing batches: the batches of a partition cover every offset."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.log.embedded.batch_rows import BatchRow, check_row, damaged_offsets
from penstock.log.embedded.database import Database, damage_text, is_damage
from penstock.log.embedded.partitions import PartitionKey
from penstock.log.embedded.schema import FORMAT_VERSION


class Continuity:
    """Follows the batches of a partition from a position on, and checks their rows."""

    def __init__(self, database: Database, key: PartitionKey, position: int) -> None:
        # In format 1 compaction leaves gaps.
        self._allows_gaps = database.format < FORMAT_VERSION
        self._key = key
        self._position = position
        self._is_first = True

    @contextmanager
    def locate_damage(self, db: sqlite3.Connection, end: int) -> Iterator[None]:
        """Name the offsets that were not read yet if SQLite finds damage."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            offsets = (self._position, end - 1)
            raise damaged_offsets(db, self._key, offsets, damage_text(error)) from error

    def add(self, db: sqlite3.Connection, row: BatchRow) -> None:
        """Check the next batch. Only the first one may begin before the position."""
        check_row(db, row)
        if row.base != self._position:
            if row.base > self._position:
                self.end(db, row.base)
            elif not self._is_first:
                raise damaged_offsets(db, self._key, (row.base, row.last), "batches overlap")
        self._is_first = False
        self._position = row.last + 1

    def end(self, db: sqlite3.Connection, end: int) -> None:
        """Raise `Damage` unless the batches reach the end."""
        if self._position < end and not self._allows_gaps:
            raise damaged_offsets(
                db, self._key, (self._position, end - 1), "their batches are missing"
            )
