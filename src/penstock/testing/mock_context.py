"""A context that only remembers: for tests of one processor, without a topology (D3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from penstock.config import StreamsConfig
from penstock.processors.api import PunctuationType
from penstock.record import FixedKeyRecord, Record, RecordMetadata, TaskId
from penstock.task.result import TaskState
from penstock.task.runtime import Environment, Runtime
from penstock.windows import instant_ms, to_ms

if TYPE_CHECKING:
    from penstock.serdes.builtin import Serde
    from penstock.stores.api.store import StoreContext

T = TypeVar("T")

_TASK = TaskId(0, 0)


class CapturedForward(NamedTuple):
    """A record that was forwarded, to all children (None) or to one."""

    record: Any
    child: str | None = None


@dataclass
class CapturedPunctuator:
    """A schedule that was made; it is up to the test to call its punctuator."""

    interval_ms: int
    type: PunctuationType
    punctuator: Callable[[int], object]
    #: When it should begin, None if nothing was said.
    start: int | None = None
    cancelled: bool = field(default=False)

    def cancel(self) -> None:
        """What the processor calls when it has had enough."""
        self.cancelled = True


class MockProcessorContext:
    """Stands in for the context of a processor: what it is told to answer, it answers.

    Nothing happens by itself: no clock moves, no punctuator is called, nothing is committed. Where
    that is needed, run the processor in a small topology under `TopologyTestDriver`.
    """

    #: What `forward` takes.
    _shape: type = Record

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
        self._stores: dict[str, Any] = {}
        self._resources: dict[str, Any] = {}
        self._forwarded: list[CapturedForward] = []
        self._punctuators: list[CapturedPunctuator] = []
        self._committed = False
        self._runtime = Runtime(
            self._config, task_id, Environment(state_dir=state_dir), TaskState(), {}
        )

    # ---- what the test sets ------------------------------------------------------------------

    def set_record_metadata(self, topic: str | None, partition: int, offset: int) -> None:
        """Where the current record is said to come from."""
        self._metadata = RecordMetadata(topic, partition, offset)

    def set_current_system_time_ms(self, time: datetime | int) -> None:
        """Set the wall clock."""
        self._system_time = instant_ms(time)

    def set_current_stream_time_ms(self, time: datetime | int) -> None:
        """Set the stream time."""
        self._stream_time = instant_ms(time)

    def add_state_store(self, store: Any) -> None:
        """Let the processor find a store; open it first with `state_store_context`."""
        self._stores[store.name] = store

    @property
    def state_store_context(self) -> StoreContext:
        """What a store is opened with: `store.init(context.state_store_context)`."""
        context: Any = self._runtime
        found: StoreContext = context
        return found

    # ---- what the test reads -----------------------------------------------------------------

    def forwarded(self, child: str | None = None) -> list[CapturedForward]:
        """What was forwarded so far; with a name, what that child would have got."""
        return [
            each for each in self._forwarded
            if child is None or each.child is None or each.child == child
        ]

    def reset_forwards(self) -> None:
        """Forget what was forwarded."""
        self._forwarded.clear()

    @property
    def scheduled_punctuators(self) -> list[CapturedPunctuator]:
        """The schedules made so far."""
        return list(self._punctuators)

    @property
    def committed(self) -> bool:
        """Whether a commit was asked for."""
        return self._committed

    def reset_commit(self) -> None:
        """Forget that a commit was asked for."""
        self._committed = False

    # ---- what the processor sees -------------------------------------------------------------

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
    def key_serde(self) -> Serde[Any] | None:
        return self._config.default_key_serde

    @property
    def value_serde(self) -> Serde[Any] | None:
        return self._config.default_value_serde

    @property
    def state_dir(self) -> str:
        return self._state_dir

    def get_state_store(self, name: str) -> Any:
        """A store that the test added."""
        if name not in self._stores:
            known = ", ".join(map(repr, self._stores)) or "none"
            raise KeyError(f"No store {name!r}. Add it with add_state_store. Stores: {known}.")
        return self._stores[name]

    def forward(self, record: Any, child: str | None = None) -> None:
        """Remember a record."""
        if not isinstance(record, self._shape):
            raise TypeError(
                f"This context forwards a {self._shape.__name__}, not a {type(record).__name__}."
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
        """Remember a schedule."""
        captured = CapturedPunctuator(
            to_ms(interval), type, punctuator, None if start is None else instant_ms(start)
        )
        self._punctuators.append(captured)
        return captured

    def commit(self) -> None:
        """Remember that a commit was asked for."""
        self._committed = True

    def resource(self, name: str, factory: Callable[[], T]) -> T:
        """Something that lives as long as the context."""
        if name not in self._resources:
            self._resources[name] = factory()
        found: T = self._resources[name]
        return found

    def metrics(self) -> Mapping[str, float]:
        """The counters that stores have moved."""
        return self._runtime.all_counters()

    def app_configs(self) -> Mapping[str, Any]:
        return self._config.app_configs()

    def app_configs_with_prefix(self, prefix: str) -> Mapping[str, Any]:
        return self._config.app_configs_with_prefix(prefix)


class MockFixedKeyProcessorContext(MockProcessorContext):
    """The same for processors that cannot change keys: they forward a `FixedKeyRecord`."""

    _shape = FixedKeyRecord
