"""`summarize`: what the page shows of the metrics, in one pass over them.

An application has hundreds of metrics. The page needs sums over tasks for its nodes, and a few
values for each task; the list of all metrics has a request of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.metric_catalogue import CLIENT, JOIN, NODE, STATE, TASK, THREAD, TOPIC
from penstock.metrics import MetricName

Value = float | int | str

#: The counters of joins, as the page names them.
JOIN_COUNTERS = ("matched", "unmatched-left", "unmatched-right", "late", "expired")
_JOINS = {f"{name}-total": name for name in JOIN_COUNTERS}
#: The metrics of a task, and the members of its row.
_TASKS = {
    "process-total": "records", "process-rate": "rate", "dropped-records-total": "dropped",
    "restore-remaining-records-total": "remaining", "restore-progress": "progress",
    "record-lateness-max": "lateness_ms",
}
_THREAD = {
    "process-total": "records", "process-rate": "records_per_s", "commit-latency-avg": "commit_ms",
}
#: The operations of stores at the level DEBUG.
_STORES = {
    **{f"{name}-rate": "reads_per_s" for name in ("get", "fetch", "all", "range", "prefix-scan")},
    **{f"{name}-rate": "writes_per_s"
       for name in ("put", "put-if-absent", "put-all", "delete", "remove")},
}
_EDGES = ("records-consumed-total", "records-produced-total")


@dataclass
class Summary:
    """The metrics of an instance, summed over its tasks."""

    #: Node -> records so far.
    totals: dict[str, float] = field(default_factory=dict)
    #: Node -> records/s of the last minute.
    rates: dict[str, float] = field(default_factory=dict)
    #: Node -> milliseconds from the timestamp of a record to the node, of the slowest task.
    latencies: dict[str, float] = field(default_factory=dict)
    #: Node -> task -> the share of the last minute that it spent in the node, if it is measured.
    busy: dict[str, dict[str, float]] = field(default_factory=dict)
    #: The same for the punctuators of the node.
    punctuating: dict[str, dict[str, float]] = field(default_factory=dict)
    #: (topic, node) -> records that a source has read, or a sink has written.
    edges: dict[tuple[str, str], float] = field(default_factory=dict)
    #: Task -> member -> value.
    tasks: dict[str, dict[str, float]] = field(default_factory=dict)
    #: Node of a join -> counter -> value.
    joins: dict[str, dict[str, float]] = field(default_factory=dict)
    #: Store -> reads and writes per second of the last minute, if they are measured.
    stores: dict[str, dict[str, float]] = field(default_factory=dict)
    #: The records, the records/s and the time of a commit of the whole instance.
    thread: dict[str, float] = field(default_factory=dict)
    #: How often the thread was replaced or a lane was lost.
    failed_threads: int = 0


def summarize(metrics: Mapping[MetricName, Value]) -> Summary:
    """Return what the page shows of the metrics."""
    found = Summary()
    for (group, name, tags), value in metrics.items():
        if isinstance(value, str) or not math.isfinite(value):
            continue
        if group == NODE:
            _add_node(found, name, dict(tags), value)
        elif group == TOPIC:
            if name in _EDGES:
                named = dict(tags)
                _add(found.edges, (named["topic"], named["processor-node-id"]), value)
        elif group == TASK:
            if name in _TASKS:
                row = found.tasks.setdefault(dict(tags)["task-id"], {})
                row[_TASKS[name]] = value
        elif group == JOIN:
            if name in _JOINS:
                row = found.joins.setdefault(dict(tags)["processor-node-id"], {})
                _add(row, _JOINS[name], value)
        elif group == STATE:
            if name in _STORES:
                # The name of the tag depends on the kind of the store.
                row = found.stores.setdefault(tags[-1][1], dict.fromkeys(_STORES.values(), 0.0))
                _add(row, _STORES[name], value)
        elif group == THREAD and name in _THREAD:
            found.thread[_THREAD[name]] = value
        elif group == CLIENT and name == "failed-stream-threads":
            found.failed_threads = int(value)
    # At INFO, sources and sinks have no counter of their own, but their topics have.
    read_or_written: dict[str, float] = {}
    for (_, node), records in found.edges.items():
        _add(read_or_written, node, records)
    found.totals = read_or_written | found.totals
    return found


def _add_node(found: Summary, name: str, tags: dict[str, str], value: float) -> None:
    node = tags["processor-node-id"]
    if name == "process-total":
        _add(found.totals, node, value)
    elif name == "process-rate":
        _add(found.rates, node, value)
    elif name == "record-e2e-latency-avg":
        found.latencies[node] = max(found.latencies.get(node, 0.0), value)
    elif name == "process-ratio":
        found.busy.setdefault(node, {})[tags["task-id"]] = value
    elif name == "punctuate-ratio":
        found.punctuating.setdefault(node, {})[tags["task-id"]] = value


def _add(sums: dict[Any, float], key: Any, value: float) -> None:
    sums[key] = sums.get(key, 0) + value
