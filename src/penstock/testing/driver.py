"""`TopologyTestDriver`: pipes records into a topology and returns its output and stores."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, TypeVar, overload

from penstock.config import StreamsConfig
from penstock.engine.packaging.pack import check_packable, check_packable_as_file
from penstock.partitioning import partition_of
from penstock.queries.methods import QueryMethods
from penstock.queries.service import StoreQueries
from penstock.record import NO_HEADERS, TaskId, as_headers
from penstock.serdes.arguments import given_serde
from penstock.serdes.base import SerdeOrType
from penstock.suggestions import did_you_mean
from penstock.task.result import Output
from penstock.testing.query_source import DriverSource
from penstock.testing.store_access import StoreAccess
from penstock.testing.task_layout import partitioned_layout, single_task_layout
from penstock.testing.task_runner import TaskRunner
from penstock.testing.topics import TestInputTopic, TestOutputTopic
from penstock.topology.build_settings import check_build_settings
from penstock.topology.serde_check import check_serdes
from penstock.topology.topology import Topology
from penstock.windows import instant_ms, to_ms

K = TypeVar("K")
V = TypeVar("V")


class TopologyTestDriver(QueryMethods, StoreAccess):
    """Runs a topology in the process of the test, with the real tasks and stores.

    By default it works like Kafka Streams' driver: one task runs all sub-topologies, each topic has
    one partition, every record is committed, and processors live as long as the driver. Time moves
    only with `advance_wall_clock_time`. Use it as a context manager, or call `close`.

    Args:
        topology: The topology to test.
        config: The configuration, also as properties; the default has no default serdes.
        initial_wall_clock: The wall clock at the start.
        partitions: A count for all topics, or {topic: count}. Each sub-topology then runs as one
            task per partition, and a record goes to the partition of its key.
        commit_interval: Commit only when the wall clock has advanced this far, when `commit` is
            called, or when a processor requests it. Before a commit, outputs are not visible,
            caches are not flushed, and records do not reach other sub-topologies.
        auto_commit: False turns commits by the wall clock off, as `timedelta.max` does.
        batch_size: Call `new_batch` after this many records.
        show_printed: Write the lines of `KStream.print` to standard output and their files.
        check_pickling: Raise if a function refers to an object that cannot be sent to Spark's
            workers, such as a lock. The topology itself is not copied. True checks as for
            `penstock run FILE`, which sends the file by value, with its globals. "module" checks
            as for `penstock run MODULE`, which workers import. False checks nothing.

    Example:
        >>> from penstock import Serdes, StreamsBuilder
        >>> text = Serdes.string()
        >>> builder = StreamsBuilder()
        >>> loud = builder.stream("words", key=text, value=text).map_values(str.upper)
        >>> loud.to("loud", key=text, value=text)
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.create_input_topic("words", text, text).pipe_input("k", "hello")
        ...     driver.create_output_topic("loud", text, text).read_key_value()
        ('k', 'HELLO')

    Kafka: TopologyTestDriver
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig | Mapping[str, Any] | None = None,
        initial_wall_clock: datetime | int = 0,
        *,
        partitions: int | Mapping[str, int] | None = None,
        commit_interval: timedelta | int | None = None,
        auto_commit: bool = True,
        batch_size: int | None = None,
        show_printed: bool = True,
        check_pickling: bool | Literal["module"] = True,
    ) -> None:
        if not isinstance(topology, Topology):
            raise TypeError(
                f"TopologyTestDriver takes a Topology, not a {type(topology).__name__}. "
                "Get one with StreamsBuilder.build()."
            )
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, not {batch_size}.")
        if isinstance(config, Mapping):
            config = StreamsConfig.from_properties(config)
        elif config is not None and not isinstance(config, StreamsConfig):
            raise TypeError(
                f"TopologyTestDriver takes a StreamsConfig or properties, not {config!r}. "
                "Use StreamsConfig(application_id=...)."
            )
        self._config = config or topology.config or StreamsConfig(application_id="test")
        check_build_settings(topology, self._config)
        check_serdes(topology, self._config)
        if check_pickling:
            check_packable(topology, self._config)
            if check_pickling != "module":
                check_packable_as_file(topology, self._config)
        now = instant_ms(initial_wall_clock)
        # timedelta.max stands for no commits by the wall clock.
        auto_commit = auto_commit and commit_interval != timedelta.max
        self._commit_every_record = auto_commit and commit_interval is None
        self._commit_interval_ms = (
            to_ms(commit_interval) if auto_commit and commit_interval is not None else None
        )
        layout = (
            single_task_layout(topology, self._config) if partitions is None
            else partitioned_layout(topology, self._config, partitions)
        )
        self._runner = TaskRunner(
            topology, self._config, layout, now, commit_every_record=self._commit_every_record
        )
        self._queries = StoreQueries(DriverSource(topology, self._config, self._runner))
        self._last_commit = now
        self._batch_size = batch_size
        self._batch_records = 0
        self._null_key_counts: dict[str, int] = {}
        self._show_printed = show_printed
        self._shown_lines = 0
        self._files: set[str] = set()
        self._closed = False

    # ---- input -------------------------------------------------------------------------------

    def pipe(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp: int,
        headers: Iterable[tuple[str, bytes | None]] = NO_HEADERS, *, partition: int | None = None,
    ) -> None:
        """Pipe in a serialized record and process it, with all records that result from it.

        Args:
            topic: The name of the topic.
            key: The serialized key, or None.
            value: The serialized value, or None.
            timestamp: The timestamp, in milliseconds since the epoch.
            headers: The headers: pairs of a name and bytes or None.
            partition: The partition; None for the partition of the key.
        """
        runner = self._runner
        if not runner.reads(topic):
            known = {queue for queue, _ in runner.layout.readers}
            if runner.global_state is not None:
                known |= runner.global_state.topics
            raise ValueError(
                f"Unknown topic: {topic}.{did_you_mean(topic, known)} "
                f"Topics of the topology: {', '.join(sorted(known))}."
            )
        number = self._partition(topic, key) if partition is None else partition
        if not 0 <= number < runner.layout.partitions_of(topic):
            raise ValueError(
                f"Topic {topic} has no partition {number}. It has "
                f"{runner.layout.partitions_of(topic)} partitions, numbered from 0."
            )
        try:
            runner.receive(topic, number, timestamp, (key, value, as_headers(headers)))
        finally:
            self._show_printed_lines()
        self._batch_records += 1
        if self._batch_records == self._batch_size:
            self.new_batch()

    @overload
    def create_input_topic(
        self, topic: str, key: SerdeOrType[K], value: SerdeOrType[V], *,
        start: datetime | int | None = None, auto_advance: timedelta | int = 0,
    ) -> TestInputTopic[K, V]: ...
    @overload
    def create_input_topic(
        self, topic: str, key: Any = None, value: Any = None, *,
        start: datetime | int | None = None, auto_advance: timedelta | int = 0,
    ) -> TestInputTopic[Any, Any]: ...
    def create_input_topic(
        self, topic: str, key: Any = None, value: Any = None, *,
        start: datetime | int | None = None, auto_advance: timedelta | int = 0,
    ) -> TestInputTopic[Any, Any]:
        """Return an input topic; `key` and `value` are its serdes, or types that have one.

        Records without a timestamp start at `start` (default: the wall clock) and advance by
        `auto_advance`.

        Args:
            topic: The name of the topic.
            key: The serde of the keys or their type; None for the default.
            value: The serde of the values or their type; None for the default.
            start: The timestamp of the first record.
            auto_advance: The difference of the timestamps of two records.

        Kafka: TopologyTestDriver#createInputTopic
        """
        first = self._runner.now if start is None else instant_ms(start)
        return TestInputTopic(
            self, topic, *self._serdes(topic, key, value), first, to_ms(auto_advance)
        )

    @overload
    def create_output_topic(
        self, topic: str, key: SerdeOrType[K], value: SerdeOrType[V]
    ) -> TestOutputTopic[K, V]: ...
    @overload
    def create_output_topic(
        self, topic: str, key: Any = None, value: Any = None
    ) -> TestOutputTopic[Any, Any]: ...
    def create_output_topic(
        self, topic: str, key: Any = None, value: Any = None
    ) -> TestOutputTopic[Any, Any]:
        """Return an output topic; `key` and `value` are its serdes, or types that have one.

        Args:
            topic: The name of the topic.
            key: The serde of the keys or their type; None for the default.
            value: The serde of the values or their type; None for the default.

        Kafka: TopologyTestDriver#createOutputTopic
        """
        return TestOutputTopic(self, topic, *self._serdes(topic, key, value))

    def _serdes(self, topic: str, key: Any, value: Any) -> tuple[Any, Any]:
        where = f"topic {topic}"
        key_serde = given_serde(key, "key", where=where)
        value_serde = given_serde(value, "value", where=where)
        return (
            key_serde or self._config.default_key_serde,
            value_serde or self._config.default_value_serde,
        )

    # ---- time, commits, batches, crashes -----------------------------------------------------

    def advance_wall_clock_time(self, advance: timedelta | int) -> None:
        """Advance the wall clock and run the punctuators that are due.

        Args:
            advance: How much time passes.

        Kafka: TopologyTestDriver#advanceWallClockTime
        """
        advance_ms = to_ms(advance)
        if advance_ms < 0:
            raise ValueError(f"The wall clock cannot go backwards: {advance}.")
        runner = self._runner
        runner.now += advance_ms
        try:
            runner.punctuate()
            if self._commit_every_record:
                runner.commit_once()
            elif self._commit_is_due():
                runner.commit()
                self._last_commit = runner.now
            runner.run()
        finally:
            self._show_printed_lines()

    def commit(self) -> None:
        """Commit all tasks: flush caches and make outputs visible.

        Records between sub-topologies are processed and committed too, until none is left.
        """
        try:
            self._runner.commit()
        finally:
            self._show_printed_lines()
        self._last_commit = self._runner.now

    def new_batch(self) -> None:
        """Commit, then recreate all tasks, as an application does between batches.

        Processors are new; stores, clocks and schedules keep their contents. Store objects from
        before become invalid: get them again.
        """
        self._batch_records = 0
        try:
            self._runner.new_batch()
        finally:
            self._show_printed_lines()
        self._last_commit = self._runner.now

    def crash(self) -> None:
        """Simulate a crash: discard everything uncommitted and recover.

        Stores are restored from their changelogs; a store without a changelog is empty. The input
        is then reprocessed from the committed offsets, in its order of arrival. Processors are not
        closed. Store objects from before become invalid: get them again.
        """
        self._batch_records = 0
        try:
            self._runner.crash()
        finally:
            self._show_printed_lines()

    # ---- output ------------------------------------------------------------------------------

    @property
    def tasks(self) -> tuple[TaskId, ...]:
        """The ids of all tasks."""
        return tuple(self._runner.tasks)

    @property
    def printed_lines(self) -> list[tuple[str | None, str]]:
        """The lines of `KStream.print` as (file or None, line); None is standard output."""
        return self._runner.printed

    def produced_topic_names(self) -> frozenset[str]:
        """Return the topics that have been written, including internal ones.

        Kafka: TopologyTestDriver#producedTopicNames
        """
        return frozenset(self._runner.log.unread)

    def read_raw(self, topic: str) -> list[Output]:
        """Return all unread records of a topic, serialized, and remove them.

        Args:
            topic: The name of the topic.
        """
        queue = self._runner.log.unread.get(topic)
        if queue is None:
            return []
        records = list(queue)
        queue.clear()
        return records

    def queue_of(self, topic: str) -> deque[Output]:
        """Return the queue of unread records of a topic; `popleft()` takes the oldest.

        Args:
            topic: The name of the topic.
        """
        return self._runner.log.unread.get(topic, deque())

    def metrics(self) -> dict[str, float]:
        """Return the counters, and the metrics of tasks and sensors.

        A counter has its plain name, such as `dropped-records-total`. The others have
        their full name, such as `stream-topic-metrics:records-consumed-total{task-id=0_0,...}`, and
        are those of the last commit.

        Kafka: TopologyTestDriver#metrics
        """
        return {**self._runner.counters(), **self._runner.sensors()}

    def close(self) -> None:
        """Close all processors and stores.

        Kafka: TopologyTestDriver#close
        """
        if not self._closed:
            self._closed = True
            self._runner.close()

    def __repr__(self) -> str:
        how_many = "1 task" if len(self.tasks) == 1 else f"{len(self.tasks)} tasks"
        state = "closed" if self._closed else how_many
        return f"<TopologyTestDriver '{self._config.application_id}', {state}>"

    def __enter__(self) -> TopologyTestDriver:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # ---- internals ---------------------------------------------------------------------------

    def _partition(self, topic: str, key: bytes | None) -> int:
        count = self._runner.layout.partitions_of(topic)
        if key is not None:
            return partition_of(key, count) if count > 1 else 0
        number = self._null_key_counts.get(topic, 0)
        self._null_key_counts[topic] = number + 1
        return number % count

    def _commit_is_due(self) -> bool:
        interval_ms = self._commit_interval_ms
        return interval_ms is not None and self._runner.now - self._last_commit >= interval_ms

    def _show_printed_lines(self) -> None:
        """Write the new lines of `KStream.print`; each driver overwrites its files."""
        lines = self._runner.printed
        if not self._show_printed or self._shown_lines == len(lines):
            return
        for file, line in lines[self._shown_lines :]:
            if file is None:
                print(line)
                continue
            with open(file, "a" if file in self._files else "w", encoding="utf-8") as out:
                out.write(f"{line}\n")
            self._files.add(file)
        self._shown_lines = len(lines)

    @property
    def _store_queries(self) -> StoreQueries:
        return self._queries

    def _stores_of(self, name: str) -> dict[int, Any]:
        runner = self._runner
        if runner.global_state is not None and name in runner.global_state.stores:
            return {-1: runner.global_state.stores[name]}
        return {
            task.task_id.partition: task.runtime.stores[name]
            for task in runner.tasks.values() if name in task.runtime.stores
        }

    def _store_names(self) -> list[str]:
        runner = self._runner
        names = {name: None for task in runner.tasks.values() for name in task.runtime.stores}
        if runner.global_state is not None:
            names |= dict.fromkeys(runner.global_state.stores)
        return list(names)
