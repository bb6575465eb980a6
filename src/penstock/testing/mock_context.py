"""`MockProcessorContext`: records the calls of a single processor, without a topology (D3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

from penstock.config import StreamsConfig
from penstock.metrics import StreamsMetrics
from penstock.processors.api import PunctuationType
from penstock.record import (
    NO_HEADERS,
    FixedKeyRecord,
    Headers,
    Record,
    RecordMetadata,
    TaskId,
    as_headers,
)
from penstock.stores.api.store import check_kind
from penstock.task.result import TaskState
from penstock.task.runtime import Environment, Runtime
from penstock.windows import instant_ms, to_ms

if TYPE_CHECKING:
    from penstock.serdes.builtin import Serde
    from penstock.stores.api.store import StoreContext

T = TypeVar("T")

_TASK = TaskId(0, 0)


class CapturedForward(NamedTuple):
    """A forwarded record; `child` is None if it went to all children."""

    record: Any
    child: str | None = None


@dataclass
class CapturedPunctuator:
    """A scheduled punctuator. The test calls it: `captured.punctuator(timestamp)`."""

    interval_ms: int
    type: PunctuationType
    punctuator: Callable[[int], object]
    #: The start time of the schedule, if it has one.
    start: int | None = None
    cancelled: bool = field(default=False)

    def cancel(self) -> None:
        """Cancel the schedule; called by the processor.

        Kafka: CapturedPunctuator#cancel
        """
        self.cancelled = True


class MockProcessorContext:
    """A processor context that returns the values a test sets and records what a processor does.

    It does nothing on its own: clocks do not move, punctuators are not called, nothing is
    committed. For that, run the processor in a small topology with `TopologyTestDriver`.

    Args:
        config: The configuration that the processor sees.
        task_id: The task that the processor sees.
        state_dir: The directory that the processor sees.

    Example:
        >>> from penstock import Processor, Record
        >>> class Double(Processor):
        ...     def process(self, record):
        ...         self.context.forward(record.with_value(record.value * 2))
        >>> context, processor = MockProcessorContext(), Double()
        >>> processor.init(context)
        >>> processor.process(Record("k", 21, 0))
        >>> context.forwarded()[0].record.value
        42

    Kafka: MockProcessorContext
    """

    #: The type of record that `forward` takes.
    _record_type: type = Record

    def __init__(
        self, config: StreamsConfig | None = None, task_id: TaskId = _TASK,
        state_dir: str = "",
    ) -> None:
        self._config = config or StreamsConfig(application_id="mock")
        self._task_id = task_id
        self._state_dir = state_dir
        self._metadata: RecordMetadata | None = None
        self._system_time: int | None = None
        self._stream_time: int | None = None
        self._timestamp: int | None = None
        self._headers: Headers = NO_HEADERS
        self._stores: dict[str, Any] = {}
        self._resources: dict[str, Any] = {}
        self._forwarded: list[CapturedForward] = []
        self._punctuators: list[CapturedPunctuator] = []
        self._committed = False
        self._runtime = Runtime(
            self._config, task_id, Environment(state_dir=state_dir), TaskState()
        )

    # ---- set by the test ---------------------------------------------------------------------

    def set_record_metadata(self, topic: str | None, partition: int, offset: int) -> None:
        """Set the origin of the current record.

        Args:
            topic: The topic, or None.
            partition: The partition.
            offset: The offset.

        Kafka: MockProcessorContext#setRecordMetadata
        """
        self._metadata = RecordMetadata(topic, partition, offset)

    def set_current_system_time_ms(self, time: datetime | int) -> None:
        """Set the wall clock.

        Args:
            time: The time, in milliseconds since the epoch or as a datetime.

        Kafka: MockProcessorContext#setCurrentSystemTimeMs
        """
        self._system_time = instant_ms(time)

    def set_current_stream_time_ms(self, time: datetime | int) -> None:
        """Set the stream time.

        Args:
            time: The time, in milliseconds since the epoch or as a datetime.

        Kafka: MockProcessorContext#setCurrentStreamTimeMs
        """
        self._stream_time = instant_ms(time)

    def set_timestamp(self, timestamp: datetime | int) -> None:
        """Set the timestamp of the current record, for a `ValueTransformer`.

        Args:
            timestamp: The time, in milliseconds since the epoch or as a datetime.
        """
        self._timestamp = instant_ms(timestamp)

    def set_headers(self, headers: Iterable[tuple[str, bytes | None]]) -> None:
        """Set the headers of the current record, for a `ValueTransformer`.

        Args:
            headers: The headers: pairs of a name and bytes or None.
        """
        self._headers = as_headers(headers)

    def add_state_store(self, store: Any) -> None:
        """Add a store for `get_state_store`; open it first with `state_store_context`.

        Args:
            store: The open store.

        Kafka: MockProcessorContext#addStateStore
        """
        self._stores[store.name] = store

    @property
    def state_store_context(self) -> StoreContext:
        """The context to open a store with: `store.init(context.state_store_context)`."""
        context: Any = self._runtime
        found: StoreContext = context
        return found

    # ---- read by the test --------------------------------------------------------------------

    def forwarded(self, child: str | None = None) -> list[CapturedForward]:
        """Return the forwarded records; with `child`, those that this child would receive.

        Args:
            child: The name of a child; None for all.

        Kafka: MockProcessorContext#forwarded
        """
        return [
            each for each in self._forwarded
            if child is None or each.child is None or each.child == child
        ]

    def reset_forwards(self) -> None:
        """Clear the forwarded records.

        Kafka: MockProcessorContext#resetForwards
        """
        self._forwarded.clear()

    @property
    def scheduled_punctuators(self) -> list[CapturedPunctuator]:
        """All schedules so far."""
        return list(self._punctuators)

    @property
    def committed(self) -> bool:
        """Whether the processor requested a commit."""
        return self._committed

    def reset_commit(self) -> None:
        """Clear the request for a commit.

        Kafka: MockProcessorContext#resetCommit
        """
        self._committed = False

    # ---- used by the processor ---------------------------------------------------------------

    @property
    def application_id(self) -> str:
        return self._config.application_id

    @property
    def task_id(self) -> TaskId:
        return self._task_id

    @property
    def record_metadata(self) -> RecordMetadata | None:
        return self._metadata

    @property
    def current_system_time_ms(self) -> int:
        if self._system_time is None:
            raise RuntimeError(
                "The wall clock is not set. Call set_current_system_time_ms first."
            )
        return self._system_time

    @property
    def current_stream_time_ms(self) -> int:
        if self._stream_time is None:
            raise RuntimeError(
                "The stream time is not set. Call set_current_stream_time_ms first."
            )
        return self._stream_time

    @property
    def timestamp(self) -> int:
        if self._timestamp is None:
            raise RuntimeError("The timestamp is not set. Call set_timestamp first.")
        return self._timestamp

    @property
    def headers(self) -> Headers:
        return self._headers

    @property
    def key_serde(self) -> Serde[Any] | None:
        return self._config.default_key_serde

    @property
    def value_serde(self) -> Serde[Any] | None:
        return self._config.default_value_serde

    @property
    def state_dir(self) -> str:
        return self._state_dir

    @overload
    def get_state_store(self, name: str) -> Any: ...
    @overload
    def get_state_store(self, name: str, kind: type[T]) -> T: ...
    def get_state_store(self, name: str, kind: Any = None) -> Any:
        """Return a store that the test added.

        Args:
            name: The name of the store.
            kind: The class of the store, such as `KeyValueStore[str, int]`.

        Raises:
            KeyError: The test has not added the store.
            TypeError: The store is not of that kind.

        Kafka: MockProcessorContext#getStateStore
        """
        if name not in self._stores:
            known = ", ".join(map(repr, self._stores)) or "none"
            raise KeyError(
                f"Store {name!r} does not exist. Stores: {known}. Add it with add_state_store."
            )
        return check_kind(self._stores[name], kind)

    def forward(self, record: Any, child: str | None = None) -> None:
        """Record a forwarded record.

        Args:
            record: The record.
            child: The name of a child; None for all.

        Kafka: MockProcessorContext#forward
        """
        if not isinstance(record, self._record_type):
            raise TypeError(
                f"This context forwards a {self._record_type.__name__}, "
                f"not a {type(record).__name__}."
            )
        self._forwarded.append(CapturedForward(record, child))

    def schedule(
        self,
        interval: timedelta | int,
        type: PunctuationType,
        punctuator: Callable[[int], object],
        *,
        start: datetime | int | None = None,
    ) -> CapturedPunctuator:
        """Record a schedule.

        Args:
            interval: The time between two calls.
            type: The clock of the schedule.
            punctuator: A function of the timestamp.
            start: The time of the first call.

        Returns:
            The schedule; its attributes show interval, clock and function.

        Kafka: MockProcessorContext#schedule
        """
        captured = CapturedPunctuator(
            to_ms(interval), type, punctuator, None if start is None else instant_ms(start)
        )
        self._punctuators.append(captured)
        return captured

    def commit(self) -> None:
        """Record the request for a commit.

        Kafka: MockProcessorContext#commit
        """
        self._committed = True

    def resource(self, name: str, factory: Callable[[], T]) -> T:
        """Return the resource with that name; `factory` creates it once per context.

        Args:
            name: The name of the object.
            factory: A function without arguments that creates it.
        """
        if name not in self._resources:
            self._resources[name] = factory()
        found: T = self._resources[name]
        return found

    def metrics(self) -> StreamsMetrics:
        """Return the counters that stores have updated, and the sensors of the processor.

        Kafka: MockProcessorContext#metrics
        """
        return self._runtime.metrics

    def app_configs(self) -> Mapping[str, Any]:
        """Return the configuration under Kafka's names.

        Kafka: MockProcessorContext#appConfigs
        """
        return self._config.app_configs()

    def app_configs_with_prefix(self, prefix: str) -> Mapping[str, Any]:
        """Return the settings whose names start with the prefix, without the prefix.

        Args:
            prefix: The start of the names.

        Kafka: MockProcessorContext#appConfigsWithPrefix
        """
        return self._config.app_configs_with_prefix(prefix)


class MockFixedKeyProcessorContext(MockProcessorContext):
    """The mock context of `process_values`: `forward` takes a `FixedKeyRecord`.

    Example:
        >>> from penstock import FixedKeyProcessor
        >>> from penstock.testing import fixed_key_record
        >>> class Double(FixedKeyProcessor):
        ...     def process(self, record):
        ...         self.context.forward(record.with_value(record.value * 2))
        >>> context, processor = MockFixedKeyProcessorContext(), Double()
        >>> processor.init(context)
        >>> processor.process(fixed_key_record("k", 21, 0))
        >>> context.forwarded()[0].record.value
        42
    """

    _record_type = FixedKeyRecord
