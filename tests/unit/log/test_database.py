"""A database that one thread closes while another reads."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

from penstock.log.embedded.database import Database
from penstock.log.embedded.options import EmbeddedOptions


class SlowConnection:
    """While it closes, another thread borrows the next connection."""

    def __init__(self, readers: deque[Any], borrowed: list[Any]) -> None:
        self.is_closed = False
        self._readers = readers
        self._borrowed = borrowed

    def close(self) -> None:
        self.is_closed = True
        if self._readers:
            self._borrowed.append(self._readers.pop())


def test_connection_borrowed_by_another_thread_is_not_closed(tmp_path: Path) -> None:
    database = Database(str(tmp_path / "log.db"), EmbeddedOptions())
    readers, borrowed = database._readers, []
    for reader in tuple(readers):
        reader.close()
    readers.clear()
    connections: list[Any] = [SlowConnection(readers, borrowed) for _ in range(4)]
    readers.extend(connections)
    database.close()
    assert len(borrowed) == 2
    assert [each.is_closed for each in borrowed] == [False, False]
    assert sum(each.is_closed for each in connections) == 2
