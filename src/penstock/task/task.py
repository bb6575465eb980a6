"""`Task`: processes records in the order of their timestamps.

A task changes nothing outside of itself. `commit` returns a `TaskResult` with everything that is
to be written. Once that is written, `advance` applies the changes to the task's stores.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import NoReturn

from penstock.errors import (
    ProcessingFailedException,
    ProcessorStateException,
    StreamsException,
)
from penstock.record import NO_HEADERS, PartitionColumns, RecordContext, TaskId, processing
from penstock.stores.buffers.buffer import Buffer
from penstock.task.assembly import assemble
from penstock.task.blueprint import Blueprint
from penstock.task.chunk_size import ChunkSize
from penstock.task.collector import Collector
from penstock.task.error_handling import ExceptionHandlers, NodeFailed, skipping_setting
from penstock.task.gc_pause import gc_paused
from penstock.task.idle_wait import IdleWait
from penstock.task.measurements import Measurements
from penstock.task.meters import measure_rows
from penstock.task.node_meters import measured_source
from penstock.task.origins import OutputOrigins
from penstock.task.priority_queue import JavaPriorityQueue
from penstock.task.punctuation import NEVER, Schedule
from penstock.task.queue import CHUNK, QueueSource, RawRecord, RecordQueue, RecordRange
from penstock.task.result import TaskResult, TaskState
from penstock.task.runtime import Environment, Runtime
from penstock.task.store_meters import measure_store

Partition = tuple[str, int]


class Task:
    """One sub-topology over one partition (in Kafka's test driver: all sub-topologies).

    Invariants: a queue is in `_waiting` if and only if it has a head. The offset in a result is
    that of the first record that was not processed.
    """

    def __init__(
        self,
        blueprint: Blueprint,
        task_id: TaskId,
        environment: Environment | None = None,
        state: TaskState | None = None,
    ) -> None:
        environment = environment if environment is not None else Environment()
        state = state if state is not None else TaskState()
        self.blueprint = blueprint
        self.task_id = task_id
        changelogs = {store.name: store.changelog for store in blueprint.stores}
        self.runtime = Runtime(
            blueprint.config, task_id, environment, state, changelogs,
            blueprint.source_changelogs(),
        )
        self._collector = Collector(
            self.runtime.current, environment.partitions_of, environment.limits_of,
            origins=OutputOrigins() if environment.notes_origins else None,
        )
        self._collector.null_keys_sent = state.null_keys_sent
        self._handlers = ExceptionHandlers(
            blueprint.config, self.runtime, self._collector.send_raw,
            frozenset(map(blueprint.topic, blueprint.internal_topics)),
        )
        self.runtime.current.keeps_source = self._handlers.needs_sources
        self._partition_times = dict(state.partition_times)
        self._queues: dict[Partition, RecordQueue] = {}
        self._measurements = Measurements(self.runtime, self._collector, self._queues)
        self._waiting: JavaPriorityQueue[RecordQueue] = JavaPriorityQueue()
        self._chunk_size = ChunkSize()
        self._idle_wait = IdleWait(self._queues, blueprint.config.max_task_idle_ms)
        self.runtime.punctuate = self._punctuate
        self._open_stores(state)

    # ---- life cycle --------------------------------------------------------------------------

    def _open_stores(self, state: TaskState) -> None:
        runtime = self.runtime
        for plan in self.blueprint.stores:
            builder = plan.spec.resolve(self.blueprint.config)
            if plan.changelog is None and builder.logging_enabled:
                builder = builder.with_logging_disabled()
            store = (
                builder.build(runtime.environment.open_bytes)
                if getattr(builder, "keeps_rows", False) else builder.build()
            )
            runtime.stores[plan.name] = store
            store.init(runtime)
            measure_store(store, runtime.meters, runtime.age)
            # Empty clocks of a replica say nothing: it does not know the order of an LRU map.
            if restored := runtime.environment.restored_clocks.get(plan.name):
                store.set_clocks(restored)
            if plan.name in state.store_clocks:
                store.set_clocks(state.store_clocks[plan.name])

    def start(self) -> None:
        """Attach the nodes and initialize the processors. Stores must be restored before."""
        runtime = self.runtime
        self._sources = assemble(self.blueprint, runtime, self._collector, self._handlers)
        # Processors are attached from the leaves up, but initialized and closed in Kafka's order.
        order = {node.name: at for at, node in enumerate(self.blueprint.nodes)}
        for calls in (runtime.starts, runtime.closings):
            calls.sort(key=lambda call: order[call[0]])
        current = runtime.current
        for _, action in runtime.starts:
            current.set_context(RecordContext(None, -1, -1, runtime.system_time, NO_HEADERS))
            with processing(current):
                action()
        runtime.stream_schedules.restore_order()
        runtime.wall_schedules.restore_order()
        runtime.starting = False
        self._serdes = {
            source.name: self.blueprint.serdes(source) for source in self.blueprint.sources
        }

    def refresh_limits(self, valid_ms: int) -> None:
        """Look up the limits of the output topics again. See `Collector.refresh_limits`."""
        self._collector.refresh_limits(valid_ms)

    def subscribe(self, source: str, topic: str, partition: int) -> None:
        """Create a queue for a partition of a source."""
        node = next(each for each in self.blueprint.sources if each.name == source)
        extract = node.timestamp
        if extract is None:
            extract = self.blueprint.config.timestamp_extractor()
        key, value = self._serdes[source]
        queue = RecordQueue(
            topic, partition,
            QueueSource(
                source, (key.for_topic(topic, True), value.for_topic(topic, False)), extract,
                measured_source(self._sources[source], self.runtime), self._handlers,
            ),
            self.runtime,
        )
        queue.partition_time = self._partition_times.get((topic, partition), -1)
        self._queues[topic, partition] = queue

    def close(self) -> None:
        """Close all processors, then all stores. Raises the first failure at the end."""
        self.runtime.close()

    # ---- records -----------------------------------------------------------------------------

    def add_records(self, partition: Partition, records: Iterable[RawRecord]) -> None:
        """Append records to the queue of their partition."""
        for record in records:
            self._add(partition, record.columns())

    def _add(self, partition: Partition, rows: PartitionColumns, size: int = 0) -> None:
        queue = self._queues[partition]
        was_empty = not queue.has_head
        queue.add(rows, size)
        if was_empty and queue.has_head:
            self._waiting.add(queue)

    @property
    def has_records(self) -> bool:
        """Whether any queue has a record."""
        return bool(self._waiting.items)

    @property
    def has_outputs(self) -> bool:
        """Whether records were sent since the last commit."""
        return bool(self._collector.outputs)

    def may_process(self, wall: int) -> bool:
        """Whether a record may be processed now; False while waiting for an empty queue (M3)."""
        return self._idle_wait.is_over(wall)

    def process_next(self, wall: int) -> None:
        """Process the record with the smallest timestamp."""
        self.runtime.system_time = wall
        queue = self._waiting.take()
        queue.take()
        rows, at, key, value, time, corrupted = (
            queue.rows, queue.at, queue.key, queue.value, queue.time, queue.corrupted
        )
        queue.next_head()
        if queue.has_head:
            self._waiting.add(queue)
        if corrupted:
            return
        try:
            queue.process(rows, at, key, value, time)
        except Exception as error:
            self._raise_with_record(queue, error)

    def run(self, ranges: Mapping[Partition, RecordRange]) -> TaskResult:
        """Run one batch: due punctuations, the records of all ranges by time, the commit.

        The batch ends when all ranges are processed, when a cut range runs empty (its next record
        might be the earliest of all), or when the result reaches its size limit. Ranges marked
        `whole` are always processed completely. A failed batch returns a result with only the
        failure.
        """
        with gc_paused(), processing(self.runtime.current):
            try:
                with self._timed_processing():
                    self._run(ranges)
                return self.commit()
            except StreamsException as failure:
                return self.failed(failure)

    def failed(self, failure: BaseException) -> TaskResult:
        """The result of a failed batch: the outputs so far, and the dead letters among them."""
        return TaskResult.failed(
            self.task_id, failure, self._state(), list(self._collector.outputs),
            list(self._handlers.final_letters),
        )

    def add_columns(self, records: PartitionColumns) -> None:
        """Append records to the queue of their partition, and measure them for `queued_bytes`."""
        assert records.topic is not None
        size = measure_rows(records, 0, len(records), 0).bytes
        self._add((records.topic, records.partition), records, size)

    def process_available(self, cut: Collection[Partition], enough: Callable[[], bool]) -> bool:
        """Process queued records by time, until `enough` returns True after some of them.

        Stops where a partition in `cut` runs empty, because its next record might be the earliest
        of all. Returns whether a record was taken. The caller commits later.
        """
        queues = self._queues
        for partition, queue in queues.items():
            queue.cut = partition in cut
        if not self._waiting.items or any(
            queue.cut and not queue.has_head for queue in queues.values()
        ):
            return False
        with gc_paused(), processing(self.runtime.current), self._timed_processing():
            self._take_until(enough, self._chunk_size)
            self._restore_heads()
        return True

    @contextmanager
    def _timed_processing(self) -> Iterator[None]:
        started = perf_counter()
        yield
        self.runtime.meters.meter("active-process").record((perf_counter() - started) * 1000)

    def _restore_heads(self) -> None:
        """A queue that was processed alone has no head, even if records are left."""
        waiting = self._waiting.items
        if len(waiting) == 1 and not waiting[0].has_head:
            waiting[0].next_head()
            if not waiting[0].has_head:
                waiting.clear()

    def queued(self, partition: Partition) -> int:
        """The number of queued records of a partition."""
        return self._queues[partition].size

    def queued_bytes(self, partition: Partition) -> int:
        """The size of the records that the queue of a partition keeps in memory."""
        return self._queues[partition].size_bytes

    @property
    def taken_records(self) -> int:
        """The number of records that were processed or skipped since the last commit."""
        return sum(queue.taken + queue.skipped for queue in self._queues.values())

    def _run(self, ranges: Mapping[Partition, RecordRange]) -> None:
        self.punctuate_wall_clock(self.runtime.system_time)
        for (topic, partition), record_range in ranges.items():
            queue = self._queues[topic, partition]
            queue.cut, queue.whole = record_range.cut, record_range.whole
            self._add((topic, partition), record_range.records)
        queues = self._queues.values()
        if not any(queue.cut and not queue.has_head for queue in queues):
            self._take_until(self.is_full)
        self._waiting.items.clear()
        for queue in queues:
            if queue.whole:
                if not queue.has_head:
                    queue.next_head()
                if queue.has_head:
                    self._waiting.add(queue)
        self._take_until(_never)

    def _take_until(
        self, enough: Callable[[], bool], chunk_size: ChunkSize | None = None
    ) -> None:
        """Process records by time until a cut range runs empty, or until `enough` returns True
        after a chunk."""
        waiting = self._waiting
        while waiting.items:
            size = CHUNK if chunk_size is None else chunk_size.begin(self.taken_records)
            if len(waiting.items) > 1:
                if not self._process_chunk_of_several(size):
                    break
            else:
                self._process_chunk(waiting.items[0], size)
            if chunk_size is not None:
                chunk_size.end(self.taken_records)
            self._measurements.add()
            if enough():
                break

    def _process_chunk(self, queue: RecordQueue, size: int) -> None:
        """Process records of the only queue that has some."""
        try:
            if not queue.process_chunk(size):
                self._waiting.items.clear()
        except Exception as error:
            self._raise_with_record(queue, error)

    def _process_chunk_of_several(self, size: int) -> bool:
        """Process records of several queues by time; False if a cut range ran empty."""
        waiting = self._waiting
        left = size
        while left > 0:
            queue = waiting.items[0]
            taken = queue.taken
            if not self._process_stretch(queue, left):
                self.process_next(self.runtime.system_time)
            left -= max(1, queue.taken - taken)
            if not queue.has_head:
                if queue.cut:
                    return False
                if len(waiting.items) < 2:
                    return True
        return True

    def _process_stretch(self, queue: RecordQueue, size: int) -> bool:
        """Process records of one of two queues up to the head of the other one.

        With three queues, removing and adding one might change the order of the others. Returns
        False if there is only one such record.
        """
        waiting = self._waiting
        if len(waiting.items) != 2:
            return False
        try:
            if not queue.process_before(waiting.items[1].time, size):
                return False
        except Exception as error:
            self._raise_with_record(queue, error)
        waiting.take()
        if queue.has_head:
            waiting.add(queue)
        return True

    def is_full(self) -> bool:
        """Whether the result has reached its size limit; sizes are sampled."""
        limit = self.runtime.environment.max_result_bytes
        if limit is None:
            return False
        outputs, changes = self._collector.outputs, self.runtime.changelog
        size = 0
        for records in (outputs, changes):
            sample = records[:: max(1, len(records) // 64)]
            if sample:
                each = sum(len(part) for row in sample for part in row if type(part) is bytes)
                size += each * len(records) // len(sample)
        return size >= limit

    def _raise_with_record(self, queue: RecordQueue, error: Exception) -> NoReturn:
        """Raise the error with the record that was processed."""
        if isinstance(error, NodeFailed):
            if isinstance(error.cause, ProcessingFailedException):
                # It already names the sink and the record.
                raise error.cause from error.cause.__cause__
            raise self._failed(error.node, error.cause, error.key) from error.cause
        if isinstance(error, StreamsException):
            raise error
        raise self._failed(queue.name, error, self._current_key(queue)) from error

    def _current_key(self, queue: RecordQueue) -> object:
        """The key of the current record, as bytes unless it is the head of the queue."""
        current = self.runtime.current
        if current.rows is queue.rows and current.at == queue.at:
            return queue.key
        return None if current.rows is None else current.rows.keys[current.at]

    def _failed(
        self, node: str, cause: BaseException, key: object
    ) -> ProcessingFailedException:
        topic, partition, offset = self.runtime.source_position()
        return ProcessingFailedException(
            f"Exception caught in process. taskId={self.task_id}, processor={node}, "
            f"topic={topic}, partition={partition}, offset={offset}, key={key!r}: "
            f"{type(cause).__name__}: {cause}",
            task_id=str(self.task_id), processor=node, topic=topic, partition=partition,
            offset=offset, key=key, handler_setting=skipping_setting(cause),
        )

    # ---- clocks ------------------------------------------------------------------------------

    def punctuate_wall_clock(self, now: int) -> None:
        """Fire the due wall-clock schedules."""
        runtime = self.runtime
        runtime.system_time = max(runtime.system_time, now)
        with processing(runtime.current):
            runtime.wall_schedules.fire(now, self._punctuate)

    def _punctuate(self, schedule: Schedule, now: int) -> None:
        started = perf_counter()
        self.runtime.node_timer.punctuate(
            schedule.node, lambda: self._call_punctuator(schedule, now)
        )
        self.runtime.meters.punctuated((perf_counter() - started) * 1000)

    def _call_punctuator(self, schedule: Schedule, now: int) -> None:
        self.runtime.current.set_context(RecordContext(None, -1, -1, now, NO_HEADERS))
        try:
            schedule.punctuator(now)
        except NodeFailed as failure:
            self._raise_from_punctuation(schedule, now, failure.cause)
        except Exception as error:
            try:
                self._handlers.not_processed(schedule.node, error, None)
            except NodeFailed as failure:
                self._raise_from_punctuation(schedule, now, failure.cause)

    def _raise_from_punctuation(
        self, schedule: Schedule, now: int, cause: BaseException
    ) -> NoReturn:
        if isinstance(cause, ProcessingFailedException):
            raise cause from cause.__cause__
        raise ProcessingFailedException(
            f"Exception caught while punctuating processor {schedule.node} of task "
            f"{self.task_id} at time {now}: {type(cause).__name__}: {cause}",
            task_id=str(self.task_id), processor=schedule.node,
            handler_setting=skipping_setting(cause),
        ) from cause

    # ---- commit ------------------------------------------------------------------------------

    def commit(self) -> TaskResult:
        """Flush the caches and return the result of the batch."""
        runtime = self.runtime
        with processing(runtime.current):
            self._flush()
        due = runtime.wall_schedules.next_due
        offsets = {}
        for partition, queue in self._queues.items():
            self._partition_times[partition] = queue.partition_time
            if queue.taken or queue.skipped:
                offsets[partition] = queue.position
                queue.taken = queue.skipped = 0
        outputs, changelog = list(self._collector.outputs), list(runtime.changelog)
        result = TaskResult(
            self.task_id, outputs, changelog, offsets, self._state(),
            None if due == NEVER else due, list(runtime.printed), runtime.all_counters(),
            runtime.commit_requested, runtime.metrics.take_readings(), self._measurements.take(),
            None if self._collector.origins is None else self._collector.origins.take(),
            runtime.drop_notes.take(),
        )
        self._collector.outputs.clear()
        runtime.changelog.clear()
        runtime.printed.clear()
        runtime.commit_requested = False
        return result

    def _flush(self) -> None:
        """Flush all caches, then log the content of buffers; raise the first failure at the end.

        Buffers are last, because flushing a cache may still fill them.
        """
        first: StreamsException | None = None
        stores = self.runtime.stores.values()
        for store in sorted(stores, key=lambda each: isinstance(each, Buffer)):
            try:
                store.commit()
            except Exception as error:
                first = first or self._flush_failed(store.name, error)
        if first is not None:
            raise first

    def _flush_failed(self, store: str, error: Exception) -> StreamsException:
        if isinstance(error, StreamsException) and not isinstance(error, NodeFailed):
            return error
        cause = error.cause if isinstance(error, NodeFailed) else error
        if isinstance(cause, ProcessingFailedException):
            return cause
        where = f", processor={error.node}" if isinstance(error, NodeFailed) else ""
        failure = ProcessorStateException(
            f"Failed to flush the cache of store {store}. taskId={self.task_id}{where}: "
            f"{type(cause).__name__}: {cause}"
        )
        failure.__cause__ = cause
        return failure

    def _state(self) -> TaskState:
        runtime = self.runtime
        return TaskState(
            runtime.stream_time, dict(self._partition_times), runtime.clocks(),
            {name: dict(store.clocks()) for name, store in runtime.stores.items()
             if hasattr(store, "clocks")},
            runtime.stream_schedules.states(), runtime.wall_schedules.states(),
            self._collector.null_keys_sent,
        )

    def advance(self) -> None:
        """Apply the committed changes to the stores."""
        for store in self.runtime.stores.values():
            if hasattr(store, "advance"):
                store.advance()


def _never() -> bool:
    return False
