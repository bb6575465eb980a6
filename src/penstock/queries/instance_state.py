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

#: How long a standby that is ready does not compare its replicas with the log.
READY_S = 0.25


class InstanceState(ServedState):
    """Implements `StateReader`. The running instance and standbys serve every key."""

    def __init__(self, instance: Instance) -> None:
        super().__init__(instance.topology, instance.config)
        self._instance = instance
        self._ready_until = 0.0
        instance._serve_queries()

    @property
    def state(self) -> State:
        """The state of the instance."""
        return self._instance.state

    def not_ready_reason(self) -> str | None:
        """Return why the stores cannot be queried yet, or None if they can."""
        state = self._instance.state
        if state is State.RUNNING:
            return None
        if state is not State.REBALANCING or self._instance.waits_for is None:
            return f"The instance is {state.value}."
        if time.monotonic() < self._ready_until:
            return None
        missing = self.missing_changes()
        if missing > self.config.acceptable_recovery_lag:
            return f"This standby does not have the last {missing:,} changes yet."
        self._ready_until = time.monotonic() + READY_S
        return None

    def metrics(self) -> Mapping[MetricName, float | int | str]:
        """Return all metrics."""
        return self._instance.metrics()

    @property
    def _source(self) -> ReplicaSource:
        queries: Any = self._instance._store_queries
        return cast("ReplicaSource", queries.source)
