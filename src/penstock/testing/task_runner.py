"""Runs the tasks of a test: processes, commits, puts tasks together anew, loses them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from penstock.config import StreamsConfig
from penstock.record import Headers, TaskId
from penstock.stores.bytes.store import BytesStore, InMemoryBytesStore
from penstock.stores.cache.record_cache import RecordCache
from penstock.task.blueprint import StorePlan
from penstock.task.global_state import GlobalState
from penstock.task.result import TaskResult, TaskState
from penstock.task.runtime import Environment, thread_cache
from penstock.task.task import Task
from penstock.testing.memory_log import InputRecord, MemoryLog
from penstock.testing.task_layout import TaskLayout, TaskSpec
from penstock.topology.topology import Topology

#: Fills a store of a task that is being put together.
Refill = Callable[[TaskSpec, StorePlan, Any], None]


class TaskRunner:
    """The tasks of a topology over one log.

    What tasks have in memory is lost in a crash. What is committed is here: their `TaskState`, the
    rows of their stores and, in the log, everything else. A commit of all tasks is one step.
    """

    def __init__(
        self, topology: Topology, config: StreamsConfig, placement: TaskLayout, now: int,
        *, commit_every_record: bool,
    ) -> None:
        self.log = MemoryLog()
        self.placement = placement
        #: The wall clock; set by the driver.
        self.now = now
        #: (file or None, line) of everything printed by what is committed.
        self.printed: list[tuple[str | None, str]] = []
        self.tasks: dict[TaskId, Task] = {}
        self.global_state: GlobalState | None = None
        self._topology = topology
        self._config = config
        self._commit_every_record = commit_every_record
        self._states: dict[TaskId, TaskState] = {}
        self._rows: dict[tuple[TaskId, str], BytesStore] = {}
        self._shared_cache: RecordCache | None = None
        self._resources: dict[str, Any] = {}
        #: How many arrivals the last commit had seen: global stores are that far after a crash.
        self._seen = 0
        #: Counters of tasks that are no more, and what each task had counted by its last commit.
        self._counted: Counter[str] = Counter()
        self._counting: dict[TaskId, dict[str, int]] = {}
        self._start_global()
        self._start_tasks(_leave_as_it_is)

    # ---- records -----------------------------------------------------------------------------

    def reads(self, topic: str) -> bool:
        """Whether a task or a global store reads a topic."""
        return self.placement.queue_of(topic) is not None or self._is_global(topic)

    def receive(
        self, topic: str, partition: int, timestamp: int,
        content: tuple[bytes | None, bytes | None, Headers],
    ) -> None:
        """Take a record from outside and process all that follows from it."""
        queue = self.placement.queue_of(topic)
        record = self.log.append(queue or topic, topic, partition, timestamp, content)
        self._take_in(InputRecord(queue or topic, record), with_global=True)

    def _take_in(self, arrival: InputRecord, *, with_global: bool) -> None:
        """Give a record to its task, run, and then to the global store that reads its topic."""
        queue, record = arrival
        reader = self.placement.readers.get((queue, record.partition))
        if reader is not None:
            self.tasks[reader].add_records((queue, record.partition), (record,))
            self.run()
        if with_global and self._is_global(record.topic):
            self._global.update(record)

    def run(self) -> bool:
        """Process what waits, one record of each task in turn; whether there was any."""
        moved = False
        going = True
        while going:
            going = False
            for task in self.tasks.values():
                if task.has_records and task.may_process(self.now):
                    task.process_next(self.now)
                    moved = going = True
                    if self._commit_every_record:
                        self._commit((task,))
                    elif task.runtime.commit_requested:
                        self._commit(self.tasks.values())
        return moved

    def punctuate(self) -> None:
        """Fire what is due by the wall clock."""
        for task in self.tasks.values():
            task.punctuate_wall_clock(self.now)

    # ---- commit ------------------------------------------------------------------------------

    def commit(self) -> None:
        """Commit all tasks, again and again until what they sent each other is processed."""
        self._commit(self.tasks.values())
        while self.run():
            self._commit(self.tasks.values())

    def commit_once(self) -> None:
        """Commit all tasks; what they sent each other waits."""
        self._commit(self.tasks.values())

    def _commit(self, tasks: Iterable[Task]) -> None:
        """Nothing happens before every task has given its result."""
        results = [(task, task.commit()) for task in tasks]
        for task, result in results:
            task.advance()
            self._states[task.task_id] = result.state
            self._counting[task.task_id] = result.counters
            self.printed.extend(result.printed)
            self._publish(result)
        self._seen = len(self.log.arrivals)

    def _publish(self, result: TaskResult) -> None:
        log, placement = self.log, self.placement
        for output in log.commit(result, self._config.application_id):
            topic, partition, key, value, timestamp, headers = output
            queue = placement.queue_of(topic)
            is_global = self._is_global(topic)
            if queue is None and not is_global:
                continue
            record = log.append(
                queue or topic, topic, partition, timestamp, (key, value, headers)
            )
            reader = placement.readers.get((queue or topic, partition))
            if reader is not None:
                self.tasks[reader].add_records((queue or topic, partition), (record,))
            if is_global:
                self._global.update(record)

    # ---- batches and crashes -----------------------------------------------------------------

    def new_batch(self) -> None:
        """Commit, and put every task together anew over the rows it has written."""
        self.commit()
        old = self.tasks
        waiting = self._waiting() if any(task.has_records for task in old.values()) else []
        for task in old.values():
            task.close()

        def refill(place: TaskSpec, plan: StorePlan, store: Any) -> None:
            if (place.task_id, plan.name) not in self._rows:
                self._restore(place, plan, store)

        self._start_tasks(refill)
        for queue, record in waiting:
            reader = self.placement.readers[queue, record.partition]
            self.tasks[reader].add_records((queue, record.partition), (record,))

    def crash(self) -> None:
        """Lose all that is not committed, restore the stores, and read the input again.

        Records are read again in the order in which they came, each processed before the next one.
        """
        seen = self._seen
        waiting = {(queue, record.partition, record.offset) for queue, record in self._waiting()}
        arrivals = list(self.log.arrivals)
        self._rows.clear()
        self._resources = {}
        self._start_global()
        for _, record in arrivals[:seen]:
            if self._is_global(record.topic):
                self._global.update(record)
        self._start_tasks(self._restore)
        self.punctuate()
        for number, arrival in enumerate(arrivals):
            queue, record = arrival
            if (queue, record.partition, record.offset) in waiting:
                self._take_in(arrival, with_global=number >= seen)
            elif number >= seen and self._is_global(record.topic):
                self._global.update(record)

    def _waiting(self) -> list[InputRecord]:
        """What came for a task and is not committed as read."""
        offsets, readers = self.log.offsets, self.placement.readers
        return [
            arrival for arrival in self.log.arrivals
            if (place := (arrival.queue, arrival.record.partition)) in readers
            and arrival.record.offset >= offsets.get(place, 0)
        ]

    def _restore(self, place: TaskSpec, plan: StorePlan, store: Any) -> None:
        """Fill a store from its changelog, or from the source topic that serves as one."""
        if not hasattr(store, "restore"):
            return
        partition = place.task_id.partition
        if plan.changelog is None and plan.restored_from is not None:
            topic = place.blueprint.topic(plan.restored_from)
            for record in self.log.records(topic, partition):
                if record.key is not None:
                    store.restore(record.key, record.value, record.timestamp, record.headers)
        else:
            for change in self.log.changelogs.get((plan.name, partition), ()):
                store.restore(change.key, change.value, change.timestamp, change.headers)
        if hasattr(store, "advance"):
            store.advance()

    # ---- life --------------------------------------------------------------------------------

    def counters(self) -> dict[str, int]:
        """All counters so far, without what was lost."""
        totals = Counter(self._counted)
        for task in self.tasks.values():
            totals.update(task.runtime.all_counters())
        if self.global_state is not None:
            totals["dropped-records-total"] += self.global_state.runtime.dropped
        return dict(totals)

    def close(self) -> None:
        """Close processors and stores."""
        for task in self.tasks.values():
            task.close()
        if self.global_state is not None:
            self.global_state.close()

    def _start_tasks(self, refill: Refill) -> None:
        for counters in self._counting.values():
            self._counted.update(counters)
        self._counting = {}
        self.tasks = {}
        for place in self.placement.places:
            self.tasks[place.task_id] = self._start_task(place, refill)

    def _start_task(self, place: TaskSpec, refill: Refill) -> Task:
        environment = Environment(
            partitions_of=self.placement.partitions_of,
            open_bytes=partial(self._rows_of, place.task_id),
            global_stores=self.global_state.stores if self.global_state else {},
            resources=self._resources, now=self.now, cache=self._shared_cache,
        )
        task = Task(
            place.blueprint, place.task_id, environment, self._states.get(place.task_id)
        )
        for plan in place.blueprint.stores:
            refill(place, plan, task.runtime.stores[plan.name])
        task.start()
        for source, queue, partition in place.queues:
            task.subscribe(source, queue, partition)
        return task

    def _rows_of(self, task_id: TaskId, name: str) -> BytesStore:
        """The same rows for every task that is put together in this place."""
        return self._rows.setdefault((task_id, name), InMemoryBytesStore())

    def _start_global(self) -> None:
        if self._topology.global_stores:
            if len(self.placement.places) == 1:
                # Kafka's driver has one thread, whose cache the global stores share.
                self._shared_cache = thread_cache(self._config)
            self.global_state = GlobalState(self._topology, self._config, self._shared_cache)

    def _is_global(self, topic: str) -> bool:
        return self.global_state is not None and topic in self.global_state.topics

    @property
    def _global(self) -> GlobalState:
        assert self.global_state is not None
        return self.global_state


def _leave_as_it_is(place: TaskSpec, plan: StorePlan, store: Any) -> None:
    """A store that is new is empty."""
