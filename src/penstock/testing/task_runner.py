"""Runs the tasks of a test: processes records, commits, restarts tasks and simulates crashes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from penstock.config import StreamsConfig
from penstock.errors import ProcessingFailedException
from penstock.metric_catalogue import ReadingHistory
from penstock.metrics import SensorHistory, sample_window_seconds
from penstock.record import Headers, TaskId, processing
from penstock.stores.bytes.store import BytesStore, InMemoryBytesStore
from penstock.stores.cache.record_cache import RecordCache
from penstock.task.blueprint import StorePlan
from penstock.task.drops import DropLog
from penstock.task.global_state import GlobalState
from penstock.task.queue import RawRecord
from penstock.task.reprocessed_store import ReprocessedStore
from penstock.task.result import TaskResult, TaskState
from penstock.task.runtime import Environment, thread_cache
from penstock.task.task import Task
from penstock.testing.memory_log import InputRecord, MemoryLog
from penstock.testing.task_layout import TaskLayout, TaskSpec
from penstock.topology.topology import Topology

#: Fills a store of a new task.
FillStore = Callable[[TaskSpec, StorePlan, Any], None]


class TaskRunner:
    """The tasks of a topology and their log.

    A crash loses the memory of the tasks. Committed are the `TaskState` and the rows of each store,
    kept here, and the contents of the log. A commit of all tasks is atomic.
    """

    def __init__(
        self, topology: Topology, config: StreamsConfig, layout: TaskLayout, now: int,
        *, commit_every_record: bool,
    ) -> None:
        self.log = MemoryLog()
        self.layout = layout
        #: The wall clock; written by the driver.
        self.now = now
        #: Printed lines that are committed, as (file or None, line).
        self.printed: list[tuple[str | None, str]] = []
        self.tasks: dict[TaskId, Task] = {}
        self.global_state: GlobalState | None = None
        self._topology = topology
        self._config = config
        self._commit_every_record = commit_every_record
        #: Whether output is visible before its commit, as outside of a transaction of Kafka.
        self._sends_at_once = (
            commit_every_record and config.processing_guarantee == "at_least_once"
        )
        self._states: dict[TaskId, TaskState] = {}
        self._rows: dict[tuple[TaskId, str], BytesStore] = {}
        self._shared_cache: RecordCache | None = None
        self._resources: dict[str, Any] = {}
        self._drop_log = DropLog()
        #: The number of inputs at the last commit: global stores restart from there after a crash.
        self._committed_inputs = 0
        #: Counters of closed tasks, and those of each task at its last commit.
        self._past_counters: Counter[str] = Counter()
        window_s = sample_window_seconds(config.extra)
        self._sensors = SensorHistory(window_s)
        self._readings = ReadingHistory(
            window_s, config.metrics_recording_level, now / 1000
        )
        self._committed_counters: dict[TaskId, dict[str, int]] = {}
        self._start_global()
        self._start_tasks(_leave_empty)

    # ---- records -----------------------------------------------------------------------------

    def reads(self, topic: str) -> bool:
        """Return whether a task or a global store reads the topic."""
        return self.layout.queue_of(topic) is not None or self._is_global(topic)

    def receive(
        self, topic: str, partition: int, timestamp: int,
        content: tuple[bytes | None, bytes | None, Headers],
    ) -> None:
        """Append an input record and process it, with all records that result from it."""
        queue = self.layout.queue_of(topic)
        record = self.log.append(queue or topic, topic, partition, timestamp, content)
        self._deliver(InputRecord(queue or topic, record), with_global=True)

    def _deliver(self, input_record: InputRecord, *, with_global: bool) -> None:
        """Pass a record to its task and run; then update the global store of its topic."""
        queue, record = input_record
        reader = self.layout.readers.get((queue, record.partition))
        if reader is not None:
            task = self.tasks[reader]
            task.add_records((queue, record.partition), (record,))
            if self._sends_at_once and task.has_outputs:
                # The dead letter of a record that could not be deserialized. The task may wait for
                # other partitions before it processes and commits.
                self._commit((task,))
            self.run()
        if with_global and self._is_global(record.topic):
            self._update_global(record)

    def run(self) -> bool:
        """Process all queued records, one per task in turn; return whether there were any."""
        processed = False
        progress = True
        while progress:
            progress = False
            for task in self.tasks.values():
                if task.has_records and task.may_process(self.now):
                    with processing(task.runtime.current):
                        task.process_next(self.now)
                    processed = progress = True
                    if self._commit_every_record:
                        self._commit((task,))
                    elif task.runtime.commit_requested:
                        self._commit(self.tasks.values())
        return processed

    def punctuate(self) -> None:
        """Run the punctuators that are due by the wall clock."""
        for task in self.tasks.values():
            task.punctuate_wall_clock(self.now)

    # ---- commit ------------------------------------------------------------------------------

    def commit(self) -> None:
        """Commit all tasks, repeatedly, until all records between them are processed."""
        self._commit(self.tasks.values())
        while self.run():
            self._commit(self.tasks.values())

    def commit_once(self) -> None:
        """Commit all tasks once; records between them stay queued."""
        self._commit(self.tasks.values())

    def _commit(self, tasks: Iterable[Task]) -> None:
        # All tasks return their results before any is applied.
        results = [(task, task.commit()) for task in tasks]
        for task, result in results:
            task.advance()
            self._states[task.task_id] = result.state
            self._committed_counters[task.task_id] = result.counters
            self._drop_log.add(task.task_id, result.drops)
            for reading in result.sensors:
                self._sensors.add(reading, self.now / 1000)
            for measured in result.readings:
                self._readings.add(str(task.task_id), measured, self.now / 1000)
            self.printed.extend(result.printed)
            self._publish(result)
        self._committed_inputs = len(self.log.inputs)

    def _publish(self, result: TaskResult) -> None:
        log, layout = self.log, self.layout
        for output in log.commit(result, self._config.application_id):
            topic, partition, key, value, timestamp, headers = output
            queue = layout.queue_of(topic)
            is_global = self._is_global(topic)
            if queue is None and not is_global:
                continue
            record = log.append(
                queue or topic, topic, partition, timestamp, (key, value, headers)
            )
            reader = layout.readers.get((queue or topic, partition))
            if reader is not None:
                self.tasks[reader].add_records((queue or topic, partition), (record,))
            if is_global:
                self._update_global(record)

    # ---- committed state, for queries ----------------------------------------------------------

    def committed_rows(self, task_id: TaskId, name: str) -> BytesStore:
        """Return the committed rows of a store."""
        return self._rows_of(task_id, name)

    def committed_clocks(self, task_id: TaskId, store: str) -> dict[str, int]:
        """Return the times that a store has observed at the last commit."""
        state = self._states.get(task_id)
        return {} if state is None else state.store_clocks.get(store, {})

    def committed_offsets(self, task_id: TaskId) -> dict[tuple[str, int], int]:
        """Return the committed offsets of the partitions that a task reads."""
        return {
            at: offset for at, offset in self.log.offsets.items()
            if self.layout.readers.get(at) == task_id
        }

    # ---- batches and crashes -----------------------------------------------------------------

    def new_batch(self) -> None:
        """Commit, then recreate all tasks with their committed rows."""
        self.commit()
        old = self.tasks
        unread = self._unread_inputs() if any(task.has_records for task in old.values()) else []
        for task in old.values():
            task.close()

        def fill_store(spec: TaskSpec, plan: StorePlan, store: Any) -> None:
            if (spec.task_id, plan.name) not in self._rows:
                self._restore(spec, plan, store)

        self._start_tasks(fill_store)
        for queue, record in unread:
            reader = self.layout.readers[queue, record.partition]
            self.tasks[reader].add_records((queue, record.partition), (record,))

    def crash(self) -> None:
        """Discard everything uncommitted, restore the stores and reprocess the input.

        Records are delivered in their order of arrival, each processed before the next one.
        """
        committed = self._committed_inputs
        unread = {
            (queue, record.partition, record.offset) for queue, record in self._unread_inputs()
        }
        inputs = list(self.log.inputs)
        self._rows.clear()
        self._resources = {}
        self._start_global()
        for _, record in inputs[:committed]:
            if self._is_global(record.topic):
                self._update_global(record)
        self._start_tasks(self._restore)
        self.punctuate()
        for number, input_record in enumerate(inputs):
            queue, record = input_record
            if (queue, record.partition, record.offset) in unread:
                self._deliver(input_record, with_global=number >= committed)
            elif number >= committed and self._is_global(record.topic):
                self._update_global(record)

    def _unread_inputs(self) -> list[InputRecord]:
        """Return the inputs of tasks at or above the committed offsets."""
        offsets, readers = self.log.offsets, self.layout.readers
        return [
            input_record for input_record in self.log.inputs
            if (spec := (input_record.queue, input_record.record.partition)) in readers
            and input_record.record.offset >= offsets.get(spec, 0)
        ]

    def _restore(self, spec: TaskSpec, plan: StorePlan, store: Any) -> None:
        """Fill a store from its changelog, or from its source topic."""
        if not hasattr(store, "restore"):
            return
        partition = spec.task_id.partition
        if plan.feed is not None:
            self._reprocess(spec, plan)
            return
        if plan.changelog is None and plan.restored_from is not None:
            topic = spec.blueprint.topic(plan.restored_from)
            for record in self.log.records(topic, partition):
                if record.key is not None:
                    store.restore(record.key, record.value, record.timestamp, record.headers)
        else:
            for change in self.log.changelogs.get((plan.name, partition), ()):
                store.restore(change.key, change.value, change.timestamp, change.headers)
        if hasattr(store, "advance"):
            store.advance()

    def _reprocess(self, spec: TaskSpec, plan: StorePlan) -> None:
        """Fill a read-only store with its processor."""
        assert plan.restored_from is not None
        topic, partition = spec.blueprint.topic(plan.restored_from), spec.task_id.partition
        open_rows = partial(self._rows_of, spec.task_id)
        restored = ReprocessedStore(spec.blueprint, spec.task_id, plan, open_rows)
        restored.resume_restore({}, None)
        for record in self.log.records(topic, partition):
            restored.restore_all(record.columns())
        restored.advance()
        restored.close()

    # ---- life cycle --------------------------------------------------------------------------

    def sensors(self) -> dict[str, float]:
        """Return the metrics of tasks and of the processors' sensors, as of the last commit."""
        now = self.now / 1000
        found = (*self._readings.values(now, ()), *self._sensors.values(now))
        return {str(name): value for name, value in found}

    def counters(self) -> dict[str, int]:
        """Return the sums of all counters, without work that a crash has discarded."""
        totals = Counter(self._past_counters)
        for task in self.tasks.values():
            totals.update(task.runtime.all_counters())
        if self.global_state is not None:
            totals["dropped-records-total"] += self.global_state.dropped
        return dict(totals)

    def close(self) -> None:
        """Close processors and stores."""
        self._drop_log.log_counts(all_now=True)
        for task in self.tasks.values():
            task.close()
        if self.global_state is not None:
            self.global_state.close()

    def _start_tasks(self, fill_store: FillStore) -> None:
        for counters in self._committed_counters.values():
            self._past_counters.update(counters)
        self._committed_counters = {}
        self.tasks = {}
        for spec in self.layout.tasks:
            self.tasks[spec.task_id] = self._start_task(spec, fill_store)

    def _start_task(self, spec: TaskSpec, fill_store: FillStore) -> Task:
        environment = Environment(
            partitions_of=self.layout.partitions_of,
            open_bytes=partial(self._rows_of, spec.task_id),
            global_stores=self.global_state.stores if self.global_state else {},
            resources=self._resources, now=self.now, cache=self._shared_cache,
        )
        task = Task(
            spec.blueprint, spec.task_id, environment, self._states.get(spec.task_id)
        )
        for plan in spec.blueprint.stores:
            fill_store(spec, plan, task.runtime.stores[plan.name])
        task.start()
        for source, queue, partition in spec.queues:
            task.subscribe(source, queue, partition)
        return task

    def _rows_of(self, task_id: TaskId, name: str) -> BytesStore:
        """Return the committed rows of a store; all incarnations of a task share them."""
        return self._rows.setdefault((task_id, name), InMemoryBytesStore())

    def _start_global(self) -> None:
        if self._topology.global_stores:
            if len(self.layout.tasks) == 1:
                # In Kafka's driver, global stores share the cache of its only thread.
                self._shared_cache = thread_cache(self._config)
            # Kafka's driver skips the records of global topics that cannot be deserialized.
            config = self._config.with_(deserialization_exception_handler="continue")
            self.global_state = GlobalState(self._topology, config, self._shared_cache)

    def _update_global(self, record: RawRecord) -> None:
        """Update the global store of a topic.

        Without a handler, Kafka's driver raises the exception of the processor itself.
        """
        assert self.global_state is not None
        try:
            self.global_state.update(record)
        except ProcessingFailedException as failure:
            cause = failure.__cause__
            if cause is None or self._config.processing_exception_handler_global_enabled:
                raise
            cause.add_note(str(failure))
            raise cause from None

    def _is_global(self, topic: str) -> bool:
        return self.global_state is not None and topic in self.global_state.topics


def _leave_empty(spec: TaskSpec, plan: StorePlan, store: Any) -> None:
    """Fill nothing: a new store is empty."""
