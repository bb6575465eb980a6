"""Suppliers: what a store keeps, and for how long. They are compared by value."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.stores.bytes.value_formats import PLAIN, ValueFormat

MIN_SEGMENT_MS = 60_000


@dataclass(frozen=True, slots=True)
class KeyValueSupplier:
    """A key-value store."""

    name: str
    persistent: bool
    format: ValueFormat = PLAIN
    #: For an LRU map: the maximum number of keys. None: unlimited.
    max_entries: int | None = None

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
class VersionedSupplier:
    """A versioned key-value store."""

    name: str
    history_retention_ms: int
    segment_interval_ms: int
    persistent: bool = True

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
class WindowSupplier:
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
class SessionSupplier:
    """A session store."""

    name: str
    persistent: bool
    retention_ms: int
    segment_interval_ms: int = 1
    format: ValueFormat = PLAIN
    #: Sessions are ordered by time, with an index by key, for emit on close.
    time_ordered: bool = False

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
