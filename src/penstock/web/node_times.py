"""`node_times`: the time that each node needs for a record, and the nodes that keep a lane busy.

Tasks measure it if `metrics.recording.level` is DEBUG or TRACE. The time of the children of a node
is not part of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.web.durations import duration
from penstock.web.summary import Summary

#: A node is a hot spot if a lane spends so much of its time in it.
HOT_SHARE = 0.5


@dataclass(frozen=True)
class NodeTime:
    """The time of a node in the last minute, over all tasks."""

    #: Milliseconds for a record, without punctuators; None without records.
    each_ms: float | None
    #: The share of the node in the time of all nodes.
    share: float
    #: The share of the node in the time of the lane that spends most in it.
    busiest: float


def node_times(
    summary: Summary, lanes: Sequence[Sequence[str]] = ()
) -> dict[str, NodeTime]:
    """Return the nodes that are measured.

    Args:
        summary: The metrics.
        lanes: The tasks of each lane. A lane runs one task at a time. Without lanes, each task is
            taken for one.
    """
    busy = {
        node: _added(summary.busy.get(node, {}), summary.punctuating.get(node, {}))
        for node in {**summary.busy, **summary.punctuating}
    }
    whole = sum(sum(tasks.values()) for tasks in busy.values())
    return {
        node: NodeTime(
            _each_ms(sum(summary.busy.get(node, {}).values()), summary.rates.get(node, 0.0)),
            sum(tasks.values()) / whole if whole else 0.0,
            _busiest(tasks, lanes),
        )
        for node, tasks in busy.items()
    }


def busy_nodes(times: Mapping[str, NodeTime], place: str) -> Iterator[dict[str, str]]:
    """The nodes that keep a `place` (a lane, a task) busy, as hot spots: the busiest first."""
    for name, time in sorted(times.items(), key=lambda each: -each[1].busiest):
        if time.busiest >= HOT_SHARE:
            each = "" if time.each_ms is None else f", {duration(time.each_ms)} for a record"
            yield {
                "kind": "node", "name": name,
                "reason": f"takes {time.busiest:.0%} of the time of a {place}{each}",
            }


def _added(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {task: one.get(task, 0.0) + other.get(task, 0.0) for task in {**one, **other}}


def _each_ms(ratio: float, rate: float) -> float | None:
    return ratio * 1000 / rate if rate else None


def _busiest(tasks: Mapping[str, float], lanes: Sequence[Sequence[str]]) -> float:
    in_lanes = {task for lane in lanes for task in lane}
    return max((
        *(sum(tasks.get(task, 0.0) for task in lane) for lane in lanes),
        *(ratio for task, ratio in tasks.items() if task not in in_lanes),
    ), default=0.0)
