"""The mutable state that the nodes and stores of a running task share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from penstock.config import StreamsConfig
from penstock.metrics import StreamsMetrics
from penstock.processors.api import PunctuationType
from penstock.processors.base import Clock, NodeCounter
from penstock.record import UNKNOWN_POSITION, CurrentRecord, Headers, RecordMetadata, TaskId
from penstock.stores.bytes.store import OpenBytesStore, open_in_memory
from penstock.stores.cache.record_cache import RecordCache
from penstock.task.drops import DropNotes
from penstock.task.meters import Meters
from penstock.task.node_calls import NodeCalls
from penstock.task.node_timer import NodeTimer
from penstock.task.punctuation import Schedule, Schedules
from penstock.task.record_limits import RecordLimits, no_limits
from penstock.task.result import TaskState


def one_partition(topic: str) -> int:
    """Return 1: every topic has one partition, as in Kafka's test driver."""
    return 1


def thread_cache(config: StreamsConfig) -> RecordCache:
    """The record cache of one thread, with its share of the configured size."""
    return RecordCache(config.statestore_cache_max_bytes // config.num_stream_threads)


def _no_punctuation(schedule: Schedule, now: int) -> None:
    raise AssertionError("punctuation outside of a task")


@dataclass
class Environment:
    """Everything that a task receives from outside."""

    #: Returns the number of partitions of a topic, or None if the topic does not exist.
    partitions_of: Callable[[str], int | None] = one_partition
    #: Returns the limits on the records of a topic; None means no limits.
    limits_of: Callable[[str], RecordLimits | None] = no_limits
    #: Opens the bytes store of a store.
    open_bytes: OpenBytesStore = open_in_memory
    global_stores: dict[str, Any] = field(default_factory=dict)
    #: Objects that exist as long as the worker (`context.resource`).
    resources: dict[str, Any] = field(default_factory=dict)
    #: The wall clock of the batch.
    now: int = 0
    state_dir: str = ""
    #: The shared record cache of the thread; None creates one for the task.
    cache: RecordCache | None = None
    #: Topics that do not exist in the log: other tasks of the batch send their records.
    shuffled_topics: frozenset[str] = frozenset()
    #: Whether the task sends records to other tasks, which need to know their origins.
    notes_origins: bool = False
    #: A batch ends early when its result has about this size; None means no limit.
    max_result_bytes: int | None = None
    #: Store -> its clocks after the restore. They are later than those of the task record if
    #: Kafka Streams for Java has written the last rows.
    restored_clocks: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    #: Returns the time in milliseconds, for the ages of records; None: the wall clock of the batch.
    clock: Callable[[], int] | None = None


class Runtime:
    """Clocks, counters, schedules and pending changelog records of a task.

    It is the `StoreContext` of the task's stores. Only the task and its nodes write it.
    """

    # Native code reads and writes this slot for every record.
    __slots__ = ("__dict__", "stream_time")

    def __init__(
        self, config: StreamsConfig, task_id: TaskId, environment: Environment, state: TaskState,
        changelogs: Mapping[str, str | None] = MappingProxyType({}),
        source_changelogs: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.config = config
        self.task_id = task_id
        self.application_id = config.application_id
        self.environment = environment
        self.global_stores = environment.global_stores
        self.resources = environment.resources
        self.state_dir = environment.state_dir
        self.current = CurrentRecord()
        self.cache = environment.cache or thread_cache(config)
        self.default_key_serde = config.default_key_serde
        self.default_value_serde = config.default_value_serde
        self.stores: dict[str, Any] = {}
        self.stream_time = state.stream_time
        self.system_time = environment.now
        self.stream_schedules = Schedules(PunctuationType.STREAM_TIME, state.stream_schedules)
        self.wall_schedules = Schedules(PunctuationType.WALL_CLOCK_TIME, state.wall_schedules)
        self.dropped = 0
        self.drop_notes = DropNotes()
        self.counters: dict[str, int] = {}
        self.node_counters: dict[str, NodeCounter] = {}
        #: The counters and the sensors of processors.
        self.metrics = StreamsMetrics(self.all_counters, config.metrics_recording_level)
        #: The measurements of the task for its own metrics.
        self.meters = Meters(config.metrics_recording_level)
        #: The records that nodes have processed, except for those of sources.
        self.node_calls = NodeCalls()
        self.node_timer = NodeTimer(self.meters)
        self.printed: list[tuple[str | None, str]] = []
        #: Tuples with the fields of `LoggedChange`.
        self.changelog: list[tuple[Any, ...]] = []
        self.commit_requested = False
        #: True while processors are initialized, before the first record.
        self.starting = True
        #: The functions that initialize and close the processors, each with the name of its node.
        self.starts: list[tuple[str, Callable[[], object]]] = []
        self.closings: list[tuple[str, Callable[[], object]]] = []
        #: Calls one punctuator; set by the task.
        self.punctuate: Callable[[Schedule, int], None] = _no_punctuation
        self._clocks = {name: Clock(time) for name, time in state.clocks.items()}
        self._changelogs = changelogs
        self._source_changelogs = source_changelogs

    def source_position(self) -> RecordMetadata:
        """The position of the record in the log that caused the current one; for messages.

        The topic is None if there is no such record, or if it is unknown: the buffers of suppress
        and joins keep the position in a topic that may not exist in the log.
        """
        origin = self.current.origin
        return UNKNOWN_POSITION if origin.topic in self.environment.shuffled_topics else origin

    def now(self) -> int:
        """The time at which records are measured, in milliseconds."""
        clock = self.environment.clock
        return self.system_time if clock is None else clock()

    def age(self) -> int:
        """The time since the timestamp of the current record, in milliseconds."""
        return self.now() - self.current.timestamp

    def clock(self, name: str) -> Clock:
        """A clock that is kept between batches."""
        return self._clocks.setdefault(name, Clock())

    def clocks(self) -> dict[str, int]:
        """The times of all clocks by name."""
        return {name: clock.time for name, clock in self._clocks.items()}

    def all_counters(self) -> dict[str, int]:
        """The counters of all nodes, and the number of dropped records."""
        counted = {name: each.amount for name, each in self.node_counters.items() if each.amount}
        return {**self.counters, **counted, "dropped-records-total": self.dropped}

    def close(self) -> None:
        """Close all processors, then all stores. Raises the first failure at the end."""
        first: Exception | None = None
        processors = [close for _, close in self.closings]
        for close in (*processors, *(store.close for store in self.stores.values())):
            try:
                close()
            except Exception as error:
                first = first or error
        if first is not None:
            raise first

    # ---- for stores --------------------------------------------------------------------------

    def app_configs(self) -> Mapping[str, Any]:
        """The configuration under Kafka's names."""
        return self.config.app_configs()

    def app_configs_with_prefix(self, prefix: str) -> Mapping[str, Any]:
        """The settings whose names start with the prefix, without the prefix."""
        return self.config.app_configs_with_prefix(prefix)

    def changelog_topic(self, store: str) -> str:
        """The topic of a store's serdes: its changelog, or the source topic that replaces it.

        Also defined for stores without logging.
        """
        return (
            self._changelogs.get(store) or self._source_changelogs.get(store)
            or f"{self.application_id}-{store}-changelog"
        )

    def log_change(
        self, store: str, key: bytes, value: bytes | None, timestamp: int, headers: Headers
    ) -> None:
        """Append a record to the changelog of a store, if it has one."""
        if self._changelogs.get(store) is not None:
            self.changelog.append((store, key, value, timestamp, headers))

    def log_changes(self, store: str, changes: list[tuple[Any, ...]]) -> None:
        """Append records with the fields of `LoggedChange` to the changelog of a store."""
        if self._changelogs.get(store) is not None:
            self.changelog += changes

    def drop(self, reason: str, store: str | None = None) -> None:
        """Count a dropped record. With the name of a store, it is logged as well."""
        self.dropped += 1
        if store is not None:
            self.notice(f"Store '{store}'", f"dropped a record: {reason}")

    def notice(self, node: str, event: str, level: int = logging.WARNING) -> None:
        """Log what happened to the current record, after the commit and at a limited rate."""
        self.drop_notes.add(node, event, level, self.source_position)
