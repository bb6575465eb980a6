"""`InstanceState`: the state of a `Streams` instance, for servers of queries."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, cast

from penstock.engine.lifecycle import State
from penstock.metrics import MetricName
from penstock.queries.replicas import ReplicaSource
from penstock.queries.served_state import ServedState
from penstock.queries.state_reader import Instance

#: How long an instance that is ready but not RUNNING does not compare its replicas with the log.
READY_S = 0.25


class InstanceState(ServedState):
    """Implements `StateReader`. The running instance and standbys serve every key.

    A standby that takes over, and an instance that recovers, are REBALANCING for some time. They
    continue to serve their replicas: there may be no other instance.
    """

    def __init__(self, instance: Instance) -> None:
        super().__init__(instance.topology, instance.config)
        self._instance = instance
        self._ready_until = 0.0
        #: Whether the stores of this instance were restored before.
        self._was_ready = False
        instance._serve_queries()

    @property
    def state(self) -> State:
        """The state of the instance."""
        return self._instance.state

    @property
    def is_known_ready(self) -> bool:
        """Whether the stores can be queried, as far as this is known without the log."""
        return self._instance.state is State.RUNNING or time.monotonic() < self._ready_until

    def not_ready_reason(self) -> str | None:
        """Return why the stores cannot be queried yet, or None if they can."""
        state = self._instance.state
        if state is State.RUNNING:
            self._was_ready = True
            return None
        is_standby = self._instance.waits_for is not None
        if state is not State.REBALANCING or not (is_standby or self._was_ready):
            return f"The instance is {state.value}."
        if time.monotonic() < self._ready_until:
            return None
        missing = self.missing_changes()
        if missing > self.config.acceptable_recovery_lag:
            return f"This instance does not have the last {missing:,} changes yet."
        self._ready_until = time.monotonic() + READY_S
        self._was_ready = True
        return None

    def metrics(self) -> Mapping[MetricName, float | int | str]:
        """Return all metrics."""
        return self._instance.metrics()

    @property
    def _source(self) -> ReplicaSource:
        queries: Any = self._instance._store_queries
        return cast("ReplicaSource", queries.source)
