"""Leases: a name, an epoch that only grows, and a counter that a living holder moves."""

from __future__ import annotations

import sqlite3

from penstock.log.base import Candidate, Lease
from penstock.log.embedded.database import Database
from penstock.log.errors import Fenced

#: Epoch, beat, whether it is held, by whom.
_State = tuple[int, int, int, str]


def check_lease(db: sqlite3.Connection, lease: Lease) -> None:
    """Raise `Fenced` unless this is the lease that is held, inside a write transaction."""
    row = db.execute(
        "SELECT epoch, held, holder FROM leases WHERE name = ?", (lease.name,)
    ).fetchone()
    if row is None or row[0] != lease.epoch or not row[1]:
        raise _fenced(lease, row)


def _fenced(lease: Lease, row: tuple[int, int, str] | None) -> Fenced:
    now = "nobody holds it" if row is None or not row[1] else f"epoch {row[0]}, '{row[2]}', has it"
    return Fenced(f"The lease '{lease.name}' of epoch {lease.epoch} is over: {now} now.")


def _state(db: sqlite3.Connection, name: str) -> _State:
    row = db.execute(
        "SELECT epoch, beat, held, holder FROM leases WHERE name = ?", (name,)
    ).fetchone()
    return (0, 0, 0, "") if row is None else (row[0], row[1], row[2], row[3])


def _take(database: Database, db: sqlite3.Connection, name: str, holder: str) -> EmbeddedLease:
    epoch = _state(db, name)[0] + 1
    db.execute(
        "INSERT OR REPLACE INTO leases (name, epoch, beat, held, holder) VALUES (?, ?, 0, 1, ?)",
        (name, epoch, holder),
    )
    return EmbeddedLease(database, name, epoch)


class EmbeddedLease(Lease):
    """One epoch of one lease."""

    def __init__(self, db: Database, name: str, epoch: int) -> None:
        self.name = name
        self.epoch = epoch
        self._db = db

    def renew(self) -> None:
        """See `Lease.renew`."""
        with self._db.writing() as db:
            check_lease(db, self)
            db.execute("UPDATE leases SET beat = beat + 1 WHERE name = ?", (self.name,))

    def settle(self) -> None:
        """See `Lease.settle`. Transactions are over when they return."""

    def release(self) -> None:
        """See `Lease.release`."""
        with self._db.writing() as db:
            db.execute(
                "UPDATE leases SET held = 0 WHERE name = ? AND epoch = ?", (self.name, self.epoch)
            )


class EmbeddedCandidate(Candidate):
    """Remembers what it saw of the holder and since when it has not changed."""

    def __init__(self, db: Database, name: str, holder: str, timeout_ms: int) -> None:
        self._db = db
        self._name = name
        self._own = holder
        self._timeout = timeout_ms / 1000
        self._seen: _State | None = None
        self._since = 0.0

    def try_acquire(self) -> Lease | None:
        """See `Candidate.try_acquire`."""
        with self._db.reading() as db:
            state = _state(db, self._name)
        now = self._db.options.monotonic()
        held = state[2]
        self.holder = state[3] if held else None
        if held and state != self._seen:
            self._seen, self._since = state, now
        if held and now - self._since < self._timeout:
            return None
        with self._db.writing() as db:
            if _state(db, self._name) != state:
                # Somebody was faster, or the holder came back to life.
                return None
            return _take(self._db, db, self._name, self._own)


class Leases:
    """The part of the log that knows leases."""

    _db: Database

    def candidate(self, name: str, *, holder: str = "", timeout_ms: int = 6_000) -> Candidate:
        """See `Log.candidate`."""
        return EmbeddedCandidate(self._db, name, holder, timeout_ms)

    def take_lease(self, name: str, *, holder: str = "") -> Lease:
        """See `Log.take_lease`."""
        with self._db.writing() as db:
            return _take(self._db, db, name, holder)
