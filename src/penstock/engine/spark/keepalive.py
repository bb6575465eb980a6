"""Keeps Python workers alive while nothing happens.

Spark ends all idle workers after a minute without a task, and the next batch would wait for new
ones (measured: 0.9 s instead of 0.07 s). A task that does nothing, now and then, is cheaper.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator

log = logging.getLogger(__name__)

#: Less than the minute that Spark waits, by the ten seconds in which it looks.
SILENCE_S = 40.0


class Keepalive:
    """A thread that runs a job after each silence. Whoever runs another job says so."""

    def __init__(self, run_job: Callable[[], object], silence_s: float = SILENCE_S) -> None:
        self._run_job = run_job
        self._silence_s = silence_s
        self._last = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-warmth", daemon=True)
        self._thread.start()

    def job_done(self) -> None:
        """Workers were busy until now."""
        self._last = time.monotonic()

    def close(self) -> None:
        """Let the workers go; returns when no job runs any more."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(max(0.0, self._last + self._silence_s - time.monotonic())):
            if time.monotonic() - self._last < self._silence_s:
                continue
            try:
                self._run_job()
            except Exception:
                # Spark is gone, or about to be; whoever runs a batch will hear of it.
                log.debug("Workers cannot be kept alive any more.", exc_info=True)
                return
            self._last = time.monotonic()


def nothing(lane: int, received: Iterator[bytes]) -> Iterator[bytes]:
    """What a worker does to stay alive."""
    for _ in received:
        pass
    return iter(())
