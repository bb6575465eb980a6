"""The states of an application, which may follow which, and what came before.

                 ┌──────────────┐
        ┌────────┤   CREATED    │
        │        └──────┬───────┘
        │        ┌──────▼───────┐
        │  ┌─────┤ REBALANCING  ├─────────┐
        │  │     └──────┬───▲───┘         │
        │  │     ┌──────▼───┴───┐         │
        │  │  ┌──┤   RUNNING    ├──────┐  │
        │  │  │  └──────────────┘      │  │
     ┌──▼──▼──▼─────────┐      ┌───────▼──▼────┐
     │ PENDING_SHUTDOWN │      │ PENDING_ERROR │
     └────────┬─────────┘      └───────┬───────┘
     ┌────────▼─────────┐      ┌───────▼───────┐
     │   NOT_RUNNING    │      │     ERROR     │
     └──────────────────┘      └───────────────┘

The states are Kafka Streams'. REBALANCING is the time in which an instance has no tasks yet: it
wants the lease, or its stores are being filled. One that stands by for another is REBALANCING all
the while.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from typing import TypeAlias

from penstock.errors import StreamsException

log = logging.getLogger(__name__)


class State(Enum):
    """Where an application is in its life."""

    CREATED = "CREATED"
    REBALANCING = "REBALANCING"
    RUNNING = "RUNNING"
    PENDING_SHUTDOWN = "PENDING_SHUTDOWN"
    NOT_RUNNING = "NOT_RUNNING"
    PENDING_ERROR = "PENDING_ERROR"
    ERROR = "ERROR"

    @property
    def is_running_or_rebalancing(self) -> bool:
        """It has been started and does not mean to end."""
        return self in (State.RUNNING, State.REBALANCING)

    @property
    def is_shutting_down(self) -> bool:
        """It is about to end, well or not."""
        return self in (State.PENDING_SHUTDOWN, State.PENDING_ERROR)

    @property
    def has_ended(self) -> bool:
        """Nothing follows."""
        return not FOLLOWING[self]


#: A state, and those that may follow it. RUNNING may follow itself: a failed thread was replaced.
FOLLOWING = {
    State.CREATED: {State.REBALANCING, State.PENDING_SHUTDOWN},
    State.REBALANCING: {State.RUNNING, State.PENDING_SHUTDOWN, State.PENDING_ERROR},
    State.RUNNING: {
        State.REBALANCING, State.RUNNING, State.PENDING_SHUTDOWN, State.PENDING_ERROR
    },
    State.PENDING_SHUTDOWN: {State.NOT_RUNNING},
    State.NOT_RUNNING: set(),
    State.PENDING_ERROR: {State.ERROR},
    State.ERROR: set(),
}

#: Called with the new state and the old one.
StateListener: TypeAlias = Callable[[State, State], object]


class RefusedTransition(StreamsException):
    """What was asked for cannot follow the state that the application is in."""


class LifeCycle:
    """The state of one application; any thread may ask, and change it.

    Invariants: every change is one of `FOLLOWING`; the listener hears of all changes, one at a time
    and in order.
    """

    HISTORY = 20

    def __init__(
        self, application: str, *, clock: Callable[[], float] = time.time,
        listener: StateListener | None = None,
    ) -> None:
        self.listener = listener
        self._application = application
        self._clock = clock
        self._state = State.CREATED
        self._history: deque[tuple[float, State, str]] = deque(
            [(clock(), State.CREATED, "")], self.HISTORY
        )
        # The listener may ask for the state and end the application; its thread comes in again.
        self._order = threading.RLock()
        self._changed = threading.Condition()

    @property
    def state(self) -> State:
        """As it is now."""
        return self._state

    def to(self, new: State, why: str = "") -> None:
        """Change the state; `RefusedTransition` if it cannot follow."""
        if not self.try_to(new, why):
            raise RefusedTransition(
                f"Application '{self._application}' cannot become {new.value}: it is "
                f"{self._state.value}.\n{self.story()}"
            )

    def try_to(self, new: State, why: str = "", *, unless: Iterable[State] = ()) -> bool:
        """Change the state if that can be and it is none of `unless`; answers whether it did."""
        with self._order:
            with self._changed:
                old = self._state
                if new not in FOLLOWING[old] or old in unless:
                    return False
                self._state = new
                self._history.append((self._clock(), new, why))
                self._changed.notify_all()
            log.info(
                "Application '%s' is %s%s.", self._application, new.value, f": {why}" if why else ""
            )
            self._tell(new, old)
        return True

    def wait_until(self, fits: Callable[[State], bool], timeout: float | None = None) -> bool:
        """Wait for a state; False if the seconds have passed."""
        with self._changed:
            return self._changed.wait_for(lambda: fits(self._state), timeout)

    def story(self) -> str:
        """The last states with their times, for people."""
        with self._changed:
            rows = list(self._history)
        lines = [
            f"  {_time_of_day(at)}  {state.value}{f' ({why})' if why else ''}"
            for at, state, why in rows
        ]
        return "\n".join(("The states so far:", *lines))

    def _tell(self, new: State, old: State) -> None:
        if self.listener is None:
            return
        try:
            self.listener(new, old)
        except Exception:
            # What the listener does is its own affair; the application must not hang on it.
            log.exception("The state listener failed on %s after %s.", new.value, old.value)


def _time_of_day(at: float) -> str:
    return time.strftime("%H:%M:%S", time.gmtime(at)) + f".{int(at * 1000) % 1000:03d}Z"
