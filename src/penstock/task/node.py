"""A node of a running task: the contexts of its operator and of the user's processor."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

from penstock.errors import StreamsException
from penstock.processors.api import Cancellable, PunctuationType
from penstock.processors.base import CallCounter, Clock, Forward, NodeCounter
from penstock.processors.user import check_not_async
from penstock.record import CurrentRecord, FixedKeyRecord, Headers, RecordMetadata, TaskId
from penstock.stores.api.store import check_kind
from penstock.windows import instant_ms, to_ms

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.metrics import StreamsMetrics
    from penstock.serdes.builtin import Serde
    from penstock.task.runtime import Runtime

T = TypeVar("T")


class TaskNode:
    """Implements `NodeContext` for one node."""

    def __init__(
        self, name: str, runtime: Runtime, stores: tuple[str, ...],
        feeds: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`feeds`: read-only store -> the processor that fills it."""
        self.name = name
        self.feeds = feeds
        self.current: CurrentRecord = runtime.current
        self.runtime = runtime
        self.calls = CallCounter()
        self._stores = stores
        #: Child name -> the function that forwards to it; set when the children are attached.
        self.children: dict[str, Forward] = {}
        self._schedules_made = 0
        #: The reasons for which records were dropped -> the texts of the log lines.
        self._events: dict[str, str] = {}

    @property
    def stream_time(self) -> int:
        return self.runtime.stream_time

    @property
    def system_time(self) -> int:
        return self.runtime.system_time

    @property
    def drops(self) -> int:
        return self.runtime.dropped

    @property
    def config(self) -> StreamsConfig:
        """The configuration of the task."""
        return self.runtime.config

    def store(self, name: str) -> Any:
        """The store for operators, without headers in its values."""
        store = self.find_store(name)
        return getattr(store, "plain", store)

    def find_store(self, name: str) -> Any:
        """A global store, or a store that is connected to this node."""
        runtime = self.runtime
        if name in runtime.global_stores:
            return runtime.global_stores[name]
        if name not in self._stores:
            known = ", ".join(repr(each) for each in self._stores) or "none"
            raise StreamsException(
                f"Processor {self.name} has no access to StateStore {name} as the store is not "
                f"connected to the processor. Connected stores: {known}. Pass the store name to "
                "process(), process_values() or transform_values(), connect it with "
                "connect_processor_and_state_stores(), or add it to `stores` of the supplier."
            )
        return runtime.stores[name]

    def drop(self, reason: str, level: int = logging.WARNING) -> None:
        runtime = self.runtime
        runtime.dropped += 1
        event = self._events.get(reason)
        if event is None:
            event = self._events[reason] = f"dropped a record: {reason}"
        runtime.drop_notes.add(self.name, event, level, runtime.source_position)

    def notice(self, event: str) -> None:
        self.runtime.notice(self.name, event)

    def count(self, counter: str, amount: int = 1) -> None:
        counters = self.runtime.counters
        name = f"{self.name}/{counter}"
        counters[name] = counters.get(name, 0) + amount

    def counter(self, name: str) -> NodeCounter:
        return self.runtime.node_counters.setdefault(f"{self.name}/{name}", NodeCounter())

    def recorder(self, sensor: str) -> Callable[[float], None] | None:
        meters = self.runtime.meters
        return meters.meter(sensor, self.name).record if meters.records(sensor) else None

    def print_line(self, line: str, file: str | None = None) -> None:
        self.runtime.printed.append((file, line))

    def forward_to(self, child: str) -> Forward:
        try:
            return self.children[child]
        except KeyError:
            known = ", ".join(self.children) or "none"
            raise StreamsException(
                f"Unknown downstream node: {child} either does not exist or is not connected to "
                f"{self.name}. Children: {known}."
            ) from None

    def at_start(self, action: Callable[[], object]) -> None:
        self.runtime.starts.append((self.name, self._named("initialize", action)))

    def at_close(self, action: Callable[[], object]) -> None:
        self.runtime.closings.append((self.name, self._named("close", action)))

    def _named(self, verb: str, action: Callable[[], object]) -> Callable[[], None]:
        """Name the processor in failures of its own functions, as Kafka does."""
        def run() -> None:
            try:
                action()
            except StreamsException:
                raise
            except Exception as error:
                raise StreamsException(
                    f"Failed to {verb} processor {self.name}. taskId={self.runtime.task_id}: "
                    f"{type(error).__name__}: {error}"
                ) from error

        return run

    def user_context(self, forward: Forward, fixed_key: bool = False) -> UserContext:
        if self.name in self.feeds.values():
            return FeedContext(self, forward)
        return FixedKeyContext(self, forward) if fixed_key else UserContext(self, forward)

    def transformer_context(self, forward: Forward) -> TransformerContext:
        return TransformerContext(self, forward)

    def clock(self, name: str) -> Clock:
        return self.runtime.clock(name)

    def schedule(
        self, interval_ms: int, type: PunctuationType, punctuator: Callable[[int], object],
        start: int | None,
    ) -> Cancellable:
        """Add a schedule of this node."""
        runtime = self.runtime
        schedules, now = (
            (runtime.stream_schedules, runtime.stream_time)
            if type is PunctuationType.STREAM_TIME
            else (runtime.wall_schedules, runtime.system_time)
        )
        self._schedules_made += 1
        return schedules.add(self.name, self._schedules_made, interval_ms, punctuator, now, start)


