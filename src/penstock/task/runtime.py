"""What the nodes and stores of one task share while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.config import StreamsConfig
from penstock.processors.api import PunctuationType
from penstock.processors.base import Clock, NodeCounter
from penstock.record import Current, Headers, TaskId
from penstock.stores.bytes.store import OpenBytesStore, open_in_memory
from penstock.stores.cache.record_cache import RecordCache
from penstock.task.punctuation import Schedule, Schedules
from penstock.task.record_limits import RecordLimits, no_limits
from penstock.task.result import TaskState


def one_partition(topic: str) -> int:
    """Every topic has one partition, as under Kafka's test driver."""
    return 1


def thread_cache(config: StreamsConfig) -> RecordCache:
    """The record cache of one thread: its part of the configured size."""
    return RecordCache(config.statestore_cache_max_bytes // config.num_stream_threads)


def _no_punctuation(schedule: Schedule, now: int) -> None:
    raise AssertionError("a punctuation outside of a task")


@dataclass
class Environment:
    """What a task is given from outside; it asks for nothing else."""

    #: How many partitions a topic has, None if there is no such topic.
    partitions_of: Callable[[str], int | None] = one_partition
    #: Which records a topic takes; None: all.
    limits_of: Callable[[str], RecordLimits | None] = no_limits
    #: Where the rows of a store rest.
    open_bytes: OpenBytesStore = open_in_memory
    global_stores: dict[str, Any] = field(default_factory=dict)
    #: Things that live as long as the worker.
    resources: dict[str, Any] = field(default_factory=dict)
    #: The wall clock of the batch.
    now: int = 0
    state_dir: str = ""
    #: The record cache of the thread, if the task shares one; else it makes its own.
    cache: RecordCache | None = None
    #: A batch ends early when what it wants to write is about this large; None: no limit.
    max_result_bytes: int | None = None


class Runtime:
    """The mutable middle of a task: clocks, counters, schedules, the changelog being written.

    It is the `StoreContext` of the task's stores. Written by the task and its nodes only.
    """

    # What moves with every record has a slot of its own, where native code finds it.
    __slots__ = ("__dict__", "stream_time")

    def __init__(
        self, config: StreamsConfig, task_id: TaskId, environment: Environment, state: TaskState,
        changelogs: dict[str, str | None],
    ) -> None:
        self.config = config
        self.task_id = task_id
        self.application_id = config.application_id
        self.environment = environment
        self.global_stores = environment.global_stores
        self.resources = environment.resources
        self.state_dir = environment.state_dir
        self.current = Current()
        self.cache = environment.cache or thread_cache(config)
        self.default_key_serde = config.default_key_serde
        self.default_value_serde = config.default_value_serde
        self.stores: dict[str, Any] = {}
        self.stream_time = state.stream_time
        self.system_time = environment.now
        self.stream_schedules = Schedules(PunctuationType.STREAM_TIME, state.stream_schedules)
        self.wall_schedules = Schedules(PunctuationType.WALL_CLOCK_TIME, state.wall_schedules)
        self.dropped = 0
        self.counters: dict[str, int] = {}
        self.tallies: dict[str, NodeCounter] = {}
        self.printed: list[tuple[str | None, str]] = []
        #: Each as `LoggedChange` has it.
        self.changelog: list[tuple[Any, ...]] = []
        self.commit_requested = False
        #: True while processors are set up: there is no record yet.
        self.starting = True
        self.starts: list[tuple[str, Callable[[], object]]] = []
        #: Calls one punctuator at a time; set by the task.
        self.punctuate: Callable[[Schedule, int], None] = _no_punctuation
        self.closings: list[Callable[[], object]] = []
        self._clocks = {name: Clock(time) for name, time in state.clocks.items()}
        self._changelogs = changelogs

    def clock(self, name: str) -> Clock:
        """A clock that outlives the batch."""
        return self._clocks.setdefault(name, Clock())

    def clocks(self) -> dict[str, int]:
        """All clocks and what they show."""
        return {name: clock.time for name, clock in self._clocks.items()}

    def all_counters(self) -> dict[str, int]:
        """The nodes' counters and how many records were dropped."""
        tallies = {name: tally.amount for name, tally in self.tallies.items() if tally.amount}
        return {**self.counters, **tallies, "dropped-records-total": self.dropped}

    # ---- for stores --------------------------------------------------------------------------

    def changelog_topic(self, store: str) -> str:
        """The topic a store's changes go to, or would go to."""
        return self._changelogs.get(store) or f"{self.application_id}-{store}-changelog"

    def log_change(
        self, store: str, key: bytes, value: bytes | None, timestamp: int, headers: Headers
    ) -> None:
        """Append to a store's changelog, if it has one."""
        if self._changelogs.get(store) is not None:
            self.changelog.append((store, key, value, timestamp, headers))

    def log_changes(self, store: str, changes: list[tuple[Any, ...]]) -> None:
        """Append many records to one store's changelog; each as `LoggedChange` has it."""
        if self._changelogs.get(store) is not None:
            self.changelog += changes

    def drop(self, reason: str) -> None:
        """Count a dropped record."""
        self.dropped += 1
