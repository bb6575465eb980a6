"""Option objects: `Materialized`, `Branched`, `Printed`, `BufferConfig` and `Suppressed`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import Enum
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from penstock.dsl.checks import as_serdes
from penstock.java_names import JavaNames
from penstock.serdes.base import Serde, SerdeOrType
from penstock.stores.api.dsl_suppliers import BuiltInDslStoreSuppliers, DslStoreSuppliers
from penstock.stores.api.suppliers import RowsOption
from penstock.topology.naming import check_name
from penstock.windows import to_ms

if TYPE_CHECKING:
    from penstock.dsl.stream import KStream

K = TypeVar("K")
V = TypeVar("V")


class StoreType(Enum):
    """The built-in store implementations. ROCKS_DB stands for stores on disk (LMDB here)."""

    ROCKS_DB = "rocksDB"
    IN_MEMORY = "in_memory"

    @property
    def suppliers(self) -> DslStoreSuppliers:
        """The suppliers of this type of store."""
        return (
            BuiltInDslStoreSuppliers.IN_MEMORY if self is StoreType.IN_MEMORY
            else BuiltInDslStoreSuppliers.ROCKS_DB
        )


class _StoreOptions(TypedDict, total=False):
    """Options of a `Materialized` besides its name and serdes."""

    caching: bool
    logging: bool
    log_config: Mapping[str, str]
    retention: timedelta | int | None
    supplier: Any
    store_type: StoreType | DslStoreSuppliers | None


@dataclass(frozen=True, kw_only=True)
class Materialized(JavaNames, Generic[K, V]):
    """How a table is stored: name, serdes, cache, changelog and retention of its store.

    A store with a name can be queried. `supplier`, made by `Stores`, sets the kind of store and its
    name; `store_type` selects the implementation only. `caching` merges updates of a key until the
    commit. `logging=False` drops the changelog: the store is then lost with its host. `log_config`
    are settings of the changelog topic. `retention` applies to window and session stores.
    """

    name: str | None = field(default=None, kw_only=False)
    key: Serde[K] | None = None
    value: Serde[V] | None = None
    caching: bool = True
    logging: bool = True
    log_config: Mapping[str, str] = field(default_factory=dict)
    retention: timedelta | int | None = None
    supplier: Any = None
    store_type: StoreType | DslStoreSuppliers | None = None

    if TYPE_CHECKING:
        # A missing serde leaves its type open.
        @overload
        def __init__(
            self, name: str | None = None, *, key: SerdeOrType[K], value: SerdeOrType[V],
            **options: Unpack[_StoreOptions],
        ) -> None: ...
        @overload
        def __init__(
            self: Materialized[K, Any], name: str | None = None, *, key: SerdeOrType[K],
            value: None = None, **options: Unpack[_StoreOptions],
        ) -> None: ...
        @overload
        def __init__(
            self: Materialized[Any, V], name: str | None = None, *, key: None = None,
            value: SerdeOrType[V], **options: Unpack[_StoreOptions],
        ) -> None: ...
        @overload
        def __init__(
            self: Materialized[Any, Any], name: str | None = None, *, key: None = None,
            value: None = None, **options: Unpack[_StoreOptions],
        ) -> None: ...
        def __init__(self, name: Any = None, **options: Any) -> None: ...

    def __post_init__(self) -> None:
        if self.supplier is not None and self.store_type is not None:
            raise ValueError(
                "A Materialized takes either a supplier or a store_type, not both. "
                "A supplier already chooses the type of store."
            )
        if isinstance(self.name, RowsOption | StoreType):
            option = "supplier" if isinstance(self.name, RowsOption) else "store_type"
            raise TypeError(
                f"The first argument of Materialized is the name of the store. Pass the "
                f"{type(self.name).__name__} as {option}=."
            )
        if self.name is not None:
            check_name(self.name)
        step = f"Materialized({self.store_name!r})"
        key, value = as_serdes(step, key=self.key, value=self.value)
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "value", value)
        if self.retention is not None and to_ms(self.retention) < 0:
            raise ValueError(f"The retention of a store must not be negative: {self.retention}.")

    @property
    def store_name(self) -> str | None:
        """The name chosen by the user, directly or with the supplier."""
        return self.supplier.name if self.supplier is not None else self.name

    @property
    def suppliers(self) -> DslStoreSuppliers | None:
        """The suppliers chosen by `store_type`; None if the configuration decides."""
        if isinstance(self.store_type, StoreType):
            return self.store_type.suppliers
        return self.store_type

    def with_serdes(self, key: Any, value: Any) -> Materialized[Any, Any]:
        """Return a copy with these serdes where none were given.

        Args:
            key: A serde or None.
            value: A serde or None.

        Returns:
            The copy.
        """
        return replace(
            self, key=self.key if self.key is not None else key,
            value=self.value if self.value is not None else value,
        )


def store_call(method: str, store: Any) -> str:
    """Return the call that gives a store its serdes, for errors: "count(store=Materialized('x'"."""
    shown = ""
    if isinstance(store, str):
        shown = repr(store)
    elif isinstance(store, Materialized) and store.name is not None:
        shown = repr(store.name)
    elif store is not None and getattr(store, "supplier", store) is not None:
        shown = "supplier=..."
    return f"{method}store=Materialized({shown}"


class NamedSupplier(Protocol):
    """A store supplier, of `Stores` or of the user."""

    @property
    def name(self) -> str: ...


#: The type of `store=`: a name, a supplier of `Stores`, or a `Materialized`.
StoreOption = str | Materialized[K, V] | NamedSupplier | None


def as_materialized(store: Any, *, step: str) -> Materialized[Any, Any] | None:
    """Return `store=` as a `Materialized`; None if it was not given."""
    if store is None or isinstance(store, Materialized):
        return store
    if isinstance(store, str):
        return Materialized(store)
    if hasattr(store, "name") and not hasattr(store, "build") and not isinstance(store, Serde):
        return Materialized(supplier=store)
    raise TypeError(
        f"{step}: store= takes a name, a supplier or a Materialized, not {type(store).__name__}. "
        "Stores.in_memory_key_value_store(name) returns a supplier; serdes belong in a "
        "Materialized."
    )


@dataclass(frozen=True)
class Branched(Generic[K, V]):
    """Options of a branch of `split()`.

    `function` maps the branch to another stream, which takes its place in the returned dictionary;
    if it returns None the branch is left out. `consumer` receives the branch, which is then left
    out of the dictionary.
    """

    name: str | None = None
    function: Callable[[KStream[K, V]], KStream[Any, Any] | None] | None = None
    consumer: Callable[[KStream[K, V]], object] | None = None

    def __post_init__(self) -> None:
        if self.function is not None and self.consumer is not None:
            raise ValueError("A Branched takes either a function or a consumer, not both.")
        if self.name is not None:
            check_name(self.name)


@dataclass(frozen=True)
class Printed(Generic[K, V]):
    """Options of `KStream.print`.

    A line is `[label]: ` followed by `key, value` or the result of `mapper(key, value)`. Lines
    appear when their batch is committed: on standard output, or at the end of `file`.
    """

    label: str | None = None
    mapper: Callable[[K, V], Any] | None = None
    file: str | None = None
    name: str | None = None

    @classmethod
    def to_sys_out(cls, label: str | None = None) -> Printed[Any, Any]:
        """Print to standard output.

        Args:
            label: The beginning of each line; by default the name of the step.

        Returns:
            The options.

        Example:
            orders.print(Printed.to_sys_out("orders"))

        Kafka: `Printed#toSysOut`
        """
        return cls(label=label)

    @classmethod
    def to_file(cls, file: str, label: str | None = None) -> Printed[Any, Any]:
        """Append to a file.

        Args:
            file: The path of the file.
            label: The beginning of each line; by default the name of the step.

        Returns:
            The options.

        Example:
            Printed.to_file("orders.txt")

        Kafka: `Printed#toFile`
        """
        if not file.strip():
            raise ValueError("The name of the file to print to must not be empty.")
        return cls(label=label, file=file)


@dataclass(frozen=True)
class BufferConfig:
    """The size limits of the buffer of `suppress`, and what happens when it is full."""

    record_limit: int | None = None
    byte_limit: int | None = None
    when_full: Literal["emit_early", "shut_down"] = "emit_early"
    logging: bool = True
    log_config: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for what, limit in (("records", self.record_limit), ("bytes", self.byte_limit)):
            if limit is not None and (not isinstance(limit, int) or limit < 0):
                raise ValueError(
                    f"The number of {what} in a buffer must be 0 or more, not {limit!r}."
                )

    @classmethod
    def unbounded(cls) -> BufferConfig:
        """Return a buffer without limits."""
        return cls(when_full="shut_down")

    @classmethod
    def max_records(cls, limit: int) -> BufferConfig:
        """Return a buffer for a number of keys; it emits early when full.

        Args:
            limit: The largest number of keys.

        Example:
            BufferConfig.max_records(1000)

        Kafka: `BufferConfig#maxRecords`
        """
        return cls(record_limit=limit)

    @classmethod
    def max_bytes(cls, limit: int) -> BufferConfig:
        """Return a buffer of a size in bytes; it emits early when full.

        Args:
            limit: The largest number of bytes.

        Example:
            BufferConfig.max_bytes(1 << 20)

        Kafka: `BufferConfig#maxBytes`
        """
        return cls(byte_limit=limit)

    def with_max_records(self, limit: int) -> BufferConfig:
        """Return a copy with a limit of keys.

        Args:
            limit: The largest number of keys.

        Kafka: `BufferConfig#withMaxRecords`
        """
        return replace(self, record_limit=limit)

    def with_max_bytes(self, limit: int) -> BufferConfig:
        """Return a copy with a limit of bytes.

        Args:
            limit: The largest number of bytes.

        Kafka: `BufferConfig#withMaxBytes`
        """
        return replace(self, byte_limit=limit)

    def with_no_bound(self) -> BufferConfig:
        """Return a copy without limits."""
        return replace(self, record_limit=None, byte_limit=None, when_full="shut_down")

    def emit_early_when_full(self) -> BufferConfig:
        """Return a copy that emits the oldest rows when it is full."""
        return replace(self, when_full="emit_early")

    def shut_down_when_full(self) -> BufferConfig:
        """Return a copy that stops the application with an error when it is full."""
        return replace(self, when_full="shut_down")

    def with_logging_enabled(self, config: Mapping[str, str] | None = None) -> BufferConfig:
        """Return a copy with a changelog.

        Args:
            config: Settings of the changelog topic.

        Kafka: `BufferConfig#withLoggingEnabled`
        """
        return replace(self, logging=True, log_config=dict(config or {}))

    def with_logging_disabled(self) -> BufferConfig:
        """Return a copy without a changelog: a crash loses the buffered rows."""
        return replace(self, logging=False, log_config={})

    @property
    def is_strict(self) -> bool:
        """Whether rows never leave the buffer early."""
        return self.when_full == "shut_down"


@dataclass(frozen=True)
class Suppressed:
    """When `suppress` emits a row."""

    #: None: when the window of the row closes.
    time_limit_ms: int | None
    buffer: BufferConfig
    name: str | None = None
    #: The exact name of the buffer's store; by default it follows from `name`, or is generated.
    store: str | None = None

    def __post_init__(self) -> None:
        if self.store is not None:
            check_name(self.store)
        if self.time_limit_ms is not None and self.time_limit_ms < 0:
            raise ValueError(
                f"The time limit of suppress must not be negative: {self.time_limit_ms} ms."
            )
        if self.time_limit_ms is None and not self.buffer.is_strict:
            raise ValueError(
                "until_window_closes() needs a buffer that never emits early. "
                "Use BufferConfig.unbounded() or shut_down_when_full()."
            )

    @classmethod
    def until_window_closes(
        cls, buffer: BufferConfig | None = None, *, name: str | None = None,
        store: str | None = None,
    ) -> Suppressed:
        """Emit only the final result of each window, when it closes.

        Args:
            buffer: The limits of the buffer; by default none.
            name: The name of the step; generated if it is None.
            store: The exact name of the buffer's store.

        Returns:
            The options.

        Example:
            windowed.count().suppress(Suppressed.until_window_closes())

        Kafka: `Suppressed#untilWindowCloses`
        """
        return cls(None, buffer or BufferConfig.unbounded(), name, store)

    @classmethod
    def until_time_limit(
        cls, limit: timedelta | int, buffer: BufferConfig | None = None, *,
        name: str | None = None, store: str | None = None,
    ) -> Suppressed:
        """Emit the latest value of a row this long after its first buffered update.

        Args:
            limit: The time, as a `timedelta` or in milliseconds.
            buffer: The limits of the buffer; by default none.
            name: The name of the step; generated if it is None.
            store: The exact name of the buffer's store.

        Returns:
            The options.

        Example:
            table.suppress(Suppressed.until_time_limit(1000))

        Kafka: `Suppressed#untilTimeLimit`
        """
        return cls(to_ms(limit), buffer or BufferConfig.unbounded(), name, store)

    def with_name(self, name: str) -> Suppressed:
        """Return a copy with a name.

        Args:
            name: The name of the step.

        Kafka: `Suppressed#withName`
        """
        return replace(self, name=name)

    def with_store(self, store: str) -> Suppressed:
        """Return a copy with a name for the store.

        Args:
            store: The exact name of the buffer's store.
        """
        return replace(self, store=store)
