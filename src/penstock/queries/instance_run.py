"""The state, the lease and the commits of a running instance, as queries need them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from penstock.engine.instance import Instance
from penstock.engine.lifecycle import State
from penstock.engine.plan.task_records import TaskRecord
from penstock.errors import StreamsNotStartedException, StreamsStoppedException
from penstock.log.types import TopicPartition
from penstock.queries.metadata_service import InstanceMetadata
from penstock.queries.replicas import ReplicaSource
from penstock.queries.run_view import RunState, RunView
from penstock.queries.service import StoreQueries
from penstock.record import TaskId

#: How often a replica is brought to the last commit where this process does not see the commits.
UPDATE_INTERVAL_S = 0.1


class InstanceQueries:
    """The queries of an instance, and the metadata of all instances."""

    def __init__(self, instance: Instance) -> None:
        source = ReplicaSource(instance.topology, instance.config, run_view(instance))
        instance.on_close.append(source.close)
        self.stores = StoreQueries(source)
        self.metadata = InstanceMetadata(source, instance.config.application_id)


def run_view(instance: Instance) -> RunView:
    """Return how queries see an instance."""
    run = _InstanceRun(instance)
    return RunView(
        run.state, run.check_running, lambda: instance.commits, run.known_record,
        run.known_offsets,
    )


class _InstanceRun:
    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    def check_running(self, stopped: bool) -> None:
        """Raise unless the instance has started and not ended, as Kafka Streams does."""
        state = self._instance.lifecycle.state
        application = self._instance.config.application_id
        if state is State.CREATED:
            raise StreamsNotStartedException(
                f"Application '{application}' has not been started. Query it after start()."
            )
        if not state.is_running_or_rebalancing:
            raise StreamsStoppedException(
                f"Application '{application}' has been stopped ({state.value}). This instance can "
                "no longer serve queries."
            )

    def state(self) -> RunState:
        """Return what the instance does now."""
        instance = self._instance
        state = instance.lifecycle.state
        thread = instance.thread
        engine = None if thread is None else thread.engine
        if thread is None or engine is None or not thread.has_lease:
            holder = None if thread is None else thread.waits_for
            version = ("standby", int(time.monotonic() / UPDATE_INTERVAL_S))
            return RunState(False, version, name=state.value, holder=holder)
        is_ready = state is State.RUNNING
        # In continuous mode the lanes write their commits to the replicas of their host.
        is_live = instance.config.is_continuous and instance.compute.has_local_workers
        return RunState(
            True, (id(engine), is_ready), lags_commits=not is_live, name=state.value,
            is_ready=is_ready,
        )

    def known_offsets(self) -> Mapping[TopicPartition, int] | None:
        """Return the input that this instance has processed and committed."""
        thread = self._instance.thread
        engine: Any = None if thread is None else thread.engine
        if engine is None or self._instance.config.is_continuous:
            # In continuous mode the lanes write the offsets to the replicas.
            return None
        return dict(engine.planner.offsets)

    def known_record(self, task_id: TaskId) -> TaskRecord | None:
        """Return the last commit of a task by this instance."""
        thread = self._instance.thread
        engine: Any = None if thread is None else thread.engine
        return None if engine is None else engine.planner.records.get(task_id)
