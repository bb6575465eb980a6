"""The tasks of an instance: what they read, and their positions."""

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
    """A task of this instance."""

    task_id: TaskId
    #: The partitions that the task reads from the log.
    topic_partitions: frozenset[TopicPartition]
    #: The committed offsets, and the ends of the partitions when the last batch was planned.
    committed_offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    end_offsets: Mapping[TopicPartition, int] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.task_id)


@dataclass(frozen=True, slots=True)
class ThreadMetadata:
    """The thread of an instance and its tasks. A standby has no active tasks."""

    thread_name: str
    thread_state: str
    active_tasks: frozenset[TaskMetadata] = frozenset()
    #: The tasks whose stores a standby keeps up to date; see `num_standby_replicas`.
    standby_tasks: frozenset[TaskMetadata] = frozenset()
    #: Where the tasks run; empty if it is not known.
    host: str = ""

    def __hash__(self) -> int:
        return hash(self.thread_name)


def describe_tasks(graph: ExecutionGraph, planner: Planner) -> list[TaskMetadata]:
    """Return all tasks, by sub-topology and partition."""
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
    """Return the tasks as text: what each reads, and the positions of its stores."""
    return "\n".join(_lines(graph, planner))


def _lines(graph: ExecutionGraph, planner: Planner) -> Iterator[str]:
    records = dict(planner.records)
    for task in describe_tasks(graph, planner):
        task_id = task.task_id
        subtopology = graph.subtopologies[task_id.subtopology]
        yield f"  Task {task_id} (stage {subtopology.stage})"
        for _, topic in graph.queues(task_id):
            at = TopicPartition(topic, task_id.partition)
            if topic in subtopology.shuffled:
                yield f"    reads {topic} [{at.partition}], from other tasks"
                continue
            offset = task.committed_offsets.get(at)
            lag = task.end_offsets.get(at, offset or 0) - (offset or 0)
            yield f"    reads {topic} [{at.partition}] at {offset}, lag {lag}"
        positions = records[task_id].positions if task_id in records else {}
        for store, topic in subtopology.restore_topics.items():
            position = positions.get(store, 0)
            yield f"    store {store}, {topic} [{task_id.partition}] at {position}"