class UserContext:
    """Implements `ProcessorContext` for the user's processor."""

    def __init__(self, node: TaskNode, forward: Forward) -> None:
        #: For a built-in operator inside a user's processor (`topology/processor_wrapper.py`).
        self.node = node
        #: The last record that was passed to the processor.
        self.given: Any = None
        self._runtime = node.runtime
        self._forward = forward

    @property
    def application_id(self) -> str:
        return self._runtime.config.application_id

    @property
    def task_id(self) -> TaskId:
        return self._runtime.task_id

    @property
    def record_metadata(self) -> RecordMetadata | None:
        if self._runtime.starting:
            return None
        current = self._runtime.current
        return RecordMetadata(current.topic, current.partition, current.offset)

    @property
    def current_stream_time_ms(self) -> int:
        return self._runtime.stream_time

    @property
    def current_system_time_ms(self) -> int:
        return self._runtime.system_time

    @property
    def key_serde(self) -> Serde[Any] | None:
        return self._runtime.config.default_key_serde

    @property
    def value_serde(self) -> Serde[Any] | None:
        return self._runtime.config.default_value_serde

    @property
    def state_dir(self) -> str:
        return self._runtime.state_dir

    @overload
    def get_state_store(self, name: str) -> Any: ...
    @overload
    def get_state_store(self, name: str, kind: type[T]) -> T: ...
    def get_state_store(self, name: str, kind: Any = None) -> Any:
        return self._access(name, check_kind(self.node.find_store(name), kind))

    def _access(self, name: str, store: Any) -> Any:
        """Return the store as the processor may use it."""
        if name in self._runtime.global_stores:
            return ReadOnlyStore(store, "Global store is read only")
        if name in self.node.feeds:
            return ReadOnlyStore(store, f"Only processor {self.node.feeds[name]} may write")
        return store

    def forward(self, record: Any, child: str | None = None) -> None:
        send = self._forward if child is None else self.node.forward_to(child)
        current = self._runtime.current
        sent = current.sent
        send(record.key, record.value, record.timestamp, record.headers)
        if record is not self.given:
            current.sent = sent

    def schedule(
        self,
        interval: timedelta | int,
        type: PunctuationType,
        punctuator: Callable[[int], object],
        *,
        start: datetime | int | None = None,
    ) -> Cancellable:
        interval_ms = to_ms(interval)
        if interval_ms < 1:
            raise ValueError("The minimum supported scheduling interval is 1 millisecond.")
        check_not_async(punctuator, f"{self.node.name}: the punctuator")
        first = None if start is None else instant_ms(start)
        if first is not None and first < 0:
            raise ValueError(f"A schedule cannot start before the epoch: {start}.")
        return self.node.schedule(interval_ms, type, punctuator, first)

    def commit(self) -> None:
        self._runtime.commit_requested = True

    def resource(self, name: str, factory: Callable[[], T]) -> T:
        resources = self._runtime.resources
        if name not in resources:
            resources[name] = factory()
        found: T = resources[name]
        return found

    def metrics(self) -> StreamsMetrics:
        return self._runtime.metrics

    def app_configs(self) -> Mapping[str, Any]:
        return self._runtime.config.app_configs()

    def app_configs_with_prefix(self, prefix: str) -> Mapping[str, Any]:
        return self._runtime.config.app_configs_with_prefix(prefix)


