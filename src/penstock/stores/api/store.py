"""The interface between a store and its task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, get_origin

from penstock.record import CurrentRecord, Headers

if TYPE_CHECKING:
    from penstock.metrics import StreamsMetrics
    from penstock.serdes.builtin import Serde
    from penstock.stores.cache.record_cache import RecordCache

#: Receives a flushed change: key, new value, old value, timestamp, headers. During the call,
#: `CurrentRecord` is the record that wrote the entry. Values do not contain timestamps. The
#: timestamp is that of the new value if the store keeps timestamps, else that of the record.
FlushListener = Callable[[Any, Any, Any, int, Headers], None]


class StoreContext(Protocol):
    """The task, as a store sees it."""

    application_id: str
    task_id: str
    #: The current record. Changelog records and cache entries take their timestamps from it.
    current: CurrentRecord
    #: The record cache that all stores of the task share.
    cache: RecordCache
    default_key_serde: Serde[Any] | None
    default_value_serde: Serde[Any] | None
    #: The directory in which the store may keep files of its own. They are not restored elsewhere.
    state_dir: str
    #: The counters of the task, and sensors for measurements of the store.
    metrics: StreamsMetrics

    def app_configs(self) -> Mapping[str, Any]:
        """Return the configuration under Kafka's names.

        Kafka: StateStoreContext#appConfigs
        """
        ...

    def app_configs_with_prefix(self, prefix: str) -> Mapping[str, Any]:
        """Return the settings whose names start with the prefix, without the prefix.

        Args:
            prefix: The start of the names.

        Kafka: StateStoreContext#appConfigsWithPrefix
        """
        ...

    def changelog_topic(self, store: str) -> str:
        """Return the name of a store's changelog topic.

        Args:
            store: The name of the store.
        """
        ...

    def log_change(
        self, store: str, key: bytes, value: bytes | None, timestamp: int, headers: Headers
    ) -> None:
        """Append one record to the store's changelog, in Kafka Streams' bytes.

        Args:
            store: The name of the store.
            key: The key in the changelog.
            value: The value in the changelog; None deletes the key.
            timestamp: The timestamp, in milliseconds since the epoch.
            headers: The headers: pairs of a name and bytes or None.
        """
        ...

    def drop(self, reason: str, store: str | None = None) -> None:
        """Count a dropped record (dropped-records-total); log it if a store is given.

        Args:
            reason: Why the record is dropped.
            store: The name of the store.
        """
        ...


class StateStore(Protocol):
    """A store, as its task sees it. Custom stores implement it.

    In a batch, the task calls `init`, `set_clocks`, `restore` for changelog records that the store
    has not seen, then reads and writes, then `commit`. The result of `clocks` becomes part of the
    task's record. When the batch is committed to the log, `advance` makes the writes permanent. If
    a batch fails, the store object is discarded.
    """

    name: str
    #: True if the rows survive a restart on the same host.
    persistent: bool

    @property
    def is_open(self) -> bool:
        """True between `init` and `close`."""
        ...

    def init(self, context: StoreContext) -> None:
        """Open the store in a task. Called once, before any other method.

        Args:
            context: The context of the task.

        Kafka: StateStore#init
        """
        ...

    def commit(self) -> None:
        """Flush the cache, which forwards its changes. Called at every commit, in order.

        Kafka: CommitCallback#onCommit, StateStore#commit
        """
        ...

    def advance(self) -> None:
        """Make the writes up to the last commit permanent: they are durable in the log."""
        ...

    def restore(self, key: bytes, value: bytes | None, timestamp: int, headers: Headers) -> None:
        """Apply one changelog record, as it was given to `log_change`, without logging it.

        Args:
            key: The key in the changelog.
            value: The value in the changelog; None deletes the key.
            timestamp: The timestamp, in milliseconds since the epoch.
            headers: The headers: pairs of a name and bytes or None.

        Kafka: BatchingStateRestoreCallback#restore, StateRestoreCallback#restore
        """
        ...

    def clocks(self) -> dict[str, int]:
        """State that the rows do not hold: observed stream time, sequence numbers.

        Returns:
            Name -> number; empty if the rows hold everything.
        """
        ...

    def set_clocks(self, clocks: Mapping[str, int]) -> None:
        """Set the state that `clocks` returned in an earlier batch. Ignores unknown names.

        Args:
            clocks: The result of `clocks` in an earlier batch.
        """
        ...

    def close(self) -> None:
        """Close the store. It cannot be used after that.

        Kafka: StateStore#close
        """
        ...


def check_kind(store: Any, kind: Any) -> Any:
    """Return the store; raise if it is not of the class `kind`, which may have type arguments."""
    if kind is None:
        return store
    expected = get_origin(kind) or kind
    # A Protocol that is not checkable at run time is for type checkers only.
    if not getattr(expected, "_is_protocol", False) and not isinstance(store, expected):
        raise TypeError(
            f"Store '{store.name}' is a {type(store).__name__}, not a {expected.__name__}."
        )
    return store
