"""`TopologyTestDriver`: feed records to a topology, look at what comes out and at its stores."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from penstock.config import StreamsConfig
from penstock.partitioning import partition_of
from penstock.record import NO_HEADERS, TaskId, as_headers
from penstock.task.result import Output
from penstock.testing.store_access import StoreAccess
from penstock.testing.task_layout import one_task, task_for_each_partition
from penstock.testing.task_runner import TaskRunner
from penstock.testing.topics import TestInputTopic, TestOutputTopic
from penstock.topology.topology import Topology
from penstock.windows import instant_ms, to_ms


class TopologyTestDriver(StoreAccess):
    """Runs a topology in the test's own process, with the real tasks and the real stores.

    By default as Kafka Streams' own driver does: one task holds all sub-topologies, every topic has
    one partition, there is a commit after every record, and processors live as long as the driver.

    `partitions`: a number for all topics, or {topic: number}. Then there is a task for each
    sub-topology and partition, and a record goes to the partition of its key.
    `commit_interval`: commits happen only when the wall clock has moved on by this much, when
    `commit` is called, or when a processor asks for one. `auto_commit=False`, or an interval of
    `timedelta.max`: not even by the wall clock. Until a commit, outputs are not visible,
    caches hold what they hold, and sub-topologies hear nothing of each other.
    `batch_size`: `new_batch` after so many records. `show_printed`: whether the lines of
    `KStream.print` go to standard output and to their files, too.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig | None = None,
        initial_wall_clock: datetime | int = 0,
        *,
        partitions: int | Mapping[str, int] | None = None,
        commit_interval: timedelta | int | None = None,
        auto_commit: bool = True,
        batch_size: int | None = None,
        show_printed: bool = True,
    ) -> None:
        if not isinstance(topology, Topology):
            raise TypeError(
                f"TopologyTestDriver takes a Topology, not a {type(topology).__name__}. "
                "A StreamsBuilder gives one with build()."
            )
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"A batch has at least one record, not {batch_size}.")
        self._config = config or topology.config or StreamsConfig(application_id="test")
        now = instant_ms(initial_wall_clock)
        # Nothing is as long as the longest duration: then only the test commits.
        auto_commit = auto_commit and commit_interval != timedelta.max
        self._every_record = auto_commit and commit_interval is None
        self._interval_ms = (
            to_ms(commit_interval) if auto_commit and commit_interval is not None else None
        )
        placement = (
            one_task(topology, self._config) if partitions is None
            else task_for_each_partition(topology, self._config, partitions)
        )
        self._cluster = TaskRunner(
            topology, self._config, placement, now, commit_every_record=self._every_record
        )
        self._last_commit = now
        self._batch_size = batch_size
        self._in_batch = 0
        self._null_keys: dict[str, int] = {}
        self._show_printed = show_printed
        self._shown = 0
        self._files: set[str] = set()
        self._closed = False

    # ---- in ----------------------------------------------------------------------------------

    def pipe(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp: int,
        headers: Iterable[tuple[str, bytes | None]] = NO_HEADERS, *, partition: int | None = None,
    ) -> None:
        """Feed one record of bytes and process all that follows from it."""
        cluster = self._cluster
        if not cluster.reads(topic):
            known = {queue for queue, _ in cluster.placement.readers}
            if cluster.global_state is not None:
                known |= cluster.global_state.topics
            raise ValueError(
                f"Unknown topic: {topic}. The topology reads {', '.join(sorted(known))}."
            )
        number = self._partition(topic, key) if partition is None else partition
        if not 0 <= number < cluster.placement.partitions_of(topic):
            raise ValueError(
                f"Topic {topic} has no partition {number}; it has "
                f"{cluster.placement.partitions_of(topic)}."
            )
        try:
            cluster.receive(topic, number, timestamp, (key, value, as_headers(headers)))
        finally:
            self._show()
        self._in_batch += 1
        if self._in_batch == self._batch_size:
            self.new_batch()

    def create_input_topic(
        self, topic: str, key: Any = None, value: Any = None, *,
        start: datetime | int | None = None, auto_advance: timedelta | int = 0,
    ) -> TestInputTopic[Any, Any]:
        """A topic to feed values to; `key` and `value` are their serdes."""
        first = self._cluster.now if start is None else instant_ms(start)
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

    # ---- time, commits, batches, crashes -----------------------------------------------------

    def advance_wall_clock_time(self, advance: timedelta | int) -> None:
        """Move the wall clock: punctuations that become due fire."""
        advance_ms = to_ms(advance)
        if advance_ms < 0:
            raise ValueError(f"The wall clock must not go backwards: {advance}.")
        cluster = self._cluster
        cluster.now += advance_ms
        try:
            cluster.punctuate()
            if self._every_record:
                cluster.commit_once()
            elif self._commit_is_due():
                cluster.commit()
                self._last_commit = cluster.now
            cluster.run()
        finally:
            self._show()

    def commit(self) -> None:
        """Let caches go and make visible what was done since the last commit.

        A record that one sub-topology sends to another is processed, and that committed in turn,
        until nothing moves.
        """
        try:
            self._cluster.commit()
        finally:
            self._show()
        self._last_commit = self._cluster.now

    def new_batch(self) -> None:
        """Commit, then put every task together anew, as an application does between batches.

        Processors are new; what is in stores, clocks and schedules goes on. Stores have to be asked
        for again.
        """
        self._in_batch = 0
        try:
            self._cluster.new_batch()
        finally:
            self._show()
        self._last_commit = self._cluster.now

    def crash(self) -> None:
        """Lose all that is not committed, and start again from what is.

        Stores are restored from their changelogs (those without one are empty) and have to be asked
        for again; then the input is read again from the committed offsets, in the order in which it
        came. Processors are not closed: they had no time.
        """
        self._in_batch = 0
        try:
            self._cluster.crash()
        finally:
            self._show()

    # ---- out ---------------------------------------------------------------------------------

    @property
    def tasks(self) -> tuple[TaskId, ...]:
        """The tasks that run."""
        return tuple(self._cluster.tasks)

    @property
    def printed_lines(self) -> list[tuple[str | None, str]]:
        """What `KStream.print` printed: (file, or None for standard output, and line)."""
        return self._cluster.printed

    def produced_topic_names(self) -> frozenset[str]:
        """The topics that were written so far, internal ones too."""
        return frozenset(self._cluster.log.unread)

    def read_raw(self, topic: str) -> list[Output]:
        """The records of a topic that were not read yet."""
        queue = self._cluster.log.unread.get(topic)
        if queue is None:
            return []
        records = list(queue)
        queue.clear()
        return records

    def queue_of(self, topic: str) -> deque[Output]:
        """The records of a topic that were not read yet, to be taken from the left."""
        return self._cluster.log.unread.get(topic, deque())

    def metrics(self) -> dict[str, int]:
        """The counters so far."""
        return self._cluster.counters()

    def close(self) -> None:
        """Close processors and stores."""
        if not self._closed:
            self._closed = True
            self._cluster.close()

    def __repr__(self) -> str:
        how_many = "1 task" if len(self.tasks) == 1 else f"{len(self.tasks)} tasks"
        state = "closed" if self._closed else how_many
        return f"<TopologyTestDriver '{self._config.application_id}', {state}>"

    def __enter__(self) -> TopologyTestDriver:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # ---- inside ------------------------------------------------------------------------------

    def _partition(self, topic: str, key: bytes | None) -> int:
        count = self._cluster.placement.partitions_of(topic)
        if key is not None:
            return partition_of(key, count) if count > 1 else 0
        number = self._null_keys.get(topic, 0)
        self._null_keys[topic] = number + 1
        return number % count

    def _commit_is_due(self) -> bool:
        interval_ms = self._interval_ms
        return interval_ms is not None and self._cluster.now - self._last_commit >= interval_ms

    def _show(self) -> None:
        """Show what was printed since the last time; a file begins anew with each driver."""
        lines = self._cluster.printed
        if not self._show_printed or self._shown == len(lines):
            return
        for file, line in lines[self._shown :]:
            if file is None:
                print(line)
                continue
            with open(file, "a" if file in self._files else "w", encoding="utf-8") as out:
                out.write(f"{line}\n")
            self._files.add(file)
        self._shown = len(lines)

    def _stores_of(self, name: str) -> dict[int, Any]:
        cluster = self._cluster
        if cluster.global_state is not None and name in cluster.global_state.stores:
            return {-1: cluster.global_state.stores[name]}
        return {
            task.task_id.partition: task.runtime.stores[name]
            for task in cluster.tasks.values() if name in task.runtime.stores
        }

    def _store_names(self) -> list[str]:
        cluster = self._cluster
        names = {name: None for task in cluster.tasks.values() for name in task.runtime.stores}
        if cluster.global_state is not None:
            names |= dict.fromkeys(cluster.global_state.stores)
        return list(names)
