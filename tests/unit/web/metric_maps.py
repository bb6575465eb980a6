"""Metrics as an instance reports them, for tests of the dashboard."""

from __future__ import annotations

from penstock.metrics import MetricName

Metrics = dict[MetricName, float | int | str]


def metric(group: str, name: str, value: float | str, **tags: str) -> Metrics:
    """One metric; `task_id="0_0"` is the tag `task-id`."""
    pairs = tuple((tag.replace("_", "-"), text) for tag, text in tags.items())
    return {MetricName(f"stream-{group}-metrics", name, (("thread-id", "t"), *pairs)): value}


def node(name: str, counter: str, value: float, task: str = "0_0") -> Metrics:
    """A metric of a node."""
    return metric("processor-node", counter, value, task_id=task, processor_node_id=name)


def topic(name: str, counter: str, value: float, of: str, task: str = "0_0") -> Metrics:
    """A metric of a topic that a source reads, or a sink writes."""
    return metric("topic", counter, value, task_id=task, processor_node_id=of, topic=name)


def task(name: str, counter: str, value: float) -> Metrics:
    """A metric of a task."""
    return metric("task", counter, value, task_id=name)
