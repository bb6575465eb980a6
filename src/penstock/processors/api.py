"""The Processor API as users see it: processors, their context, punctuation (A1-A7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from enum import Enum
from functools import wraps
from inspect import iscoroutinefunction, isfunction
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

from penstock.record import FixedKeyRecord, Record, RecordMetadata, TaskId

if TYPE_CHECKING:
    from penstock.metrics import StreamsMetrics
    from penstock.serdes.builtin import Serde

KIn = TypeVar("KIn")
VIn = TypeVar("VIn")
KIn_contra = TypeVar("KIn_contra", contravariant=True)
VIn_contra = TypeVar("VIn_contra", contravariant=True)
VOut_co = TypeVar("VOut_co", covariant=True)
T = TypeVar("T")
if TYPE_CHECKING:
    import typing_extensions

    KOut = typing_extensions.TypeVar("KOut", default=Any)
    VOut = typing_extensions.TypeVar("VOut", default=Any)
else:
    KOut = TypeVar("KOut")
    VOut = TypeVar("VOut")


class PunctuationType(Enum):
    """The clock that a schedule follows."""

    STREAM_TIME = "stream_time"
    WALL_CLOCK_TIME = "wall_clock_time"


class Cancellable(Protocol):
    """A schedule that can be cancelled."""

    def cancel(self) -> None:
        """Stop the punctuations.

        Kafka: Cancellable#cancel
        """
        ...


class ProcessorContext(Protocol):
    """The environment of a processor. It is passed to `init` and is valid until `close`.

    Example:
        >>> class Counter(Processor):
        ...     def init(self, context: ProcessorContext) -> None:
        ...         self.store = context.get_state_store("counts")
        ...         context.schedule(60_000, PunctuationType.STREAM_TIME, self.report)
        ...     def report(self, timestamp: int) -> None:
        ...         self.context.commit()
    """

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

    @overload
    def get_state_store(self, name: str) -> Any: ...
    @overload
    def get_state_store(self, name: str, kind: type[T]) -> T: ...
    def get_state_store(self, name: str, kind: Any = None) -> Any:
        """Return a store that is connected to this processor, or a global store.

        Args:
            name: The name of the store.
            kind: The class of the store, such as `KeyValueStore[str, int]`. Type checkers know the
                result by it.

        Raises:
            StreamsException: The store is not connected to the processor.
            TypeError: The store is not of that kind.

        Kafka: ProcessingContext#getStateStore
        """
        ...

    def forward(self, record: Any, child: str | None = None) -> None:
        """Send a record to all children, or to the named child.

        Args:
            record: A `Record`; in `process_values` a `FixedKeyRecord`.
            child: The name of a child; None for all.

        Kafka: FixedKeyProcessorContext#forward, ProcessorContext#forward
        """
        ...

    def schedule(
        self,
        interval: timedelta | int,
        type: PunctuationType,
        punctuator: Callable[[int], object],
        *,
        start: datetime | int | None = None,
    ) -> Cancellable:
        """Call `punctuator(timestamp)` every `interval` of the given clock.

        Args:
            interval: The time between two calls.
            type: The clock of the schedule.
            punctuator: A function of the timestamp.
            start: The time of the first call; None for one interval from now.

        Returns:
            The schedule; its method `cancel` ends it.

        Kafka: ProcessingContext#schedule, ProcessorContext#schedule
        """
        ...

    def commit(self) -> None:
        """Request a commit.

        Kafka: ProcessingContext#commit, ProcessorContext#commit
        """
        ...

    def resource(self, name: str, factory: Callable[[], T]) -> T:
        """Return an object that is created once per worker: a connection, a model.

        Args:
            name: The name of the object.
            factory: A function without arguments that creates it.
        """
        ...

    def metrics(self) -> StreamsMetrics:
        """Return the current counters of the task, and the sensors of processors.

        Kafka: ProcessingContext#metrics, ProcessorContext#metrics
        """
        ...

    def app_configs(self) -> Mapping[str, Any]:
        """Return the configuration under Kafka's names.

        Kafka: ProcessingContext#appConfigs, ProcessorContext#appConfigs
        """
        ...

    def app_configs_with_prefix(self, prefix: str) -> Mapping[str, Any]:
        """Return the settings whose names start with the prefix, without the prefix.

        Args:
            prefix: The start of the names.

        Kafka: ProcessingContext#appConfigsWithPrefix, ProcessorContext#appConfigsWithPrefix
        """
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
    """The type for `transform_values`. `init(context)` and `close()` are called if they exist.

    Example:
        >>> from penstock import StreamsBuilder
        >>> class Length:
        ...     def transform(self, key: str, value: str | None) -> int:
        ...         return len(value or "")
        >>> words = StreamsBuilder().table("words", key=str, value=str)
        >>> lengths = words.transform_values(Length)
    """

    def transform(self, key: KIn_contra, value: VIn_contra | None, /) -> VOut_co:
        """Return the new value of a row; `value` is None if the row was deleted.

        Args:
            key: The key of the row.
            value: The value of the row; None if it was deleted.

        Kafka: ValueTransformerWithKey#transform
        """
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


def _with_any(arguments: Any, count: int) -> Any:
    """Complete two type arguments: the types of what a processor forwards are optional."""
    if isinstance(arguments, tuple) and len(arguments) == 2:
        return (*arguments, *(Any,) * (count - 2))
    return arguments


class Processor(Generic[KIn, VIn, KOut, VOut]):
    """A processor: `init` once, `process` for every record, `close` at the end.

    Subclasses usually override only `process` and use `self.context`, which exists from the start
    of `init`. Any other object with these methods works too. `Processor[str, int]` declares the
    types of the records that it gets, `Processor[str, int, str, float]` also the types of those
    that it forwards: later steps then know their serdes.

    Example:
        >>> from penstock import Record, StreamsBuilder
        >>> class Double(Processor[str, int, str, int]):
        ...     def process(self, record: Record[str, int]) -> None:
        ...         self.context.forward(record.with_value(record.value * 2))
        >>> numbers = StreamsBuilder().stream("numbers", key=str, value=int)
        >>> doubled = numbers.process(Double)
    """

    context: ProcessorContext

    def __class_getitem__(cls, arguments: Any) -> Any:
        return super().__class_getitem__(_with_any(arguments, 4))  # type: ignore[misc]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _set_context_in_init(cls)

    def init(self, context: ProcessorContext) -> None:
        """Called before the first record: open stores and create schedules here.

        Args:
            context: The context of the processor.

        Kafka: ContextualProcessor#init, Processor#init
        """
        self.context = context

    def process(self, record: Record[KIn, VIn]) -> None:
        """Called for every record.

        Args:
            record: The record.

        Kafka: Processor#process
        """
        raise TypeError(
            f"{type(self).__name__} does not override process(record)."
        )

    def close(self) -> None:
        """Called at the end. The task closes the stores.

        Kafka: Processor#close
        """


class FixedKeyProcessor(Generic[KIn, VIn, VOut]):
    """A processor that cannot change keys (`process_values`).

    `FixedKeyProcessor[str, int, float]` also declares the type of the values that it forwards.

    Example:
        >>> from penstock import StreamsBuilder
        >>> class Double(FixedKeyProcessor[str, int, int]):
        ...     def process(self, record):
        ...         self.context.forward(record.with_value(record.value * 2))
        >>> numbers = StreamsBuilder().stream("numbers", key=str, value=int)
        >>> doubled = numbers.process_values(Double)
    """

    context: ProcessorContext

    def __class_getitem__(cls, arguments: Any) -> Any:
        return super().__class_getitem__(_with_any(arguments, 3))  # type: ignore[misc]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _set_context_in_init(cls)

    def init(self, context: ProcessorContext) -> None:
        """Called before the first record.

        Args:
            context: The context of the processor.

        Kafka: ContextualFixedKeyProcessor#init, FixedKeyProcessor#init
        """
        self.context = context

    def process(self, record: FixedKeyRecord[KIn, VIn]) -> None:
        """Called for every record.

        Args:
            record: The record.

        Kafka: FixedKeyProcessor#process
        """
        raise TypeError(
            f"{type(self).__name__} does not override process(record)."
        )

    def close(self) -> None:
        """Called at the end.

        Kafka: FixedKeyProcessor#close
        """


#: Kafka has separate classes that keep the context; here every processor does.
ContextualProcessor = Processor
ContextualFixedKeyProcessor = FixedKeyProcessor


class WrappedProcessorSupplier:
    """A supplier that a `ProcessorWrapper` returns: creates processors, and lists stores.

    Kafka: WrappedProcessorSupplier, WrappedFixedKeyProcessorSupplier
    """

    def __init__(self, supplier: Callable[[], Any]) -> None:
        self.supplier = supplier

    def __call__(self) -> Any:
        return self.supplier()

    @property
    def stores(self) -> Any:
        """The store builders of the supplier, or None."""
        return getattr(self.supplier, "stores", None)


class ProcessorWrapper:
    """Wraps the suppliers of all processors, for example for logging or metrics (KIP-1112).

    Example:
        >>> from penstock import StreamsBuilder, StreamsConfig
        >>> class Named(ProcessorWrapper):
        ...     def wrap_processor_supplier(self, name, supplier):
        ...         print(name)
        ...         return super().wrap_processor_supplier(name, supplier)
        >>> builder = StreamsBuilder(StreamsConfig(application_id="app", processor_wrapper=Named))
        >>> words = builder.stream("words", key=str, value=str)
        >>> _ = words.process(Processor, name="work")
        >>> _ = builder.build()
        work
    """

    @staticmethod
    def as_wrapped(supplier: Callable[[], Any]) -> WrappedProcessorSupplier:
        """Return the supplier as the result of `wrap_processor_supplier`, with its stores.

        A wrapper does not need it: it may return any callable.

        Args:
            supplier: A function without arguments that creates a processor.

        Kafka: ProcessorWrapper#asWrapped
        """
        if isinstance(supplier, WrappedProcessorSupplier):
            return supplier
        return WrappedProcessorSupplier(supplier)

    @staticmethod
    def as_wrapped_fixed_key(supplier: Callable[[], Any]) -> WrappedProcessorSupplier:
        """Return the supplier as the result of `wrap_fixed_key_processor_supplier`.

        Args:
            supplier: A function without arguments that creates a fixed-key processor.

        Kafka: ProcessorWrapper#asWrappedFixedKey
        """
        return ProcessorWrapper.as_wrapped(supplier)

    def configure(self, configs: Mapping[str, Any]) -> None:
        """Receive the configuration, before the first supplier is wrapped.

        Args:
            configs: All settings, under Kafka's names.

        Kafka: ProcessorWrapper#configure
        """

    def wrap_processor_supplier(
        self, name: str, supplier: Callable[[], Any]
    ) -> Callable[[], Any]:
        """Return the supplier to use; the default is the original one.

        Args:
            name: The name of the processor.
            supplier: A function without arguments that creates the processor.

        Kafka: ProcessorWrapper#wrapProcessorSupplier
        """
        return supplier

    def wrap_fixed_key_processor_supplier(
        self, name: str, supplier: Callable[[], Any]
    ) -> Callable[[], Any]:
        """Return the supplier to use; the default is the original one.

        Args:
            name: The name of the processor.
            supplier: A function without arguments that creates the processor.

        Kafka: ProcessorWrapper#wrapFixedKeyProcessorSupplier
        """
        return supplier
