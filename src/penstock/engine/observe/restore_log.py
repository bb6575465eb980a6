"""`RestoreLog`: log lines about restored stores."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.engine.worker.outcome import RestoredStore

log = logging.getLogger(__name__)

#: The stores of tasks that are restored one after the other share a line for so long.
INTERVAL_S = 10.0


class RestoreLog:
    """Logs the stores that were restored: those of a batch, or those of several tasks of lanes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: The stores that no line has named, and the time from the start to the end of their
        #: restores.
        self._restored: list[RestoredStore] = []
        self._began = self._ended = 0.0

    def add(
        self, restored: Iterable[RestoredStore], seconds: float, *, is_last: bool = True
    ) -> None:
        """Add stores whose restore took so many seconds. `is_last`: no other restore runs."""
        now = self._clock()
        found = [each for each in restored if each.records]
        if found:
            began = now - seconds
            self._began = min(self._began, began) if self._restored else began
            self._ended = now
            self._restored += found
        if self._restored and (is_last or now - self._began >= INTERVAL_S):
            self.flush()

    def flush(self) -> None:
        """Log the stores that no line has named."""
        restored, self._restored = self._restored, []
        if not restored:
            return
        partitions: dict[str, int] = defaultdict(int)
        records: dict[str, int] = defaultdict(int)
        for each in restored:
            partitions[each.store] += 1
            records[each.store] += each.records
        stores = ", ".join(
            f"{store} ({records[store]:,} records in {count} partition{'s' if count > 1 else ''})"
            for store, count in partitions.items()
        )
        log.info("Restored from changelogs in %.1f s: %s.", self._ended - self._began, stores)
