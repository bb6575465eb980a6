"""The life cycle of an instance: its states, the legal transitions, and the history.

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

The states are those of Kafka Streams. An instance is REBALANCING while it has no tasks: it waits
for the lease, or its stores are being restored. A standby is REBALANCING all the time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from typing import TypeAlias

from penstock.clock import Clock, wall_clock_ms
from penstock.errors import StreamsException

log = logging.getLogger(__name__)


class State(Enum):
    """The state of an application instance."""

    CREATED = "CREATED"
    REBALANCING = "REBALANCING"
    RUNNING = "RUNNING"
    PENDING_SHUTDOWN = "PENDING_SHUTDOWN"
    NOT_RUNNING = "NOT_RUNNING"
    PENDING_ERROR = "PENDING_ERROR"
    ERROR = "ERROR"

    @property
    def is_running_or_rebalancing(self) -> bool:
        """Whether the instance has started and is not shutting down."""
        return self in (State.RUNNING, State.REBALANCING)

    @property
    def is_shutting_down(self) -> bool:
        """Whether the instance is about to end, with or without an error."""
        return self in (State.PENDING_SHUTDOWN, State.PENDING_ERROR)

    @property
    def has_not_started(self) -> bool:
        """Whether `start` has not been called."""
        return self is State.CREATED

    @property
    def has_ended(self) -> bool:
        """Whether the state is final.

        Kafka: KafkaStreams.State#hasCompletedShutdown
        """
        return not TRANSITIONS[self]

    @property
    def has_started_or_finished_shutting_down(self) -> bool:
        """Whether the instance is about to end, or has ended."""
        return self.is_shutting_down or self.has_ended

    def is_valid_transition(self, new_state: State) -> bool:
        """Return whether `new_state` may follow this state.

        Args:
            new_state: The next state.

        Kafka: KafkaStreams.State#isValidTransition
        """
        return new_state in TRANSITIONS[self]


#: State -> the states that may follow it. RUNNING follows itself when a failed thread is replaced.
TRANSITIONS = {
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

#: Called with the new state and the old state.
StateListener: TypeAlias = Callable[[State, State], object]


class IllegalTransition(StreamsException):
    """An operation is not allowed in the current state."""


class LifeCycle:
    """The state of one instance. Any thread may read and change it.

    Invariants:
    - Every change is one of `TRANSITIONS`.
    - The listener is called for every change, one at a time and in order.
    """

    HISTORY = 20

    def __init__(
        self, application_id: str, *, clock: Clock = wall_clock_ms,
        listener: StateListener | None = None,
    ) -> None:
        self.listener = listener
        self._application_id = application_id
        self._clock = clock
        self._state = State.CREATED
        #: The last changes: (epoch milliseconds, new state, reason).
        self._history: deque[tuple[int, State, str]] = deque(
            [(clock(), State.CREATED, "")], self.HISTORY
        )
        # Reentrant: the listener may read the state and close the application.
        self._order = threading.RLock()
        self._changed = threading.Condition()

    @property
    def state(self) -> State:
        """The current state."""
        return self._state

    def transition_to(self, new: State, reason: str = "") -> None:
        """Change the state. Raise `IllegalTransition` if the table does not allow it."""
        if not self.try_transition_to(new, reason):
            raise IllegalTransition(
                f"Application '{self._application_id}' cannot become {new.value}: it is "
                f"{self._state.value}.\n{self.history()}"
            )

    def try_transition_to(
        self, new: State, reason: str = "", *, unless: Iterable[State] = ()
    ) -> bool:
        """Change the state and return True, unless the table or `unless` forbids it."""
        with self._order:
            with self._changed:
                old = self._state
                if new not in TRANSITIONS[old] or old in unless:
                    return False
                self._state = new
                self._history.append((self._clock(), new, reason))
                self._changed.notify_all()
            log.info(
                "Application '%s' is %s%s.", self._application_id, new.value,
                f": {reason}" if reason else "",
            )
            self._notify(new, old)
        return True

    def wait_until(self, matches: Callable[[State], bool], timeout: float | None = None) -> bool:
        """Wait for a state. Return False after `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: matches(self._state), timeout)

    def history(self) -> str:
        """Return the last states with their times, one a line."""
        with self._changed:
            entries = list(self._history)
        lines = [
            f"  {_time_of_day(at_ms)}  {state.value}{f' ({reason})' if reason else ''}"
            for at_ms, state, reason in entries
        ]
        return "\n".join(("State history:", *lines))

    def _notify(self, new: State, old: State) -> None:
        if self.listener is None:
            return
        try:
            self.listener(new, old)
        except Exception:
            # A failing listener must not stop the application.
            log.exception("The state listener failed on %s after %s.", new.value, old.value)


def _time_of_day(at_ms: int) -> str:
    return time.strftime("%H:%M:%S", time.gmtime(at_ms // 1000)) + f".{at_ms % 1000:03d}Z"
