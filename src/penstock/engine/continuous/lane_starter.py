"""Starts lanes. `InlineLanes` runs them as threads of this process, without Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Protocol

from penstock.engine.continuous.lane import run_lane


class LaneStarter(Protocol):
    """Starts lanes in Spark or in this process."""

    @property
    def slots(self) -> int:
        """How many lanes may run at the same time."""
        ...

    @property
    def leaving(self) -> frozenset[int]:
        """The serials of the lanes whose executor is being decommissioned."""
        ...

    def start(self, serial: int) -> None:
        """Start a lane. It connects to the driver, or `on_ended` is called."""
        ...

    def cancel(self, serial: int) -> None:
        """End a lane that does not respond. Its process may run on for a while."""
        ...

    def close(self) -> None:
        """Wait a moment for the lanes, cancel the others, and release the resources."""
        ...


#: Called with the connection of a lane.
OnConnection = Callable[[Connection], object]
#: Called when a lane has ended: its serial, and the error with which its job ended, if any.
OnEnded = Callable[[int, Exception | None], object]


class InlineLanes:
    """One lane in a thread of this process. User code is not interrupted by `cancel`."""

    slots = 1
    leaving: frozenset[int] = frozenset()

    def __init__(self, bundle: bytes, on_connection: OnConnection, on_ended: OnEnded) -> None:
        self._bundle = bundle
        self._on_connection = on_connection
        self._on_ended = on_ended
        self._threads: dict[int, threading.Thread] = {}

    def start(self, serial: int) -> None:
        """Start a thread that runs the lane."""
        ours, lanes = Pipe()
        self._on_connection(ours)
        thread = threading.Thread(
            target=self._run, args=(serial, lanes), name=f"penstock-lane-{serial}", daemon=True
        )
        self._threads[serial] = thread
        thread.start()

    def _run(self, serial: int, connection: Connection) -> None:
        error: Exception | None = None
        try:
            run_lane(self._bundle, connection, serial, own_process=False)
        except Exception as raised:
            error = raised
        finally:
            self._threads.pop(serial, None)
            self._on_ended(serial, error)

    def cancel(self, serial: int) -> None:
        """The driver has closed the connection, which ends the lane soon."""

    def close(self) -> None:
        """Wait for the threads."""
        for thread in list(self._threads.values()):
            thread.join(10)