class FixedKeyContext(UserContext):
    """The context of `process_values`: it forwards only records that keep their key."""

    def forward(self, record: Any, child: str | None = None) -> None:
        if record.__class__ is not FixedKeyRecord:
            raise TypeError(
                f"{self.node.name}: process_values() forwards a FixedKeyRecord, not a "
                f"{type(record).__name__}. Forward record.with_value(value), "
                "or use process() to change keys."
            )
        super().forward(record, child)


class FeedContext(UserContext):
    """The context of a processor that fills a read-only store.

    A restore processes the records again, so the context offers only what is the same then.
    """

    @property
    def current_stream_time_ms(self) -> int:
        self._reject("the stream time")

    @property
    def current_system_time_ms(self) -> int:
        self._reject("the system time")

    def _access(self, name: str, store: Any) -> Any:
        if name in self._runtime.global_stores:
            self._reject(f"global store {name!r}")
        return FedStore(store, self._runtime.current)

    def _reject(self, what: str) -> NoReturn:
        raise StreamsException(
            f"Processor {self.node.name} fills a read-only store, so it cannot use {what}: it has "
            "another value when the store is restored. Use it in a child of the processor."
        )


class TransformerContext(UserContext):
    """The context of `transform_values`. The transformer receives no record, but its fields."""

    @property
    def timestamp(self) -> int:
        """The timestamp of the current row."""
        return self._runtime.current.timestamp

    @property
    def headers(self) -> Headers:
        """The headers of the current record."""
        return self._runtime.current.headers


_WRITES = frozenset(
    ("put", "put_if_absent", "put_all", "delete", "remove", "save", "restore", "advance", "commit",
     "close", "init")
)


class ReadOnlyStore:
    """A global or read-only store for processors: writes raise an error, with a reason."""

    def __init__(self, store: Any, reason: str) -> None:
        self._store = store
        self._reason = reason

    def __getattr__(self, name: str) -> Any:
        if name in _WRITES:
            self._reject(name)
        return getattr(self._store, name)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._reject("store[key] = value")

    def __delitem__(self, key: Any) -> None:
        self._reject("del store[key]")

    def _reject(self, operation: str) -> NoReturn:
        raise StreamsException(
            f"{self._reason}: {operation} is not allowed on store {self._store.name!r}."
        )

    def __getitem__(self, key: Any) -> Any:
        return self._store[key]

    def __contains__(self, key: Any) -> bool:
        return key in self._store

    def __iter__(self) -> Iterator[Any]:
        return iter(self._store)


class FedStore(ReadOnlyStore):
    """A read-only store for the processor that fills it: it may write while it has a record."""

    def __init__(self, store: Any, current: CurrentRecord) -> None:
        super().__init__(store, "Only the records of its topic change a read-only store")
        self._current = current

    def __getattr__(self, name: str) -> Any:
        if self._current.topic is None:
            return super().__getattr__(name)
        return getattr(self._store, name)

    def __setitem__(self, key: Any, value: Any) -> None:
        if self._current.topic is None:
            super().__setitem__(key, value)
        self._store[key] = value

    def __delitem__(self, key: Any) -> None:
        if self._current.topic is None:
            super().__delitem__(key)
        del self._store[key]


def no_children(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
    """The forward function of a node without children."""
