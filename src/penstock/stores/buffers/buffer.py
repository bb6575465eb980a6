"""The base class of buffers, and the order in which buffered keys leave."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigException, StoreSerdeException, StreamsException
from penstock.record import NO_HEADERS, Headers, PartitionColumns, RecordContext
from penstock.serdes.headers import RecordHeaders, bind_headers
from penstock.serdes.store import store_serde
from penstock.stores.bytes.store import BytesStore, OpenBytesStore, open_in_memory

if TYPE_CHECKING:
    from penstock.serdes.base import Serde
    from penstock.stores.api.store import StoreContext

#: Receives a record that leaves a buffer: key, value (or change), context of the buffered record.
Emit = Callable[[Any, Any, RecordContext], None]


class Buffer(ABC):
    """A changelogged store that has no cache and cannot be queried.

    Changes of a batch are kept in memory over the committed rows. A batch reads only the committed
    rows that it needs; `advance` writes the changes to them.
    """

    persistent = False
    #: The error for a key or value that the serde does not fit, see `store_serde`.
    _wrong_type: type[StreamsException] = StoreSerdeException

    def __init__(
        self, name: str, key_serde: Serde[Any] | None, value_serde: Serde[Any] | None,
        *, logging: bool = True, open_bytes: OpenBytesStore = open_in_memory,
    ) -> None:
        self.name = name
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._logging = logging
        self._open_bytes = open_bytes
        self._open = False
        #: The headers of the record that is read or written, for serdes that depend on them.
        self._record = RecordHeaders()

    @property
    def is_open(self) -> bool:
        """True between `init` and `close`."""
        return self._open

    def init(self, context: StoreContext) -> None:
        """Open the store in a task. Called once, before any other method."""
        topic = self._topic_of_serdes(context)
        key = self._key_serde or context.default_key_serde
        value = self._value_serde or context.default_value_serde
        if key is None or value is None:
            missing = "key" if key is None else "value"
            raise ConfigException(
                f"Failed to initialize {missing} serdes for store {self.name}. "
                f"The store has no {missing} serde and no default is configured. "
                f"Give the operator a serde, or set default_{missing}_serde in StreamsConfig."
            )
        (key, value), _ = bind_headers(
            (key.for_store(topic, True), value.for_store(topic, False)), self._record
        )
        key = store_serde(key, self.name, "key", self._wrong_type)
        value = store_serde(value, self.name, "value", self._wrong_type)
        self._key_to_bytes, self._key_from_bytes = key.serialize, key.deserialize
        self._value_to_bytes, self._value_from_bytes = value.serialize, value.deserialize
        self._log_change = context.log_change
        self._current = context.current
        self._open_rows()
        self._open = True

    def _topic_of_serdes(self, context: StoreContext) -> str:
        return context.changelog_topic(self.name)

    @abstractmethod
    def _open_rows(self) -> None:
        """Open the committed rows."""

    def _log(self, key: bytes, value: bytes | None, headers: Headers) -> None:
        # Kafka leaves the timestamp to the producer's clock. The timestamp of the current record
        # makes a batch that runs again write the same changelog records.
        self._log_change(self.name, key, value, max(0, self._current.timestamp), headers)

    @abstractmethod
    def restore(self, key: bytes, value: bytes | None, timestamp: int, headers: Headers) -> None:
        """Apply one changelog record without logging it."""

    def restore_all(self, records: PartitionColumns) -> None:
        """Apply many changelog records."""
        headers = records.headers or [NO_HEADERS] * len(records)
        for key, value, timestamp, pairs in zip(
            records.keys, records.values, records.timestamps, headers, strict=True
        ):
            if key is not None:
                self.restore(key, value, timestamp, pairs)

    def resume_restore(
        self, restored: Mapping[str, int], committed: Mapping[str, int] | None
    ) -> None:
        """Continue a restore whose earlier records are in the rows already."""
        self.set_clocks(restored)

    def restored_clocks(self) -> dict[str, int]:
        """State of the restore that the rows do not hold; the argument of `resume_restore`."""
        return self.clocks()

    def clocks(self) -> dict[str, int]:
        """State that the rows do not hold. Empty unless a subclass has some."""
        return {}

    def set_clocks(self, clocks: Mapping[str, int]) -> None:  # noqa: B027
        """Set the state that `clocks` returned in an earlier batch."""


class OrderedKeys:
    """Keys in ascending order: the keys of committed rows merged with added keys.

    Rows are read lazily, one by one, and later changes to them are not seen. The caller must check
    that the first key is still valid. A key can occur twice.
    """

    __slots__ = ("_added", "_committed", "_rows", "head")

    def __init__(self, rows: BytesStore, start: bytes | None = None) -> None:
        self._rows: Iterator[tuple[bytes, bytes]] = rows.scan(start, None)
        self._added: list[bytes] = []
        self._committed = self._next_row()
        #: The first key; None if there is none.
        self.head: bytes | None = self._committed

    def add(self, key: bytes) -> None:
        """Add a key."""
        heapq.heappush(self._added, key)
        if self.head is None or key < self.head:
            self.head = key

    def drop_first(self) -> None:
        """Remove the first key."""
        added = self._added
        if added and added[0] == self.head:
            heapq.heappop(added)
        else:
            self._committed = self._next_row()
        first = self._committed
        if added and (first is None or added[0] < first):
            first = added[0]
        self.head = first

    def _next_row(self) -> bytes | None:
        row = next(self._rows, None)
        return None if row is None else row[0]
