"""Suppliers: what a store keeps, and for how long. They are compared by value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

from penstock.stores.bytes.store import OpenBytesStore
from penstock.stores.bytes.value_formats import PLAIN, ValueFormat

MIN_SEGMENT_MS = 60_000

S = TypeVar("S")


class RowsOption:
    """The choice of the place where a store keeps its rows."""

    __slots__ = ()

    def with_rows(self, rows: OpenBytesStore) -> Self:
        """Return a supplier that keeps the rows in a place of the user.

        The rows of such a store are not kept between batches: they are restored from the changelog
        whenever a task starts.

        Args:
            rows: A function that creates a `BytesStore` for the name of a store. A store with an
                index calls it twice.

        Kafka: KeyValueBytesStoreSupplier, WindowBytesStoreSupplier, SessionBytesStoreSupplier
        """
        if not callable(rows):
            raise TypeError(
                f"with_rows() takes a function of the store's name that creates a BytesStore, "
                f"not {rows!r}."
            )
        supplier: Any = replace(self, rows=rows)  # type: ignore[type-var]
        return supplier  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class KeyValueSupplier(RowsOption):
    """A key-value store."""

    name: str
    persistent: bool
    format: ValueFormat = PLAIN
    #: For an LRU map: the maximum number of keys. None: unlimited.
    max_entries: int | None = None
    #: Creates the place of the rows; None for the files of the task.
    rows: OpenBytesStore | None = None

    @property
    def timestamped(self) -> bool:
        """Whether the store keeps timestamps."""
        return not self.persistent or self.format.name != "plain"

    @property
    def with_headers(self) -> bool:
        """Whether the store keeps headers."""
        return self.format.name == "headers"

    @property
    def versioned(self) -> bool:
        """False."""
        return False


@dataclass(frozen=True, slots=True)
class VersionedSupplier(RowsOption):
    """A versioned key-value store."""

    name: str
    history_retention_ms: int
    segment_interval_ms: int
    persistent: bool = True
    #: Creates the place of the rows; None for the files of the task.
    rows: OpenBytesStore | None = None

    @property
    def timestamped(self) -> bool:
        """True: every version has a timestamp."""
        return True

    @property
    def with_headers(self) -> bool:
        """False."""
        return False

    @property
    def versioned(self) -> bool:
        """True."""
        return True


@dataclass(frozen=True, slots=True)
class WindowSupplier(RowsOption):
    """A window store."""

    name: str
    persistent: bool
    retention_ms: int
    window_size_ms: int
    retain_duplicates: bool = False
    segment_interval_ms: int = 1
    format: ValueFormat = PLAIN
    #: Rows are ordered by time, for emit on close.
    time_ordered: bool = False
    #: Rows that are ordered by time also have an index by key.
    indexed: bool = False
    #: Creates the place of the rows; None for the files of the task.
    rows: OpenBytesStore | None = None

    @property
    def timestamped(self) -> bool:
        """Whether the store keeps timestamps."""
        return not self.persistent or self.format.name != "plain"

    @property
    def with_headers(self) -> bool:
        """Whether the store keeps headers."""
        return self.format.name == "headers"

    @property
    def versioned(self) -> bool:
        """False."""
        return False


@dataclass(frozen=True, slots=True)
class SessionSupplier(RowsOption):
    """A session store."""

    name: str
    persistent: bool
    retention_ms: int
    segment_interval_ms: int = 1
    format: ValueFormat = PLAIN
    #: Sessions are ordered by time, with an index by key, for emit on close.
    time_ordered: bool = False
    #: Creates the place of the rows; None for the files of the task.
    rows: OpenBytesStore | None = None

    @property
    def timestamped(self) -> bool:
        """False: the time of a session is its end."""
        return False

    @property
    def with_headers(self) -> bool:
        """Whether the store keeps headers."""
        return self.format.name == "session_headers"

    @property
    def versioned(self) -> bool:
        """False."""
        return False


Supplier = KeyValueSupplier | VersionedSupplier | WindowSupplier | SessionSupplier


def check_supplier(supplier: S, what: str) -> S:
    """Return the supplier, or raise if it is an object of another type."""
    if not isinstance(supplier, Supplier):
        raise TypeError(
            f"{what} is a {type(supplier).__name__}, not a supplier of penstock. Create one with "
            "`Stores`. To keep its rows in a place of your own, call with_rows() of the supplier."
        )
    return supplier
