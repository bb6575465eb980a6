"""A log that is closed by one thread while another reads."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

from penstock.log.embedded.database import Database
from penstock.log.embedded.options import EmbeddedOptions


class Connection:
    """Its `close` takes a while, in which another thread takes the next connection."""

    def __init__(self, readers: deque[Any], taken: list[Any]) -> None:
        self.is_closed = False
        self._readers = readers
        self._taken = taken

    def close(self) -> None:
        self.is_closed = True
        if self._readers:
            self._taken.append(self._readers.pop())


def test_a_connection_that_another_thread_has_taken_is_not_closed(tmp_path: Path) -> None:
    database = Database(str(tmp_path / "log.db"), EmbeddedOptions())
    readers, taken = database._readers, []
    for reader in tuple(readers):
        reader.close()
    readers.clear()
    here: list[Any] = [Connection(readers, taken) for _ in range(4)]
    readers.extend(here)
    database.close()
    assert len(taken) == 2
    assert [each.is_closed for each in taken] == [False, False]
    assert sum(each.is_closed for each in here) == 2
