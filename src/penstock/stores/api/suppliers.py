"""Descriptions of stores: what is kept, and how long. They are compared by value."""

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
    #: Not None: only this many of the most recently used keys are kept.
    max_entries: int | None = None

    @property
    def timestamped(self) -> bool:
        """True if timestamps are kept."""
        return not self.persistent or self.format.name != "plain"

    @property
    def with_headers(self) -> bool:
        """True if headers are kept."""
        return self.format.name == "headers"

    @property
    def versioned(self) -> bool:
        """False."""
        return False


@dataclass(frozen=True, slots=True)
class VersionedSupplier:
    """A store of versions."""

    name: str
    history_retention_ms: int
    segment_interval_ms: int
    persistent: bool = True

    @property
    def timestamped(self) -> bool:
        """True: every version has its time."""
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
    """A window store.

    `time_ordered`: windows are kept by time (for emit on close), `indexed`: and found by key, too.
    """

    name: str
    persistent: bool
    retention_ms: int
    window_size_ms: int
    retain_duplicates: bool = False
    segment_interval_ms: int = 1
    format: ValueFormat = PLAIN
    time_ordered: bool = False
    indexed: bool = False

    @property
    def timestamped(self) -> bool:
        """True if timestamps are kept."""
        return not self.persistent or self.format.name != "plain"

    @property
    def with_headers(self) -> bool:
        """True if headers are kept."""
        return self.format.name == "headers"

    @property
    def versioned(self) -> bool:
        """False."""
        return False


@dataclass(frozen=True, slots=True)
class SessionSupplier:
    """A session store; `time_ordered`: sessions are kept by time and found by key, too."""

    name: str
    persistent: bool
    retention_ms: int
    segment_interval_ms: int = 1
    format: ValueFormat = PLAIN
    time_ordered: bool = False

    @property
    def timestamped(self) -> bool:
        """False: the time of a session is its end."""
        return False

    @property
    def with_headers(self) -> bool:
        """True if headers are kept."""
        return self.format.name == "session_headers"

    @property
    def versioned(self) -> bool:
        """False."""
        return False


Supplier = KeyValueSupplier | VersionedSupplier | WindowSupplier | SessionSupplier
