"""`TopologyTestDriver`: feed records to a topology, look at what comes out and at its stores."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from penstock.config import StreamsConfig
from penstock.record import NO_HEADERS, Headers, TaskId, as_headers
from penstock.task.blueprint import Blueprint
from penstock.task.global_state import GlobalState
from penstock.task.queue import RawRecord
from penstock.task.result import LoggedChange, Output, TaskResult
from penstock.task.runtime import Environment
from penstock.task.task import Task, partition_order
from penstock.testing.topics import TestInputTopic, TestOutputTopic
from penstock.topology.topology import Topology
from penstock.windows import instant_ms, to_ms


class TopologyTestDriver:
    """Runs a topology as Kafka Streams' own test driver does.

    One task holds all sub-topologies, every topic has one partition, and there is a commit after
    every record.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig | None = None,
        initial_wall_clock: datetime | int = 0,
    ) -> None:
        self._config = config or topology.config or StreamsConfig(application_id="test")
        self._wall = instant_ms(initial_wall_clock)
        self._offsets: dict[str, int] = {}
        self._produced: dict[str, deque[Output]] = {}
        self.printed_lines: list[tuple[str | None, str]] = []
        self._global = GlobalState(topology, self._config) if topology.global_stores else None
        environment = Environment(
            now=self._wall, global_stores=self._global.stores if self._global else {}
        )
        blueprint = Blueprint.of(topology, self._config)
        self._task = Task(blueprint, TaskId(0, 0), environment)
        self._task.start()
        self._subscriptions: dict[str, Any] = {}
        self._patterns: dict[str, Any] = {}
        self._subscribe(blueprint)
        self._closed = False

    def _subscribe(self, blueprint: Blueprint) -> None:
        readers = {}
        for source in blueprint.sources:
            if source.pattern is not None:
                readers[source.pattern.pattern] = source
                self._patterns[source.pattern.pattern] = source.pattern
            for topic in source.topics:
                readers[blueprint.topic(topic)] = source
        for topic, _ in partition_order((topic, 0) for topic in readers):
            self._task.subscribe(readers[topic].name, topic, 0)
            self._subscriptions[topic] = readers[topic]

    # ---- in ----------------------------------------------------------------------------------

    def pipe(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp: int,
        headers: Iterable[tuple[str, bytes | None]] = NO_HEADERS,
    ) -> None:
        """Feed one record of bytes and process all that follows from it."""
        queue = self._queue_of(topic)
        is_global = self._global is not None and topic in self._global.topics
        if queue is None and not is_global:
            known = sorted([*self._subscriptions, *(self._global.topics if self._global else ())])
            raise ValueError(f"Unknown topic: {topic}. The topology reads {', '.join(known)}.")
        if queue is not None:
            self._enqueue(queue, topic, timestamp, key, value, as_headers(headers))
            self._run()
        if is_global:
            self._update_global(topic, timestamp, key, value, as_headers(headers))

    def advance_wall_clock_time(self, advance: timedelta | int) -> None:
        """Move the wall clock: punctuations that become due fire."""
        self._wall += to_ms(advance)
        self._task.punctuate_wall_clock(self._wall)
        self._commit()
        self._run()

    def create_input_topic(
        self, topic: str, key: Any = None, value: Any = None, *,
        start: datetime | int | None = None, auto_advance: timedelta | int = 0,
    ) -> TestInputTopic[Any, Any]:
        """A topic to feed values to; `key` and `value` are their serdes."""
        first = self._wall if start is None else instant_ms(start)
        return TestInputTopic(
            self, topic, key or self._config.default_key_serde,
            value or self._config.default_value_serde, first, to_ms(auto_advance),
        )

    def create_output_topic(
        self, topic: str, key: Any = None, value: Any = None
    ) -> TestOutputTopic[Any, Any]:
        """A topic to read results from; `key` and `value` are their serdes."""
        return TestOutputTopic(
            self, topic, key or self._config.default_key_serde,
            value or self._config.default_value_serde,
        )

    # ---- out ---------------------------------------------------------------------------------

    def produced_topic_names(self) -> frozenset[str]:
        """The topics that were written so far, internal ones too."""
        return frozenset(self._produced)

    def read_raw(self, topic: str) -> list[Output]:
        """The records of a topic that were not read yet."""
        queue = self._produced.get(topic)
        if queue is None:
            return []
        records = list(queue)
        queue.clear()
        return records

    def queue_of(self, topic: str) -> deque[Output]:
        """The records of a topic that were not read yet, to be taken from the left."""
        return self._produced.setdefault(topic, deque())

    def metrics(self) -> dict[str, int]:
        """The counters so far."""
        totals = self._task.runtime.all_counters()
        if self._global is not None:
            totals["dropped-records-total"] += self._global.runtime.dropped
        return totals

    def get_all_state_stores(self) -> dict[str, Any]:
        """All stores by name, global ones too."""
        return {**self._task.runtime.stores, **(self._global.stores if self._global else {})}

    def get_state_store(self, name: str) -> Any:
        """The store of that name."""
        stores = self.get_all_state_stores()
        if name not in stores:
            raise KeyError(
                f"No store {name!r}. Stores: {', '.join(map(repr, sorted(stores))) or 'none'}."
            )
        return stores[name]

    def close(self) -> None:
        """Close processors and stores."""
        if not self._closed:
            self._closed = True
            self._task.close()
            if self._global is not None:
                self._global.close()

    def __enter__(self) -> TopologyTestDriver:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # ---- inside ------------------------------------------------------------------------------

    def _queue_of(self, topic: str) -> str | None:
        if topic in self._subscriptions:
            return topic
        for text, pattern in self._patterns.items():
            if pattern.fullmatch(topic):
                return text
        return None

    def _enqueue(
        self, queue: str, topic: str, timestamp: int, key: bytes | None, value: bytes | None,
        headers: Headers,
    ) -> None:
        offset = self._next_offset(queue)
        record = RawRecord(topic, 0, offset, timestamp, key, value, headers)
        self._task.add_records((queue, 0), (record,))

    def _next_offset(self, queue: str) -> int:
        offset = self._offsets.get(queue, 0)
        self._offsets[queue] = offset + 1
        return offset

    def _run(self) -> None:
        task = self._task
        while task.has_records and task.may_process(self._wall):
            task.process_next(self._wall)
            self._commit()

    def _commit(self) -> None:
        result = self._task.commit()
        self._task.advance()
        self._take(result)

    def _take(self, result: TaskResult) -> None:
        self.printed_lines.extend(result.printed)
        for change in map(LoggedChange._make, result.changelog):
            topic = f"{self._config.application_id}-{change.store}-changelog"
            self.queue_of(topic).append(
                Output(topic, 0, change.key, change.value, change.timestamp, change.headers)
            )
        for output in map(Output._make, result.outputs):
            self.queue_of(output.topic).append(output)
            queue = self._queue_of(output.topic)
            if queue is not None:
                self._enqueue(
                    queue, output.topic, output.timestamp, output.key, output.value, output.headers
                )
            if self._global is not None and output.topic in self._global.topics:
                self._update_global(
                    output.topic, output.timestamp, output.key, output.value, output.headers
                )

    def _update_global(
        self, topic: str, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers
    ) -> None:
        assert self._global is not None
        offset = self._next_offset(f"{topic} (global)")
        self._global.update(RawRecord(topic, 0, offset, timestamp, key, value, headers))
