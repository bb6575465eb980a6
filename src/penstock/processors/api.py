"""The Processor API as users see it: processors, their context, punctuation (A1-A7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from enum import Enum
from functools import wraps
from inspect import iscoroutinefunction, isfunction
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from penstock.record import FixedKeyRecord, Record, RecordMetadata, TaskId

if TYPE_CHECKING:
    from penstock.serdes.builtin import Serde

KIn = TypeVar("KIn")
VIn = TypeVar("VIn")
KIn_contra = TypeVar("KIn_contra", contravariant=True)
VIn_contra = TypeVar("VIn_contra", contravariant=True)
VOut_co = TypeVar("VOut_co", covariant=True)
T = TypeVar("T")


class PunctuationType(Enum):
    """The clock that a schedule follows."""

    STREAM_TIME = "stream_time"
    WALL_CLOCK_TIME = "wall_clock_time"


class Cancellable(Protocol):
    """A schedule that can be cancelled."""

    def cancel(self) -> None:
        """Stop the punctuations."""
        ...


class ProcessorContext(Protocol):
    """The environment of a processor. It is passed to `init` and is valid until `close`."""

    @property
    def application_id(self) -> str: ...

    @property
    def task_id(self) -> TaskId: ...

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """Topic, partition and offset of the current record; None during `init`."""
        ...

    @property
    def current_stream_time_ms(self) -> int:
        """The largest timestamp that the task has processed, -1 before the first record."""
        ...

    @property
    def current_system_time_ms(self) -> int:
        """The wall-clock time, read once per batch."""
        ...

    @property
    def key_serde(self) -> Serde[Any] | None:
        """The default serde for keys."""
        ...

    @property
    def value_serde(self) -> Serde[Any] | None:
        """The default serde for values."""
        ...

    @property
    def state_dir(self) -> str:
        """The directory in which the task may store files."""
        ...

    def get_state_store(self, name: str) -> Any:
        """Return a store that is connected to this processor, or a global store."""
        ...

    def forward(self, record: Any, child: str | None = None) -> None:
        """Send a record to all children, or to the named child."""
        ...

    def schedule(
        self,
        interval: timedelta | int,
        type: PunctuationType,
        punctuator: Callable[[int], object],
        *,
        start: datetime | int | None = None,
    ) -> Cancellable:
        """Call `punctuator(timestamp)` every `interval` of the given clock."""
        ...

    def commit(self) -> None:
        """Request a commit."""
        ...

    def resource(self, name: str, factory: Callable[[], T]) -> T:
        """Return an object that is created once per worker: a connection, a model."""
        ...

    def metrics(self) -> Mapping[str, float]:
        """The current counters of the task."""
        ...

    def app_configs(self) -> Mapping[str, Any]:
        """The configuration under Kafka's names."""
        ...

    def app_configs_with_prefix(self, prefix: str) -> Mapping[str, Any]:
        """The settings whose names start with the prefix, without the prefix."""
        ...


class RecordProcessor(Protocol[KIn_contra, VIn_contra]):
    """The type for `process`. `init(context)` and `close()` are called if they exist."""

    def process(self, record: Record[KIn_contra, VIn_contra], /) -> object:
        """Called for every record."""
        ...


class FixedKeyRecordProcessor(Protocol[KIn_contra, VIn_contra]):
    """The type for `process_values`. `init(context)` and `close()` are called if they exist."""

    def process(self, record: FixedKeyRecord[KIn_contra, VIn_contra], /) -> object:
        """Called for every record."""
        ...


class ValueTransformer(Protocol[KIn_contra, VIn_contra, VOut_co]):
    """The type for `transform_values`. `init(context)` and `close()` are called if they exist."""

    def transform(self, key: KIn_contra, value: VIn_contra | None, /) -> VOut_co:
        """Return the new value of a row; `value` is None if the row was deleted."""
        ...


def _set_context_in_init(processor: type[Any]) -> None:
    """Let `init` set `self.context` first, also if it does not call `super().init()`."""
    init: Any = processor.init
    if init in (Processor.init, FixedKeyProcessor.init) or hasattr(init, "sets_context"):
        return
    if not isfunction(init) or iscoroutinefunction(init):
        return

    @wraps(init)
    def init_with_context(self: Any, context: ProcessorContext) -> Any:
        self.context = context
        return init(self, context)

    init_with_context.sets_context = True  # type: ignore[attr-defined]
    processor.init = init_with_context


class Processor(Generic[KIn, VIn]):
    """A processor: `init` once, `process` for every record, `close` at the end.

    Subclasses usually override only `process` and use `self.context`, which exists from the start
    of `init`. Any other object with these methods works too.
    """

    context: ProcessorContext

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _set_context_in_init(cls)

    def init(self, context: ProcessorContext) -> None:
        """Called before the first record: open stores and create schedules here."""
        self.context = context

    def process(self, record: Record[KIn, VIn]) -> None:
        """Called for every record."""
        raise TypeError(
            f"{type(self).__name__} does not override process(record)."
        )

    def close(self) -> None:
        """Called at the end. The task closes the stores."""


class FixedKeyProcessor(Generic[KIn, VIn]):
    """A processor that cannot change keys (`process_values`)."""

    context: ProcessorContext

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _set_context_in_init(cls)

    def init(self, context: ProcessorContext) -> None:
        """Called before the first record."""
        self.context = context

    def process(self, record: FixedKeyRecord[KIn, VIn]) -> None:
        """Called for every record."""
        raise TypeError(
            f"{type(self).__name__} does not override process(record)."
        )

    def close(self) -> None:
        """Called at the end."""


#: Kafka has separate classes that keep the context; here every processor does.
ContextualProcessor = Processor
ContextualFixedKeyProcessor = FixedKeyProcessor


class ProcessorWrapper:
    """Wraps the suppliers of all processors, for example for logging or metrics (KIP-1112)."""

    def wrap_processor_supplier(
        self, name: str, supplier: Callable[[], Any]
    ) -> Callable[[], Any]:
        """Return the supplier to use; the default is the original one."""
        return supplier

    def wrap_fixed_key_processor_supplier(
        self, name: str, supplier: Callable[[], Any]
    ) -> Callable[[], Any]:
        """Return the supplier to use; the default is the original one."""
        return supplier
