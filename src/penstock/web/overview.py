"""`Overview`: what the page shows of an application, in one JSON document.

The document is made at most once a second, whatever the number of browsers.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from penstock.config import StreamsConfig
from penstock.engine.lease import instance_name
from penstock.engine.lifecycle import State
from penstock.engine.observe.metadata import ThreadMetadata
from penstock.errors import StreamsException
from penstock.metrics import MetricName
from penstock.queries.http.json_values import encode
from penstock.queries.state_reader import InstanceInfo, StateReader
from penstock.web.flow import Flow
from penstock.web.messages import RecentMessages
from penstock.web.shared_log import SharedLog
from penstock.web.summary import summarize
from penstock.web.topic_rows import TopicRows

INTERVAL_S = 1.0
SLOW_INTERVAL_S = 5.0
SHOWN_MESSAGES = 10
#: Parts of the names of settings whose values are never shown.
_SECRET = ("password", "secret", "token", "jaas", "ssl.key", "credential", "username", "user.info")


class Overview:
    """Makes the document. Any thread may call it.

    Values that change with every record are new in every document. Instances, lanes, the
    positions of stores and the partitions of topics are read every `SLOW_INTERVAL_S`.
    """

    def __init__(
        self, reader: StateReader, log: SharedLog, messages: RecentMessages, *,
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
        self._topics = TopicRows(reader.topology, reader.config)
        self._flow = Flow()
        self._restores = RestoreProgress()
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
                self._encoded = encode(self._make())
                self._made_at = time.monotonic()
            return self._encoded

    def _make(self) -> dict[str, Any]:
        reader, now = self._reader, time.monotonic()
        if now >= self._slow_made_at + SLOW_INTERVAL_S:
            self._topics.forget_partitions()
            self._slow = {
                "threads": self._threads(),
                "stores": _unless_unavailable(self._stores, []),
                **self._instances(),
            }
            self._slow_made_at = now
        summary = summarize(reader.metrics())
        topics = _unless_unavailable(lambda: self._log.call(self._topics.read), [])
        return {
            **self._fixed,
            "state": reader.state.value,
            "paused": getattr(self._application, "is_paused", False),
            "time": time.time_ns() // 1_000_000,
            "not_ready": _unless_unavailable(reader.not_ready_reason, "The log is unavailable."),
            **self._slow,
            "messages": self._messages.newest_first()[:SHOWN_MESSAGES],
            **self._flow.describe(summary, topics, now),
            "thread": summary.thread,
            "joins": summary.joins,
            "tasks": {
                name: {**row, "restore": self._restores.of(
                    name, row.get("restored", 0), row.get("remaining", 0)
                )}
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
            holder = next((each.name for each in found if each.topic_partitions), None)
        return {"lease_holder": holder, "instances": [
            {
                "address": f"{each.address.host}:{each.address.port}", "name": each.name,
                "is_active": bool(each.topic_partitions),
                "stores": list(each.stores), "standby_stores": list(each.standby_stores),
            }
            for each in found
        ]}

    @property
    def _runs_tasks(self) -> bool:
        return hasattr(self._application, "metadata_for_local_threads")

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

    def _stores(self) -> list[dict[str, Any]]:
        lags = self._reader.lags()
        return [
            {
                "name": name, "kind": store.kind, "partitions": len(store.partitions),
                "lag": sum(
                    max(0, each.end - each.position) for each in lags.get(name, {}).values()
                ),
            }
            for name, store in sorted(self._reader.stores().items())
        ]


class RestoreProgress:
    """How much of the restore of each task is done. One thread uses it at a time."""

    def __init__(self) -> None:
        #: Task -> its restored records when its last restore was complete.
        self._before: dict[str, float] = {}
        #: Task -> the records of its current restore.
        self._whole: dict[str, float] = {}

    def of(self, task: str, restored: float, remaining: float) -> list[int] | None:
        """Return the restored records and all records of a restore; None if there is none.

        Args:
            task: The task.
            restored: The records of all restores of the task so far.
            remaining: The records that are still to be restored.
        """
        if remaining <= 0:
            self._before[task] = restored
            self._whole.pop(task, None)
            return None
        now = remaining + restored - self._before.get(task, 0)
        whole = self._whole[task] = max(now, self._whole.get(task, 0))
        return [int(whole - remaining), int(whole)]


def _unless_unavailable(read: Callable[[], Any], default: Any) -> Any:
    """Return a default while the log is unavailable, or the application starts or rebalances."""
    try:
        return read()
    except StreamsException:
        return default


def settings_of(config: StreamsConfig) -> dict[str, str]:
    """Return the configuration without secrets."""
    found = {name: str(value) for name, value in config.app_configs().items()}
    return {
        name: "(hidden)" if any(word in name.lower() for word in _SECRET) else value
        for name, value in sorted(found.items())
    }


def metric_rows(metrics: Mapping[MetricName, float | int | str]) -> list[list[Any]]:
    """Return all metrics: group, name, tags and value. NaN and the infinities are None."""
    return [
        [metric.group, metric.name, dict(metric.tags),
         None if isinstance(value, float) and not math.isfinite(value) else value]
        for metric, value in metrics.items()
    ]
