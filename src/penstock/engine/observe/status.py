"""`InstanceStatus`: what a running instance reports: metrics, lag, tasks, and a description."""

from __future__ import annotations

import socket
from functools import cached_property
from typing import TYPE_CHECKING, cast

from penstock.engine.observe.metadata import (
    TaskMetadata,
    ThreadMetadata,
    describe_tasks,
    format_tasks,
)
from penstock.engine.observe.metrics import Value
from penstock.metrics import MetricName

if TYPE_CHECKING:
    from penstock.engine.continuous.engine import ContinuousEngine
    from penstock.engine.continuous.lane_handle import LaneStatus
    from penstock.engine.instance import Instance
    from penstock.engine.loop import Engine

#: The states of Kafka's `StreamThread`, in their order.
_THREAD_STATES = (
    "CREATED", "STARTING", "PARTITIONS_REVOKED", "PARTITIONS_ASSIGNED", "RUNNING",
    "PENDING_SHUTDOWN", "DEAD",
)


class InstanceStatus:
    """Reads the parts of an instance and changes nothing. Any thread may call it."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    @property
    def failure(self) -> BaseException | None:
        """The exception that ended the instance, if it ended with an error."""
        thread = self._instance.thread
        return None if thread is None else thread.failure

    @property
    def waits_for(self) -> str | None:
        """The instance that runs the application while this one is a standby, otherwise None."""
        thread = self._instance.thread
        return None if thread is None else thread.waits_for

    def metrics(self) -> dict[MetricName, Value]:
        """Return all metrics, under Kafka's names."""
        thread = self._instance.thread
        is_alive = thread is not None and thread.is_alive
        state = self._instance.lifecycle.state
        client: dict[str, Value] = {
            "state": state.value,
            # The numbers of Kafka's states.
            "client-state": list(type(state)).index(state),
            "alive-stream-threads": self._alive_threads() if is_alive else 0,
            "failed-stream-threads": (
                self._instance.observers.metrics.lost_lanes
                + (0 if thread is None else thread.replacements)
            ),
            "topology-description": self._topology_description,
        }
        of_thread: dict[str, Value] = {}
        if thread is not None and thread.started_ms is not None:
            of_thread["thread-start-time"] = thread.started_ms
            of_thread["state"] = self._thread_state()
            of_thread["thread-state"] = _THREAD_STATES.index(self._thread_state())
        return self._instance.observers.metrics.snapshot(client, of_thread)

    def _alive_threads(self) -> int:
        """Count the lanes that have started. A batch has as many tasks as Spark has cores."""
        lanes = self._lanes
        if lanes is None:
            return self._instance.parallelism
        return sum(bool(lane.host) for lane in lanes)

    @cached_property
    def _topology_description(self) -> str:
        """The topology as text. It does not change in an instance."""
        return str(self._instance.topology.describe())

    def _thread_state(self) -> str:
        """Return the state of the thread, under Kafka's names."""
        thread = self._instance.thread
        if thread is None or not thread.is_alive:
            return "DEAD"
        lanes = self._lanes
        if lanes is None:
            return "RUNNING" if self._engine is not None else "PARTITIONS_ASSIGNED"
        is_running = any(lane.state == "RUNNING" for lane in lanes)
        return "RUNNING" if is_running else "PARTITIONS_ASSIGNED"

    @property
    def _lanes(self) -> list[LaneStatus] | None:
        """The lanes that start or run; None in batch mode, and for a standby."""
        engine = self._engine
        if engine is None or not self._instance.config.is_continuous:
            return None
        return cast("ContinuousEngine", engine).lanes()

    def lag(self) -> int | None:
        """Return the number of unread records in the source topics; None for a standby."""
        engine = self._engine
        return None if engine is None else sum(engine.planner.lag().values())

    def threads(self) -> frozenset[ThreadMetadata]:
        """Return the thread of the instance and its tasks."""
        thread, engine = self._instance.thread, self._engine
        if thread is None:
            return frozenset()
        active = () if engine is None else describe_tasks(engine.graph, engine.planner)
        lanes = self._lanes
        if lanes is not None:
            return frozenset(
                ThreadMetadata(
                    f"{thread.name}, {lane.name}", lane.state,
                    frozenset(task for task in active if task.task_id in lane.tasks),
                    host=lane.host,
                )
                for lane in lanes
            )
        state = self._thread_state()
        standby = self._instance.standby.tasks
        return frozenset((ThreadMetadata(
            thread.name, state, frozenset(active),
            frozenset(TaskMetadata(task_id, reads) for task_id, reads in standby.items()),
            socket.gethostname() if self._instance.compute.has_local_workers else "",
        ),))

    def describe(self) -> str:
        """Return the state, the topology and the tasks as text."""
        instance, engine = self._instance, self._engine
        head = (
            f"Application '{instance.config.application_id}' on {instance.config.log}: "
            f"{instance.lifecycle.state.value}"
        )
        if instance.is_paused:
            head += " (paused)"
        if self.waits_for:
            head += f", standby for {self.waits_for}"
        parts = [head, str(instance.topology.describe()).rstrip("\n")]
        if engine is not None:
            parts += ["Tasks:", format_tasks(engine.graph, engine.planner)]
        return "\n".join(parts)

    @property
    def _engine(self) -> Engine | None:
        thread = self._instance.thread
        return None if thread is None else cast("Engine | None", thread.engine)
