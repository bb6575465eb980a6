"""Which lane runs which task: balanced, and sticky to lanes and hosts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from penstock.record import TaskId


def assign(
    tasks: Iterable[TaskId], lanes: Mapping[int, str], current: Mapping[TaskId, int],
    last_hosts: Mapping[TaskId, str], held: Mapping[int, Collection[TaskId]] | None = None,
) -> dict[TaskId, int]:
    """Return the lane of each task.

    `lanes`: the serial of each lane -> its host. `current`: task -> the lane that runs it.
    `last_hosts`: task -> the host that ran it last, which has its state. `held`: the serial of a
    lane -> the tasks that its host has any replica of, for tasks that have to move. The numbers of
    tasks of two lanes differ by one at most, and no task moves that need not.
    """
    tasks = list(tasks)
    if not lanes:
        return {}
    of_lane: dict[int, list[TaskId]] = {serial: [] for serial in lanes}
    for task_id in tasks:
        if current.get(task_id) in of_lane:
            of_lane[current[task_id]].append(task_id)
    most = -(-len(tasks) // len(lanes))
    for task_id in tasks:
        if current.get(task_id) in of_lane:
            continue
        # The host with the state comes first, while its lanes have room for the task.
        free = {serial: len(taken) for serial, taken in of_lane.items() if len(taken) < most}
        candidates = free or {serial: len(taken) for serial, taken in of_lane.items()}
        host = last_hosts.get(task_id)
        chosen = min(
            candidates, key=lambda serial: (lanes[serial] != host, candidates[serial], serial)
        )
        of_lane[chosen].append(task_id)
    _balance(of_lane, held or {})
    return {task_id: serial for serial, taken in of_lane.items() for task_id in taken}


def _balance(
    of_lane: dict[int, list[TaskId]], held: Mapping[int, Collection[TaskId]]
) -> None:
    """Move tasks from the lanes with the most to those with the fewest."""
    while True:
        most = max(of_lane, key=lambda serial: (len(of_lane[serial]), -serial))
        fewest = min(of_lane, key=lambda serial: (len(of_lane[serial]), serial))
        if len(of_lane[most]) - len(of_lane[fewest]) < 2:
            return
        moved = _choose(of_lane[most], of_lane[fewest], held.get(fewest, ()))
        of_lane[most].remove(moved)
        of_lane[fewest].append(moved)


def _choose(full: list[TaskId], empty: list[TaskId], held: Collection[TaskId]) -> TaskId:
    """Return the task to move: tasks of one sub-topology cost about the same, so each lane should
    have as many of them as the others. Among these, an old replica saves a part of a restore."""
    surplus = Counter(task_id.subtopology for task_id in full)
    surplus.subtract(task_id.subtopology for task_id in empty)
    return max(
        reversed(full), key=lambda task_id: (surplus[task_id.subtopology], task_id in held)
    )
