"""Migrates task records to a changed topology: other tasks, and other names of stores and steps."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.engine.layout.execution_graph import ExecutionGraph
from penstock.engine.plan.task_records import TaskRecord, TaskRecords
from penstock.record import TaskId
from penstock.task.punctuation import ScheduleState
from penstock.task.result import TaskState
from penstock.topology.application_info import NUMBER, ApplicationInfo
from penstock.topology.compatibility import CompatibilityReport


@dataclass(frozen=True)
class StateNames:
    """The stores, steps and topics in task records that have other names now."""

    stores: Mapping[str, str] = field(default_factory=dict)
    steps: Mapping[str, str] = field(default_factory=dict)
    topics: Mapping[str, str] = field(default_factory=dict)
    #: Stores that do not exist any more.
    forgotten: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls, old: ApplicationInfo, new: ApplicationInfo, changes: CompatibilityReport,
        application_id: str,
    ) -> StateNames:
        """Return the new names. A step is found by the stores that it uses."""
        steps: dict[str, str] = {}
        for name, other in changes.matches.continued.items():
            steps |= _match_steps(old.stores[name].steps, new.stores[other].steps)
        stores = changes.matches.renamed
        # An aggregation without a name has a repartition topic that is named after its store.
        return cls(stores, steps, {
            f"{application_id}-{name}-repartition": f"{application_id}-{other}-repartition"
            for name, other in stores.items()
        })

    def rename(self, record: TaskRecord) -> TaskRecord:
        """Return the record of a task with the new names."""
        state = record.state
        stores, topics = self.stores, self.topics
        return replace(
            record,
            state=replace(
                state,
                partition_times={
                    (topics.get(topic, topic), number): time
                    for (topic, number), time in state.partition_times.items()
                },
                clocks={
                    self._clock(name): time for name, time in state.clocks.items()
                    if _owner(name) not in self.forgotten
                },
                store_clocks={
                    stores.get(name, name): clocks for name, clocks in state.store_clocks.items()
                    if name not in self.forgotten
                },
                stream_schedules=self._schedules(state.stream_schedules),
                wall_schedules=self._schedules(state.wall_schedules),
            ),
            positions={
                stores.get(name, name): at for name, at in record.positions.items()
                if name not in self.forgotten
            },
            shuffled_offsets={
                topics.get(topic, topic): at for topic, at in record.shuffled_offsets.items()
            },
        )

    def _clock(self, name: str) -> str:
        owner = _owner(name)
        return self.stores.get(owner, self.steps.get(owner, owner)) + name[len(owner):]

    def _schedules(self, states: tuple[ScheduleState, ...]) -> tuple[ScheduleState, ...]:
        return tuple(
            state._replace(node=self.steps.get(state.node, state.node)) for state in states
        )


def _owner(clock: str) -> str:
    """Return the step or store of a clock, whose name is followed by what the clock measures."""
    return re.split("[/:]", clock, maxsplit=1)[0]


def _match_steps(before: tuple[str, ...], after: tuple[str, ...]) -> dict[str, str]:
    """Match the steps that use a store. Numbered steps keep their order, names are the user's."""
    named = {step for step in before if step in after and NUMBER.search(step) is None}
    names = [step for step in before if step not in named]
    others = [step for step in after if step not in named]
    if len(names) == len(others):
        return dict(zip(names, others, strict=True))
    # Other steps use the store as well now. The first one is the step that owns it.
    return {names[0]: others[0]} if names and others and not named else {}


def map_task_records(
    records: TaskRecords, changes: CompatibilityReport, graph: ExecutionGraph, names: StateNames
) -> dict[TaskId, TaskRecord]:
    """Return task -> the record from which it resumes. New tasks have none."""
    found = {}
    for task_id in graph.tasks:
        before = [
            records.tasks[TaskId(group, task_id.partition)]
            for group in changes.predecessors.get(task_id.subtopology, ())
            if TaskId(group, task_id.partition) in records.tasks
        ]
        if before:
            record = before[0] if len(before) == 1 else _merge_records(before)
            found[task_id] = names.rename(record)
    return found


def _merge_records(records: list[TaskRecord]) -> TaskRecord:
    """Merge the records of several tasks: their names are disjoint, and the latest clock wins."""
    states = [record.state for record in records]
    last = max(records, key=lambda record: record.batch)
    times: dict[tuple[str, int], int] = {}
    for state in states:
        for at, time in state.partition_times.items():
            times[at] = max(time, times.get(at, time))
    due = [each.next_wall_punctuation for each in records if each.next_wall_punctuation is not None]
    return TaskRecord(
        last.batch, last.attempt,
        TaskState(
            max(state.stream_time for state in states), times,
            {name: time for state in states for name, time in state.clocks.items()},
            {name: clocks for state in states for name, clocks in state.store_clocks.items()},
            tuple(each for state in states for each in state.stream_schedules),
            tuple(each for state in states for each in state.wall_schedules),
            max(state.null_keys_sent for state in states),
        ),
        {name: at for record in records for name, at in record.positions.items()},
        {name: at for record in records for name, at in record.shuffled_offsets.items()},
        min(due, default=None),
    )
