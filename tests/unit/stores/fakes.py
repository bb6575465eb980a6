"""A fake task for stores."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.record import NO_HEADERS, CurrentRecord, Headers, RecordContext
from penstock.stores import RecordCache


@dataclass
class FakeContext:
    """A `StoreContext` that collects changelog records and dropped records."""

    max_bytes: int = 0
    default_key_serde: Any = None
    default_value_serde: Any = None
    application_id: str = "app"
    task_id: str = "0_0"
    current: CurrentRecord = field(default_factory=CurrentRecord)
    logged: list[tuple[str, bytes, bytes | None, int, Headers]] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cache = RecordCache(self.max_bytes)

    def changelog_topic(self, store: str) -> str:
        return f"app-{store}-changelog"

    def log_change(
        self, store: str, key: bytes, value: bytes | None, timestamp: int, headers: Headers
    ) -> None:
        self.logged.append((store, key, value, timestamp, headers))

    def drop(self, reason: str, store: str | None = None) -> None:
        self.dropped.append(reason)

    def at(self, timestamp: int, offset: int = 0, headers: Headers = NO_HEADERS) -> None:
        """Set the current record."""
        self.current.set_context(RecordContext("topic", 0, offset, timestamp, headers))
