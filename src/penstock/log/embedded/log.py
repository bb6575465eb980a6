"""The embedded log, put together from its parts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.log.base import Log
from penstock.log.embedded.appends import Appends
from penstock.log.embedded.cleaning import Cleaning
from penstock.log.embedded.database import Database
from penstock.log.embedded.leases import Leases
from penstock.log.embedded.members import Members
from penstock.log.embedded.offsets import GroupOffsets
from penstock.log.embedded.options import EmbeddedOptions
from penstock.log.embedded.ranges import Ranges
from penstock.log.embedded.scheme import EMBEDDED
from penstock.log.embedded.topics import Topics

#: How often the file is asked for a change: often at first, for who waits for an answer.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.01


class EmbeddedLog(Topics, Appends, Ranges, GroupOffsets, Members, Leases, Cleaning, Log):
    """One SQLite file as a log."""

    capabilities = EMBEDDED.capabilities

    def __init__(self, path: str, options: EmbeddedOptions | None = None) -> None:
        self.address = str(Path(path).absolute())
        self._db = Database(self.address, options or EmbeddedOptions())
        with self._db.reading() as db:
            self.id = db.execute("SELECT value FROM meta WHERE name = 'id'").fetchone()[0]

    def wait_for_change(self, timeout: float) -> bool:
        """See `Log.wait_for_change`."""
        deadline = time.monotonic() + timeout
        pause = _FIRST_PAUSE
        changed = self._db.changed
        while True:
            # Own commits set the event; it is cleared first, so that none is overlooked.
            woken = changed.is_set()
            changed.clear()
            if self._db.has_changed() or woken:
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            changed.wait(min(pause, left))
            pause = min(pause * 1.5, _LONGEST_PAUSE)

    def wake(self) -> None:
        """See `Log.wake`."""
        self._db.changed.set()

    def close(self) -> None:
        """See `Log.close`."""
        self._db.close()

    def __repr__(self) -> str:
        return f"EmbeddedLog('{self.address}')"


def open_embedded(address: str, options: Mapping[str, Any]) -> EmbeddedLog:
    """Open the file at a path. `options` are the fields of `EmbeddedOptions`."""
    return EmbeddedLog(address, EmbeddedOptions(**options))
