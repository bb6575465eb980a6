"""What a store needs from its task, and what every store must be able to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from penstock.record import Current, Headers

if TYPE_CHECKING:
    from penstock.serdes.builtin import Serde
    from penstock.stores.cache.record_cache import RecordCache

#: Hears what a cache lets go: key, new value, old value, timestamp, headers. While it is called,
#: `Current` is the record that wrote the entry. Values are plain (no timestamp in them); the
#: timestamp is the new value's own if the store keeps one, else the writing record's.
FlushListener = Callable[[Any, Any, Any, int, Headers], None]


class StoreContext(Protocol):
    """The task, as a store sees it."""

    application_id: str
    task_id: str
    #: The record being processed: what a changelog record or a cache entry takes its time from.
    current: Current
    #: The record cache of the task, shared by its stores.
    cache: RecordCache
    default_key_serde: Serde[Any] | None
    default_value_serde: Serde[Any] | None

    def changelog_topic(self, store: str) -> str:
        """The name of a store's changelog topic."""
        ...

    def log_change(
        self, store: str, key: bytes, value: bytes | None, timestamp: int, headers: Headers
    ) -> None:
        """Append one record to the store's changelog; bytes are Kafka Streams' own."""
        ...

    def drop(self, reason: str) -> None:
        """Count a record as dropped (dropped-records-total)."""
        ...


class StateStore(Protocol):
    """A store as the task sees it; custom stores implement this.

    The life of a store in a batch: `init`, `set_clocks`, `restore` of what it lags behind, reads
    and writes, `commit`; then `clocks` goes into the task's record and, once the batch is
    committed to the log, `advance` makes the writes part of the store. A batch that fails is
    forgotten with the store object.
    """

    name: str
    #: True if what it holds would survive a restart on the same host.
    persistent: bool

    @property
    def is_open(self) -> bool:
        """True between `init` and `close`."""
        ...

    def init(self, context: StoreContext) -> None:
        """Open the store in a task; called once, before anything else."""
        ...

    def commit(self) -> None:
        """Let the cache go (which forwards what it held). Called at every commit, in order."""
        ...

    def advance(self) -> None:
        """The writes up to the last commit are durable in the log: keep them for good."""
        ...

    def restore(self, key: bytes, value: bytes | None, timestamp: int, headers: Headers) -> None:
        """Take one record of the changelog, as it was given to `log_change`; nothing is logged."""
        ...

    def clocks(self) -> dict[str, int]:
        """What the store remembers besides its rows: observed stream time, sequence numbers."""
        ...

    def set_clocks(self, clocks: Mapping[str, int]) -> None:
        """Go on from what `clocks` gave in an earlier batch; unknown names are ignored."""
        ...

    def close(self) -> None:
        """Release the store; it cannot be asked any more."""
        ...
