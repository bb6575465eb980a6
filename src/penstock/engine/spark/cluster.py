"""The slots of a cluster: waits for executors at the start, then follows their number.

A cluster starts executors after the SparkContext, and may add or lose some at any time. A lane
needs a slot, so the number of lanes follows the number of slots.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

#: How long the start waits for the first executor. Later ones are noticed by `ClusterMonitor`.
LONGEST_WAIT_S = 30.0
#: Executors register one after the other. They are complete if none follows within this time.
SETTLE_S = 1.5
#: How often the start asks for the slots, and how often it reports that it waits.
POLL_S, REPORT_S = 0.1, 5.0
#: How often the monitor asks for the slots.
MONITOR_S = 2.0
#: For so many readings a new number must stay the same. A lost executor is usually replaced, and
#: until then its lanes wait for other slots.
GROWN_READINGS, SHRUNK_READINGS = 2, 15


def wait_for_slots(
    count_slots: Callable[[], int], master: str, *,
    longest_wait_s: float = LONGEST_WAIT_S, settle_s: float = SETTLE_S,
) -> int:
    """Wait until executors have registered, and return their slots. 0 if there are none in time.

    Spark itself does not wait on a standalone cluster: its first jobs see no executors.
    """
    started = changed = reported = time.monotonic()
    slots = count_slots()
    while (now := time.monotonic()) - started < longest_wait_s:
        if slots and now - changed >= settle_s:
            break
        if not slots and now - reported >= REPORT_S:
            reported = now
            log.warning(
                "Waiting for executors of '%s' for %.0f seconds. Check that the cluster has free "
                "cores and memory for spark.executor.cores and spark.executor.memory.",
                master, now - started,
            )
        time.sleep(POLL_S)
        before, slots = slots, count_slots()
        if slots != before:
            changed = time.monotonic()
    return slots


class ClusterMonitor:
    """A thread that calls `on_change` when the lanes should be distributed again.

    That is when the number of lanes differs from `lanes` in several successive readings, and when
    the JVM has ended: then the application must not keep its lease. `on_change` is called after
    every reading until the monitor is closed.
    """

    def __init__(
        self, count_lanes: Callable[[], int], lanes: int, on_change: Callable[[], object],
        *, interval_s: float = MONITOR_S,
    ) -> None:
        """`count_lanes` returns 0 if there are no executors, and raises if the JVM has ended."""
        self._count_lanes = count_lanes
        self._lanes = lanes
        self._on_change = on_change
        self._interval_s = interval_s
        self._closed = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="penstock-cluster-monitor", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop the thread. Returns at once."""
        self._closed.set()

    def _run(self) -> None:
        before = reported = self._lanes
        readings = 0
        while not self._closed.wait(self._interval_s):
            try:
                lanes = self._count_lanes()
            except Exception:
                if not self._closed.is_set():
                    log.debug("Spark's JVM has ended.", exc_info=True)
                    self._on_change()
                continue
            readings = readings + 1 if lanes == before else 1
            before = lanes
            needed = GROWN_READINGS if lanes > self._lanes else SHRUNK_READINGS
            if readings < needed or lanes in (0, self._lanes):
                # Without executors there is nothing to distribute to. Spark waits for new ones.
                continue
            if lanes != reported:
                reported = lanes
                log.info(
                    "The executors have %d slots, %d before. The tasks are distributed again.",
                    lanes, self._lanes,
                )
            self._on_change()
