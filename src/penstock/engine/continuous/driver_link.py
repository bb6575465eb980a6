"""`DriverLink`: the connection of a lane to its driver."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import Connection

from penstock.engine.continuous.awake_clock import AwakeClock
from penstock.engine.continuous.channel import Channel
from penstock.engine.continuous.messages import (
    Alive,
    DriverMessage,
    Token,
    TokenRequest,
    decode_from_driver,
)
from penstock.engine.continuous.restorer import RestoreDone
from penstock.errors import StreamsException

#: How often a lane sends a sign of life, and how long it waits for one of the driver.
HEARTBEAT_S, SILENCE_S = 1.0, 15.0


class DriverLost(StreamsException):
    """The driver has closed the connection, or is silent."""


class DriverLink:
    """Sends messages to the driver, and keeps those that arrive until the lane takes them.

    Each message that arrives ends the wait of the lane for records.
    """

    def __init__(
        self, connection: Connection, wake: Callable[[], object],
        on_heartbeat: Callable[[], object],
    ) -> None:
        """`wake` and `on_heartbeat` are called in other threads than that of the lane."""
        self._wake = wake
        self._on_heartbeat = on_heartbeat
        self._inbox: deque[DriverMessage | RestoreDone] = deque()
        self._tokens: deque[bytes] = deque()
        self._received = threading.Condition()
        # A lane that was suspended has received no messages meanwhile.
        self._clock = AwakeClock(2 * HEARTBEAT_S)
        self._received_at = self._clock.now()
        self._is_lost = False
        self._closed = threading.Event()
        self._channel: Channel[DriverMessage] = Channel(
            connection, decode_from_driver, self._receive, self._lose,
            send_timeout_s=SILENCE_S,
        )

    def start_heartbeats(self) -> None:
        """Send signs of life until the link is closed. Notice a driver that sends none."""
        threading.Thread(
            target=self._send_heartbeats, name="penstock-heartbeat", daemon=True
        ).start()

    def _send_heartbeats(self) -> None:
        while not self._closed.wait(HEARTBEAT_S):
            self._clock.tick()
            self._channel.send(Alive())
            self._on_heartbeat()
            if self._clock.now() - self._received_at > SILENCE_S:
                self._lose()

    def _receive(self, message: DriverMessage) -> None:
        """Called in the thread of the channel."""
        self._received_at = self._clock.now()
        if isinstance(message, Alive):
            return
        if isinstance(message, Token):
            self.add_token(message.token)
        else:
            self._inbox.append(message)
        self._wake()

    def _lose(self) -> None:
        with self._received:
            self._is_lost = True
            self._received.notify_all()
        self._wake()

    def send(self, message: object) -> None:
        """Send a message. Dropped if the connection is closed."""
        self._channel.send(message)

    def add(self, message: RestoreDone) -> None:
        """Add a message of the lane's own restorer, in order with those of the driver."""
        self._inbox.append(message)
        self._wake()

    def add_token(self, token: bytes) -> None:
        """Keep a token of the lease for the next call of `token`."""
        with self._received:
            self._tokens.append(token)
            self._received.notify_all()

    @property
    def has_messages(self) -> bool:
        """Whether messages wait for `take`."""
        return bool(self._inbox)

    def take(self) -> DriverMessage | RestoreDone | None:
        """Return the next message. None if there is none."""
        return self._inbox.popleft() if self._inbox else None

    def check(self) -> None:
        """Raise `DriverLost` if the driver is gone."""
        if self._is_lost:
            raise DriverLost("The driver has closed the connection, or is silent.")

    def token(self) -> bytes:
        """Return a token of the lease. Ask the driver for one if there is none."""
        if not self._tokens:
            self._channel.send(TokenRequest())
            with self._received:
                if not self._received.wait_for(lambda: self._is_lost or self._tokens, SILENCE_S):
                    raise DriverLost("The driver does not respond.")
            self.check()
        return self._tokens.popleft()

    def close(self) -> None:
        """Close the connection. The driver notices it."""
        self._closed.set()
        self._channel.close()
