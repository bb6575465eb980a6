"""`Overview`: what the page shows of an application, in one JSON document.

The document is made at most once a second, whatever the number of browsers.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from penstock.engine.lease import instance_name
from penstock.engine.lifecycle import State
from penstock.engine.observe.metadata import ThreadMetadata
from penstock.errors import StreamsException
from penstock.metrics import MetricName
from penstock.queries.http.json_values import encode
from penstock.queries.state_reader import InstanceInfo, StateReader
from penstock.web.app_topics import AppTopics
from penstock.web.flow import Flow
from penstock.web.graph import NodeGraph
from penstock.web.messages import RecentMessages
from penstock.web.shared_log import SharedLog
from penstock.web.store_rows import StoreRows
from penstock.web.summary import summarize
from penstock.web.topic_rows import TopicRows

INTERVAL_S = 1.0
SLOW_INTERVAL_S = 5.0
SHOWN_MESSAGES = 10
#: The charts cover this time. Without a browser there is one sample in `IDLE_INTERVAL_S`.
HISTORY_S = 300
IDLE_INTERVAL_S = 5.0


class Overview:
    """Makes the document. Any thread may call it.

    Values that change with every record are new in every document. Instances, lanes, the
    positions of stores and the partitions of topics are read every `SLOW_INTERVAL_S`.
    """

    def __init__(
        self, reader: StateReader, log: SharedLog, messages: RecentMessages, topics: AppTopics, *,
        application: Any, allows_actions: bool,
    ) -> None:
        """`application`: the instance, or a reader that runs no tasks."""
        self._reader = reader
        self._log = log
        self._messages = messages
        self._application = application
        self._making = threading.Lock()
        self._made_at = float("-inf")
        self._encoded = b""
        self._topics = TopicRows(reader.config.application_id, topics)
        self._stores = StoreRows()
        self._graph = NodeGraph(reader.topology.nodes)
        self._flow = Flow(self._graph)
        #: The values of the charts: those of the last `HISTORY_S`.
        self._samples: deque[dict[str, Any]] = deque(maxlen=HISTORY_S)
        self._fixed = {
            "application": reader.config.application_id, "allows_actions": allows_actions,
            "dead_letter_topics": list(reader.config.dead_letter_topics()),
        }
        self._slow: dict[str, Any] = {}
        self._slow_made_at = float("-inf")

    def document(self) -> bytes:
        """Return the document as JSON, at most `INTERVAL_S` old."""
        with self._making:
            if time.monotonic() >= self._made_at + INTERVAL_S:
                document = self._make()
                self._samples.append(document["sample"])
                self._encoded = encode(document)
                self._made_at = time.monotonic()
            return self._encoded

    def history(self) -> dict[str, Any]:
        """Return the values of the charts of the last `HISTORY_S`, oldest first."""
        with self._making:
            first = now_ms() - HISTORY_S * 1000
            return {"samples": [each for each in self._samples if each["time"] >= first]}

    def collect(self) -> None:
        """Make a document for the history alone, if no browser has asked for one lately."""
        if time.monotonic() >= self._made_at + IDLE_INTERVAL_S - INTERVAL_S:
            self.document()

    def _make(self) -> dict[str, Any]:
        reader, now = self._reader, time.monotonic()
        if now >= self._slow_made_at + SLOW_INTERVAL_S:
            self._topics.forget_partitions()
            self._slow = {
                "threads": self._threads(),
                "stores": _unless_unavailable(lambda: self._stores.read(reader, now), []),
                **self._instances(),
            }
            self._slow_made_at = now
        summary = summarize(_unless_unavailable(reader.metrics, {}))
        topics = _unless_unavailable(lambda: self._log.call(self._topics.read), [])
        flow = self._flow.describe(summary, topics, now, self._lanes())
        return {
            **self._fixed,
            "state": reader.state.value, "runs_tasks": self._runs_tasks,
            "paused": getattr(self._application, "is_paused", False),
            "sample": {
                "time": now_ms(),
                "records_per_s": flow["records_per_s"], "latency_ms": flow["latency_ms"],
                "commit_ms": summary.thread.get("commit_ms"),
                "lag": sum(row["lag"] or 0 for row in topics),
            },
            "not_ready": _unless_unavailable(reader.not_ready_reason, "The log is unavailable."),
            **self._slow,
            "stores": [{**row, **summary.stores.get(row["name"], {})}
                       for row in self._slow["stores"]],
            "messages": self._messages.newest_first()[:SHOWN_MESSAGES],
            "warnings": self._messages.count,
            **flow,
            "patterns": self._topics.patterns,
            "joins": self._graph.join_rows(summary.joins),
            "failed_threads": summary.failed_threads,
            "tasks": {
                name: {**row, "restore": restore_of(row)}
                for name, row in sorted(summary.tasks.items())
            },
        }

    def _instances(self) -> dict[str, Any]:
        """The instances, and the one that holds the lease."""
        found: list[InstanceInfo] = _unless_unavailable(self._reader.instances, [])
        holder = getattr(self._application, "waits_for", None)
        if holder is None and self._reader.state is State.RUNNING and self._runs_tasks:
            holder = instance_name(self._reader.config)
        if holder is None:
            # A query node knows the instances with an address only.
            holder = next((each.name for each in found if each.is_active), None)
        return {"lease_holder": holder, "instances": [
            {
                "address": f"{each.address.host}:{each.address.port}", "name": each.name,
                "is_active": each.is_active,
                "stores": list(each.stores), "standby_stores": list(each.standby_stores),
            }
            for each in found
        ]}

    @property
    def _runs_tasks(self) -> bool:
        return hasattr(self._application, "metadata_for_local_threads")

    def _lanes(self) -> list[list[str]]:
        """The tasks of each lane. In batch mode, the tasks of a batch run side by side."""
        if not self._reader.config.is_continuous:
            return []
        return [thread["tasks"] for thread in self._slow["threads"]]

    def _threads(self) -> list[dict[str, Any]]:
        """The threads of the instance; in continuous mode its lanes, with host and process."""
        if not self._runs_tasks:
            return []
        threads: frozenset[ThreadMetadata] = self._application.metadata_for_local_threads()
        return [
            {
                "name": thread.thread_name, "state": thread.thread_state, "host": thread.host,
                "tasks": sorted(str(task.task_id) for task in thread.active_tasks),
                "standby_tasks": sorted(str(task.task_id) for task in thread.standby_tasks),
            }
            for thread in sorted(threads, key=lambda thread: (thread.host, thread.thread_name))
        ]


def restore_of(task: Mapping[str, float]) -> list[int] | None:
    """Return the restored records and all records of a restore; None if there is none."""
    remaining, progress = task.get("remaining", 0), task.get("progress", 0.0)
    if remaining <= 0 or progress >= 1:
        return None
    whole = round(remaining / (1 - progress))
    return [int(whole - remaining), whole]


def now_ms() -> int:
    """Return the time of the wall clock."""
    return time.time_ns() // 1_000_000


def _unless_unavailable(read: Callable[[], Any], default: Any) -> Any:
    """Return a default while the log is unavailable, or the application starts or rebalances."""
    try:
        return read()
    except StreamsException:
        return default


def metric_rows(metrics: Mapping[MetricName, float | int | str]) -> list[list[Any]]:
    """Return all metrics: group, name, tags and value. NaN and the infinities are None."""
    return [
        [metric.group, metric.name, dict(metric.tags),
         None if isinstance(value, float) and not math.isfinite(value) else value]
        for metric, value in metrics.items()
    ]
