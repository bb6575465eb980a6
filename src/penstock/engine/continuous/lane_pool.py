"""`LanePool`: the lanes of an application, as the driver sees them.

It starts lanes, receives their messages, notices those that end or are silent, and fences them. It
does not know what the lanes do.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from penstock.engine.continuous.awake_clock import AwakeClock
from penstock.engine.continuous.channel import Channel
from penstock.engine.continuous.lane_handle import LaneHandle, LaneState
from penstock.engine.continuous.messages import Alive, Hello, LaneMessage, decode_from_lane
from penstock.log.base import Lease

if TYPE_CHECKING:
    from penstock.engine.continuous.lane_starter import LaneStarter, OnConnection, OnEnded

log = logging.getLogger(__name__)

#: A lane that sends nothing for so long is fenced and replaced.
SILENCE_S = 5.0
#: How often the driver sends a sign of life.
HEARTBEAT_S = 1.0
#: For so many seconds there must be fewer slots before a lane ends.
EXCESS_S = 10.0
#: After so many seconds, the driver reports what a starting lane waits for.
REPORT_S = 10.0


class LanePool:
    """The lanes that run, and those that are not fenced or not forgotten yet.

    Only the driver's thread calls it, except `wake` and `disconnect`. Invariant: a lane leaves
    `lanes` only by `forget`, after it is fenced.
    """

    def __init__(
        self, lease: Lease, start_lanes: Callable[[OnConnection, OnEnded], LaneStarter],
        on_hello: Callable[[LaneHandle], object],
    ) -> None:
        """`on_hello` is called with each lane that has introduced itself."""
        self.lanes: dict[int, LaneHandle] = {}
        self._lease = lease
        self._on_hello = on_hello
        #: Messages of lanes, each with its connection; written by the threads of the channels.
        self._inbox: deque[tuple[_LaneConnection, LaneMessage | None]] = deque()
        #: The connections of lanes that have not introduced themselves.
        self._unknown: set[_LaneConnection] = set()
        self._refuses_lanes = False
        self._ended_jobs: deque[tuple[int, Exception | None]] = deque()
        self._woken = threading.Event()
        #: Since when there are more lanes than slots (monotonic).
        self._excess_since: float | None = None
        self._closed = threading.Event()
        # A driver that was suspended has received no messages meanwhile.
        self._clock = AwakeClock(2 * HEARTBEAT_S)
        threading.Thread(
            target=self._send_heartbeats, name="penstock-driver-heartbeat", daemon=True
        ).start()
        self._starter = start_lanes(self._accept, self._job_ended)

    # ---- starting ----------------------------------------------------------------------------

    def start_missing(self, at_most: int) -> None:
        """Start as many lanes as there are slots, but not more than `at_most`."""
        wanted = min(self._starter.slots, at_most)
        while len(self.lanes) < wanted:
            lane = LaneHandle(self._lease.create_writer(), self._clock)
            self.lanes[lane.serial] = lane
            log.debug("Starting %s of application '%s'.", lane, lane.grant.lease)
            self._starter.start(lane.serial)

    def excess_lanes(self, at_most: int) -> list[LaneHandle]:
        """Return the lanes that should end, because there have been fewer slots for a while.

        A short time does not count: the lanes of a lost executor end later than its slots.
        """
        running = [lane for lane in self.lanes.values() if not lane.is_stopping]
        excess = len(running) - min(self._starter.slots, at_most)
        if excess <= 0:
            self._excess_since = None
            return []
        if self._excess_since is None:
            self._excess_since = time.monotonic()
        if time.monotonic() - self._excess_since < EXCESS_S:
            return []
        # First those that wait for a slot, then those with the fewest tasks.
        running.sort(key=lambda lane: (
            lane.state is not LaneState.STARTING, len(lane.tasks), -lane.serial
        ))
        return running[:excess]

    def leaving_lanes(self) -> list[LaneHandle]:
        """Return the lanes that should end, because their executor is being decommissioned."""
        leaving = self._starter.leaving
        return [
            lane for lane in self.lanes.values()
            if lane.serial in leaving and not lane.is_stopping
        ]

    def _accept(self, connection: Connection) -> None:
        """Take the connection of a lane. Called by other threads."""
        accepted = _LaneConnection(self._inbox, self._woken)
        self._unknown.add(accepted)
        accepted.open(connection)
        if self._refuses_lanes:
            accepted.close()

    def refuse_lanes(self) -> None:
        """End the lanes that have not introduced themselves, also those that connect later."""
        self._refuses_lanes = True
        for connection in list(self._unknown):
            connection.close()

    def _job_ended(self, serial: int, error: Exception | None) -> None:
        """Called by other threads."""
        self._ended_jobs.append((serial, error))
        self._woken.set()

    # ---- messages ----------------------------------------------------------------------------

    def wait(self, timeout: float) -> None:
        """Wait until a lane has sent a message or has ended, for at most `timeout` seconds."""
        if not self._inbox:
            self._woken.wait(min(timeout, HEARTBEAT_S / 2))
        self._woken.clear()

    def wake(self) -> None:
        """End the current wait. Any thread may call it."""
        self._woken.set()

    def take_messages(self) -> Iterator[tuple[LaneHandle, LaneMessage | None]]:
        """Yield the messages of lanes, and None for a lane that has closed its connection."""
        while self._inbox:
            connection, message = self._inbox.popleft()
            self._unknown.discard(connection)
            if isinstance(message, Hello):
                self._greet(connection, message)
                continue
            lane = self.lanes.get(connection.serial)
            if lane is not None and lane.state is not LaneState.ENDED:
                lane.note_message()
                yield lane, message

    def _greet(self, connection: _LaneConnection, hello: Hello) -> None:
        lane = self.lanes.get(hello.serial)
        if lane is None or lane.state is not LaneState.STARTING or self._refuses_lanes:
            # A lane that was replaced before it started, or that starts during the end.
            connection.close()
            return
        connection.serial = hello.serial
        lane.state, lane.channel = LaneState.CONNECTED, connection.channel
        lane.host, lane.process, lane.replicas = hello.host, hello.process, hello.replicas
        lane.note_message()
        self._on_hello(lane)

    def _send_heartbeats(self) -> None:
        """Send signs of life in a thread of their own: a round of the driver may take long."""
        while not self._closed.wait(HEARTBEAT_S):
            self._clock.tick()
            for lane in list(self.lanes.values()):
                lane.send(Alive())

    # ---- ending ------------------------------------------------------------------------------

    def take_failed_starts(self) -> Iterator[tuple[LaneHandle, Exception | None]]:
        """Yield the lanes whose jobs have ended before they had a connection.

        A connected lane is reported when its connection ends, after its last message.
        """
        while self._ended_jobs:
            serial, error = self._ended_jobs.popleft()
            lane = self.lanes.get(serial)
            if lane is None or lane.state is not LaneState.STARTING:
                log.debug("The job of lane %d has ended: %s", serial, error)
                continue
            log.warning("The job of %s has ended%s", lane, f": {error}" if error else ".")
            yield lane, error

    def silent_lanes(self) -> list[LaneHandle]:
        """Return the lanes that are silent. Reports lanes that do not start."""
        now = time.monotonic()
        for lane in self.lanes.values():
            waited = now - lane.started_at
            if lane.state is LaneState.STARTING and waited > REPORT_S and not lane.is_warned:
                lane.is_warned = True
                log.warning(
                    "Waiting for a slot for %s for %.0f seconds. Check that Spark has free cores.",
                    lane, waited,
                )
        return [lane for lane in self.lanes.values() if lane.silent_seconds() > SILENCE_S]

    def ended_lanes(self) -> list[LaneHandle]:
        """Return the lanes that have ended, but are not forgotten yet."""
        return [lane for lane in self.lanes.values() if lane.state is LaneState.ENDED]

    def end(self, lane: LaneHandle, *, has_ended: bool = False) -> None:
        """End a lane. It may still commit until it is fenced.

        `has_ended`: it has stopped by itself.
        """
        lane.state = LaneState.ENDED
        if lane.channel is not None:
            lane.channel.close()
        if not has_ended:
            self._starter.cancel(lane.serial)

    def fence_ended(self) -> list[LaneHandle]:
        """Fence the lanes that have ended, and return them: nothing that they have not committed
        becomes visible. They are fenced together, because a log may need half a second."""
        ended = self.ended_lanes()
        if ended:
            self._lease.fence_writers([lane.grant for lane in ended])
        return ended

    def forget(self, lane: LaneHandle) -> None:
        """Remove a fenced lane."""
        self.lanes.pop(lane.serial, None)

    def disconnect(self) -> None:
        """Close all connections, which ends the lanes. Any thread may call it."""
        for lane in list(self.lanes.values()):
            if lane.channel is not None:
                lane.channel.close()
        self._woken.set()

    def close(self) -> None:
        """Release the resources, after all lanes are fenced."""
        self._closed.set()
        self._starter.close()


class _LaneConnection:
    """The driver's end of a connection. `serial` is known after the lane's first message."""

    def __init__(
        self, inbox: deque[tuple[_LaneConnection, LaneMessage | None]], woken: threading.Event
    ) -> None:
        self.serial = -1
        self.channel: Channel[LaneMessage] | None = None
        self._inbox = inbox
        self._woken = woken

    def open(self, connection: Connection) -> None:
        """Start to read the connection."""
        self.channel = Channel(
            connection, decode_from_lane, self._receive, lambda: self._receive(None),
            send_timeout_s=SILENCE_S,
        )

    def _receive(self, message: LaneMessage | None) -> None:
        self._inbox.append((self, message))
        self._woken.set()

    def close(self) -> None:
        """Close the connection."""
        if self.channel is not None:
            self.channel.close()
