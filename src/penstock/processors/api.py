"""The Processor API as users see it: processors, their context, punctuation (A1-A7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from enum import Enum
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
    """Which clock a schedule follows."""

    STREAM_TIME = "stream_time"
    WALL_CLOCK_TIME = "wall_clock_time"


class Cancellable(Protocol):
    """A schedule that can be ended."""

    def cancel(self) -> None:
        """No more punctuations."""
        ...


class ProcessorContext(Protocol):
    """What a processor may ask and do. It is given to `init` and valid until `close`."""

    @property
    def application_id(self) -> str: ...

    @property
    def task_id(self) -> TaskId: ...

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """Where the current record came from; None while the processor is set up."""
        ...

    @property
    def current_stream_time_ms(self) -> int:
        """The largest timestamp the task has seen, -1 before the first record."""
        ...

    @property
    def current_system_time_ms(self) -> int:
        """The wall clock, read once a batch."""
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
        """Where the task may keep files."""
        ...

    def get_state_store(self, name: str) -> Any:
        """A store that is connected to this processor; global stores need no connection."""
        ...

    def forward(self, record: Any, child: str | None = None) -> None:
        """Send a record to all children, or to the child of that name."""
        ...

    def schedule(
        self,
        interval: timedelta | int,
        type: PunctuationType,
        punctuator: Callable[[int], object],
        *,
        start: datetime | int | None = None,
    ) -> Cancellable:
        """Call the punctuator with the time, every interval of the chosen clock."""
        ...

    def commit(self) -> None:
        """Ask for a commit soon."""
        ...

    def resource(self, name: str, factory: Callable[[], T]) -> T:
        """Something that lives as long as the worker: a connection, a model."""
        ...

    def metrics(self) -> Mapping[str, float]:
        """The task's counters so far."""
        ...

    def app_configs(self) -> Mapping[str, Any]:
        """The configuration by Kafka's names."""
        ...

    def app_configs_with_prefix(self, prefix: str) -> Mapping[str, Any]:
        """The part of it whose names begin so, without the prefix."""
        ...


class RecordProcessor(Protocol[KIn_contra, VIn_contra]):
    """What `process` takes: `init(context)` and `close()` are called where they exist."""

    def process(self, record: Record[KIn_contra, VIn_contra], /) -> object:
        """Called for every record."""
        ...


class FixedKeyRecordProcessor(Protocol[KIn_contra, VIn_contra]):
    """What `process_values` takes: `init(context)` and `close()` are called where they exist."""

    def process(self, record: FixedKeyRecord[KIn_contra, VIn_contra], /) -> object:
        """Called for every record."""
        ...


class ValueTransformer(Protocol[KIn_contra, VIn_contra, VOut_co]):
    """What `transform_values` takes: `init(context)` and `close()` are called where they exist."""

    def transform(self, key: KIn_contra, value: VIn_contra | None, /) -> VOut_co:
        """The new value of a row; the value is None where the row was deleted."""
        ...


class Processor(Generic[KIn, VIn]):
    """A processor: `init` once, `process` for every record, `close` at the end.

    Subclasses usually override `process` only and use `self.context`; any object with these three
    methods will do.
    """

    context: ProcessorContext

    def init(self, context: ProcessorContext) -> None:
        """Called before the first record; keep the context, open stores, make schedules."""
        self.context = context

    def process(self, record: Record[KIn, VIn]) -> None:
        """Called for every record."""
        raise TypeError(
            f"{type(self).__name__} does not say what to do with a record: override process."
        )

    def close(self) -> None:
        """Called at the end; stores are closed by the task."""


class FixedKeyProcessor(Generic[KIn, VIn]):
    """A processor that cannot change keys (`process_values`)."""

    context: ProcessorContext

    def init(self, context: ProcessorContext) -> None:
        """Called before the first record."""
        self.context = context

    def process(self, record: FixedKeyRecord[KIn, VIn]) -> None:
        """Called for every record."""
        raise TypeError(
            f"{type(self).__name__} does not say what to do with a record: override process."
        )

    def close(self) -> None:
        """Called at the end."""


#: Kafka has separate classes that remember the context; here every processor does.
ContextualProcessor = Processor
ContextualFixedKeyProcessor = FixedKeyProcessor


class ProcessorWrapper:
    """Wraps the suppliers of all processors, for example to log or measure (KIP-1112)."""

    def wrap_processor_supplier(
        self, name: str, supplier: Callable[[], Any]
    ) -> Callable[[], Any]:
        """The supplier to use instead; by default the same."""
        return supplier

    def wrap_fixed_key_processor_supplier(
        self, name: str, supplier: Callable[[], Any]
    ) -> Callable[[], Any]:
        """The supplier to use instead; by default the same."""
        return supplier
