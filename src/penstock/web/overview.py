"""`Overview`: what the page shows of an application, in one JSON document.

The document is made at most once a second, whatever the number of browsers.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any

from penstock.config import StreamsConfig
from penstock.errors import StreamsException
from penstock.log.base import Log
from penstock.log.errors import UnknownTopic
from penstock.log.types import TopicPartition
from penstock.queries.state_reader import StateReader
from penstock.topology.nodes import SinkNode, SourceNode
from penstock.topology.topology import Topology
from penstock.web.messages import RecentMessages
from penstock.web.shared_log import SharedLog

INTERVAL_S = 1.0
#: Parts of the names of settings whose values are never shown.
_SECRET = ("password", "secret", "token", "jaas", "ssl.key", "credential", "username", "user.info")


class Overview:
    """Makes the document. Any thread may call it."""

    def __init__(
        self, reader: StateReader, log: SharedLog, messages: RecentMessages, *,
        application: Any, allows_actions: bool,
    ) -> None:
        """`application`: the instance, or a reader that runs no tasks."""
        self._reader = reader
        self._log = log
        self._messages = messages
        self._application = application
        self._allows_actions = allows_actions
        self._making = threading.Lock()
        self._made_at = float("-inf")
        self._document: dict[str, Any] = {}
        self._topics = topic_names(reader.topology, reader.config)

    def document(self) -> dict[str, Any]:
        """Return the document, at most `INTERVAL_S` old."""
        with self._making:
            if time.monotonic() >= self._made_at + INTERVAL_S:
                self._document = self._make()
                self._made_at = time.monotonic()
            return self._document

    def _make(self) -> dict[str, Any]:
        reader = self._reader
        return {
            "application": reader.config.application_id,
            "state": reader.state.value,
            "paused": getattr(self._application, "is_paused", False),
            "threads": self._threads(),
            "time": time.time_ns() // 1_000_000,
            "allows_actions": self._allows_actions,
            "dead_letter_topics": list(reader.config.dead_letter_topics()),
            "not_ready": _unless_unavailable(reader.not_ready_reason, "The log is unavailable."),
            "metrics": [
                [metric.group, metric.name, dict(metric.tags), _shown(value)]
                for metric, value in reader.metrics().items()
            ],
            "topics": _unless_unavailable(lambda: self._log.call(self._topic_rows), []),
            "stores": _unless_unavailable(self._stores, []),
            "messages": self._messages.newest_first(),
            "instances": _unless_unavailable(self._instances, []),
        }

    def _instances(self) -> list[dict[str, Any]]:
        return [
            {
                "address": f"{each.address.host}:{each.address.port}",
                "stores": list(each.stores), "standby_stores": list(each.standby_stores),
            }
            for each in self._reader.instances()
        ]

    def _threads(self) -> list[dict[str, Any]]:
        """The threads of the instance; in continuous mode its lanes, with host and process."""
        threads: frozenset[Any] = getattr(
            self._application, "metadata_for_local_threads", frozenset
        )()
        return [
            {
                "name": thread.thread_name, "state": thread.thread_state,
                "tasks": sorted(str(task.task_id) for task in thread.active_tasks),
                "standby_tasks": sorted(str(task.task_id) for task in thread.standby_tasks),
            }
            for thread in sorted(threads, key=lambda thread: thread.thread_name)
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

    def _topic_rows(self, log: Log) -> list[dict[str, Any]]:
        """The topics of the topology: their ends, and how far the application has read them."""
        rows = []
        for name, is_read in self._topics.items():
            try:
                partitions = [
                    TopicPartition(name, number) for number in range(log.topic(name).partitions)
                ]
            except UnknownTopic:
                continue
            bounds = log.offsets(partitions)
            lag = None
            if is_read:
                committed = log.committed(self._reader.config.application_id, partitions)
                lag = sum(
                    max(0, bounds[at].end - max(bounds[at].start, committed[at].offset))
                    for at in partitions if at in committed
                )
            rows.append({
                "name": name, "partitions": len(partitions), "lag": lag,
                "end": sum(each.end for each in bounds.values()),
                "records": sum(each.end - each.start for each in bounds.values()),
            })
        return rows


def _unless_unavailable(read: Callable[[], Any], default: Any) -> Any:
    """Return a default while the log is unavailable, or the application starts or rebalances."""
    try:
        return read()
    except StreamsException:
        return default


def topic_names(topology: Topology, config: StreamsConfig) -> dict[str, bool]:
    """Return the topics of a topology, and whether it reads them. Internal ones have full names."""
    def full(name: str) -> str:
        return f"{config.application_id}-{name}" if name in topology.internal_topics else name

    found: dict[str, bool] = {}
    for node in topology.nodes:
        if isinstance(node, SourceNode):
            found |= {full(topic): True for topic in node.topics}
        elif isinstance(node, SinkNode) and isinstance(node.topic, str):
            found.setdefault(full(node.topic), False)
    for store in topology.global_stores.values():
        found.setdefault(store.topic, False)
    for topic in config.dead_letter_topics():
        found.setdefault(topic, False)
    return found


def settings_of(config: StreamsConfig) -> dict[str, str]:
    """Return the configuration without secrets."""
    found = {name: str(value) for name, value in config.app_configs().items()}
    return {
        name: "(hidden)" if any(word in name.lower() for word in _SECRET) else value
        for name, value in sorted(found.items())
    }


def _shown(value: float | int | str) -> float | int | str | None:
    return None if isinstance(value, float) and not math.isfinite(value) else value
