"""What an instance can tell about its tasks: where they read, and how far they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.log.types import TopicPartition
from penstock.record import TaskId

if TYPE_CHECKING:
    from penstock.engine.layout.execution_graph import ExecutionGraph
    from penstock.engine.plan.planner import Planner


@dataclass(frozen=True, slots=True)
class TaskMetadata:
    """One task of an application that this instance runs."""

    task_id: TaskId
    #: What it reads from the log.
    topic_partitions: frozenset[TopicPartition]
    #: Where it goes on, and where the partitions ended when the last batch was planned.
    committed_offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    end_offsets: Mapping[TopicPartition, int] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.task_id)


@dataclass(frozen=True, slots=True)
class ThreadMetadata:
    """The thread of an instance, and the tasks it runs: none while it stands by."""

    thread_name: str
    thread_state: str
    active_tasks: frozenset[TaskMetadata] = frozenset()
    #: Of which an instance that stands by keeps rows; see `num_standby_replicas`.
    standby_tasks: frozenset[TaskMetadata] = frozenset()

    def __hash__(self) -> int:
        return hash(self.thread_name)


def describe_tasks(graph: ExecutionGraph, planner: Planner) -> list[TaskMetadata]:
    """All tasks, by sub-topology and partition."""
    offsets, lag = planner.offsets, planner.lag()
    found = []
    for task_id in graph.tasks:
        reads = [TopicPartition(topic, task_id.partition) for topic in graph.log_topics(task_id)]
        found.append(TaskMetadata(
            task_id, frozenset(reads),
            {at: offsets[at] for at in reads if at in offsets},
            {at: offsets[at] + lag[at] for at in reads if at in offsets and at in lag},
        ))
    return found


def format_tasks(graph: ExecutionGraph, planner: Planner) -> str:
    """The tasks for people: what each reads, and where its stores stand."""
    return "\n".join(_lines(graph, planner))


def _lines(graph: ExecutionGraph, planner: Planner) -> Iterator[str]:
    records = dict(planner.records)
    for task in describe_tasks(graph, planner):
        task_id = task.task_id
        part = graph.subtopologies[task_id.subtopology]
        yield f"  Task {task_id} (stage {part.stage})"
        for _, topic in graph.queues(task_id):
            at = TopicPartition(topic, task_id.partition)
            if topic in part.shuffled:
                yield f"    reads {topic} [{at.partition}], from other tasks"
                continue
            offset = task.committed_offsets.get(at)
            behind = task.end_offsets.get(at, offset or 0) - (offset or 0)
            yield f"    reads {topic} [{at.partition}] at {offset}, {behind} to go"
        positions = records[task_id].positions if task_id in records else {}
        for store, topic in part.restore_topics.items():
            yield f"    keeps {store}, {topic} [{task_id.partition}] at {positions.get(store, 0)}"
