"""Leases. A lease has a name, an epoch that only grows, and a counter of its holder's renewals.

The grant of a writer is a row of its own, named after the lease, the epoch and a serial number. The
row exists until the writer is fenced, or until a new holder takes the lease.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from typing import NamedTuple

from penstock.log.base import Candidate, Lease
from penstock.log.embedded.checksums import LEASES, Damage
from penstock.log.embedded.database import Database
from penstock.log.errors import Fenced
from penstock.log.types import WriterGrant


class _LeaseRow(NamedTuple):
    """A row of the table `leases`, without its checksum."""

    name: str
    epoch: int = 0
    #: Grows with every renewal.
    beat: int = 0
    held: int = 0
    holder: str = ""


def _find(db: sqlite3.Connection, name: str) -> _LeaseRow:
    row = db.execute(
        "SELECT name, epoch, beat, held, holder, checksum FROM leases WHERE name = ?", (name,)
    ).fetchone()
    if row is None:
        return _LeaseRow(name)
    if not LEASES.matches(row):
        raise Damage(f"The lease '{name}' is damaged")
    return _LeaseRow._make(row[:-1])


def _write(db: sqlite3.Connection, row: _LeaseRow) -> None:
    db.execute("INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?, ?)", (*row, LEASES.of(row)))


def check_lease(db: sqlite3.Connection, name: str, epoch: int) -> _LeaseRow:
    """Raise `Fenced` unless the lease is held, inside a write transaction."""
    row = _find(db, name)
    if row.epoch == epoch and row.held:
        return row
    now = f"'{row.holder}' holds epoch {row.epoch}" if row.held else "no process holds it"
    raise Fenced(f"Epoch {epoch} of the lease '{name}' is over: {now} now.")


def check_writer(db: sqlite3.Connection, grant: WriterGrant) -> None:
    """Raise `Fenced` unless lease and grant are valid, inside a write transaction."""
    check_lease(db, grant.lease, grant.epoch)
    if not _find(db, _grant_name(grant)).held:
        raise Fenced(f"Writer {grant.serial} of the lease '{grant.lease}' is fenced.")


def _grant_name(grant: WriterGrant) -> str:
    # Names of leases do not contain a slash.
    return f"{_grant_prefix(grant.lease)}{grant.epoch}/{grant.serial}"


def _grant_prefix(lease: str) -> str:
    return f"{lease}/writers/"


def _delete_grants(db: sqlite3.Connection, prefix: str) -> None:
    db.execute("DELETE FROM leases WHERE substr(name, 1, ?) = ?", (len(prefix), prefix))


def _take(database: Database, db: sqlite3.Connection, name: str, holder: str) -> EmbeddedLease:
    epoch = _find(db, name).epoch + 1
    _delete_grants(db, _grant_prefix(name))
    _write(db, _LeaseRow(name, epoch, 0, 1, holder))
    return EmbeddedLease(database, name, epoch)


class EmbeddedLease(Lease):
    """One epoch of a lease."""

    def __init__(self, database: Database, name: str, epoch: int) -> None:
        self.name = name
        self.epoch = epoch
        self._database = database
        self._writers = 0

    def renew(self) -> None:
        """See `Lease.renew`."""
        with self._database.writing() as db:
            row = check_lease(db, self.name, self.epoch)
            _write(db, row._replace(beat=row.beat + 1))

    def settle(self) -> None:
        """See `Lease.settle`. A transaction is decided when its commit returns."""
        with self._database.writing() as db:
            _delete_grants(db, f"{_grant_prefix(self.name)}{self.epoch}/")

    def release(self) -> None:
        """See `Lease.release`."""
        with self._database.writing() as db:
            row = _find(db, self.name)
            if row.epoch == self.epoch:
                _write(db, row._replace(held=0))

    def create_writer(self) -> WriterGrant:
        """See `Lease.create_writer`."""
        self._writers += 1
        grant = WriterGrant(self.name, self.epoch, self._writers)
        with self._database.writing() as db:
            check_lease(db, self.name, self.epoch)
            _write(db, _LeaseRow(_grant_name(grant), 1, 0, 1))
        return grant

    def fence_writers(self, grants: Collection[WriterGrant]) -> None:
        """See `Lease.fence_writers`. A transaction is decided when its commit returns."""
        with self._database.writing() as db:
            db.executemany(
                "DELETE FROM leases WHERE name = ?", [(_grant_name(grant),) for grant in grants]
            )

    def member_token(self) -> bytes:
        """See `Lease.member_token`. The file itself checks the lease at each commit."""
        with self._database.reading() as db:
            check_lease(db, self.name, self.epoch)
        return b""


class EmbeddedCandidate(Candidate):
    """Remembers the last row of the lease and when it last changed."""

    def __init__(self, database: Database, name: str, holder: str, timeout_ms: int) -> None:
        self._database = database
        self._name = name
        self._own_holder = holder
        self._timeout_s = timeout_ms / 1000
        self._last_row: _LeaseRow | None = None
        self._unchanged_since = 0.0

    def try_acquire(self) -> Lease | None:
        """See `Candidate.try_acquire`."""
        with self._database.reading() as db:
            row = _find(db, self._name)
        now = self._database.options.monotonic()
        self.holder = row.holder if row.held else None
        if row.held and row != self._last_row:
            self.holder_is_alive = self._last_row is not None
            self._last_row, self._unchanged_since = row, now
        if row.held and now - self._unchanged_since < self._timeout_s:
            return None
        with self._database.writing() as db:
            if _find(db, self._name) != row:
                # Another candidate took it, or the holder renewed it.
                return None
            return _take(self._database, db, self._name, self._own_holder)


class LeaseTable:
    """Owns the leases of the log."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def candidate(self, name: str, holder: str, timeout_ms: int) -> EmbeddedCandidate:
        """Return a candidate for a lease."""
        return EmbeddedCandidate(self._database, name, holder, timeout_ms)

    def take(self, name: str, holder: str) -> EmbeddedLease:
        """Take a lease at once."""
        with self._database.writing() as db:
            return _take(self._database, db, name, holder)
