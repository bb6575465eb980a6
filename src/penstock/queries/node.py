"""`QueryNode`: serves the state of an application without being one of its instances.

A query node follows the committed changelogs into replicas of its own. It holds no lease, runs no
task and writes nothing to the log. So any number of nodes can run, also while the application is
stopped.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.config import StreamsConfig
from penstock.engine.lifecycle import State
from penstock.engine.standby.follower import Follower
from penstock.engine.standby.update_listener import (
    StandbyUpdateListener,
    StandbyUpdateNotifier,
    SuspendReason,
)
from penstock.errors import (
    ConfigException,
    StreamsException,
    StreamsRebalancingException,
    StreamsStoppedException,
)
from penstock.metrics import MetricName
from penstock.queries.replicas import ReplicaSource
from penstock.queries.run_view import RunState, RunView
from penstock.queries.served_state import ServedState
from penstock.topology.topology import Topology

#: The directory of the replicas, in the state directory of the application.
DIRECTORY = "query-node"
#: How old the data of a query may be, in addition to the age of the last commit.
UPDATE_INTERVAL_S = 0.25


def node_config(config: StreamsConfig, state_dir: str | None = None) -> StreamsConfig:
    """Return the configuration of a query node: that of the application with other replicas."""
    return replace(config, state_dir=state_dir or str(Path(config.state_dir) / DIRECTORY))


class QueryNode(ServedState):
    """Implements `StateReader`. It is also a context manager, which starts and closes it.

    Args:
        topology: The topology of the application, for the types of keys and values.
        config: Its configuration. `state_dir` must not be that of an instance: see `node_config`.

    Raises:
        ConfigException: The configuration has no log.
    """

    def __init__(self, topology: Topology, config: StreamsConfig) -> None:
        if config.log is None:
            raise ConfigException(
                f"Application '{config.application_id}' has no log. Set log= to the path of a "
                "file, or to kafka://host:port."
            )
        super().__init__(topology, config)
        self.state = State.CREATED
        self._is_restored = False
        self._replicas = ReplicaSource(topology, config, RunView(self._run_state, self._check))
        self._follower: Follower | None = None

    def start(self) -> None:
        """Start to follow the changelogs. Returns at once."""
        self.state = State.REBALANCING
        self._follower = Follower(
            self.topology, self.config, StandbyUpdateNotifier(StandbyUpdateListener())
        )

    def close(self) -> None:
        """Stop. The replicas remain for the next start."""
        self.state = State.NOT_RUNNING
        if self._follower is not None:
            self._follower.close(SuspendReason.MIGRATED)
        self._replicas.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def is_known_ready(self) -> bool:
        """Whether the stores were restored before."""
        return self._is_restored

    def not_ready_reason(self) -> str | None:
        """Return why the stores cannot be queried yet, or None if they can."""
        if self._is_restored:
            return None
        try:
            missing = self.missing_changes()
        except StreamsException as error:
            return str(error)
        if missing > self.config.acceptable_recovery_lag:
            return f"The stores are being restored; {missing:,} changes are missing."
        self._is_restored = True
        self.state = State.RUNNING
        return None

    def metrics(self) -> Mapping[MetricName, float | int | str]:
        """Return the state, and the lag of every partition of a store.

        An application that has never run has no lag.
        """
        try:
            lags = self.lags()
        except StreamsRebalancingException:
            lags = {}
        client = ("client-id", self.config.client_id or self.config.application_id)
        return {
            MetricName("stream-metrics", "state", (client,)): self.state.value,
            MetricName("stream-metrics", "application-id", (client,)): self.config.application_id,
            **{
                MetricName(
                    "stream-state-metrics", "record-lag",
                    (client, ("store", store), ("partition", str(partition))),
                ): max(0, lag.end - lag.position)
                for store, partitions in lags.items()
                for partition, lag in partitions.items()
            },
        }

    @property
    def _source(self) -> ReplicaSource:
        return self._replicas

    def _run_state(self) -> RunState:
        # The follower keeps the replicas up to date. Queries only look for what it has not done.
        version = int(time.monotonic() / UPDATE_INTERVAL_S)
        return RunState(is_active=False, version=version, name=self.state.value)

    def _check(self, stopped: bool) -> None:
        if self.state.has_ended:
            raise StreamsStoppedException("The query node has stopped.")
