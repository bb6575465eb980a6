"""What the buffers of suppress and of joins with grace have in common."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigException
from penstock.record import NO_HEADERS, Headers
from penstock.record import Rows as Records
from penstock.stores.bytes.store import BytesStore, OpenInner, memory

if TYPE_CHECKING:
    from penstock.serdes.base import Serde
    from penstock.stores.api.store import StoreContext


class Buffer(ABC):
    """A store without a cache, which cannot be queried: a name, serdes, the way to the changelog.

    What it holds lies over committed rows: a batch reads those it needs, and `advance` writes what
    has changed.
    """

    persistent = False

    def __init__(
        self, name: str, key_serde: Serde[Any] | None, value_serde: Serde[Any] | None,
        *, logging: bool = True, open_inner: OpenInner = memory,
    ) -> None:
        self.name = name
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._logging = logging
        self._open_inner = open_inner
        self._open = False

    @property
    def is_open(self) -> bool:
        """True between init and close."""
        return self._open

    def init(self, context: StoreContext) -> None:
        """Open the store in a task; called once, before anything else."""
        topic = context.changelog_topic(self.name)
        key = self._key_serde or context.default_key_serde
        value = self._value_serde or context.default_value_serde
        if key is None or value is None:
            missing = "key" if key is None else "value"
            raise ConfigException(
                f"Failed to initialize {missing} serdes for store {self.name}. "
                f"No {missing} serde was given and there is no default one. "
                f"Give the operator a serde, or set default_{missing}_serde in StreamsConfig."
            )
        key, value = key.for_topic(topic, True), value.for_topic(topic, False)
        self._key_to_bytes, self._key_from_bytes = key.serialize, key.deserialize
        self._value_to_bytes, self._value_from_bytes = value.serialize, value.deserialize
        self._log_change = context.log_change
        self._current = context.current
        self._open_rows()
        self._open = True

    @abstractmethod
    def _open_rows(self) -> None:
        """Open what is committed."""

    def _log(self, key: bytes, value: bytes | None, headers: Headers) -> None:
        # Kafka leaves the time to the producer's clock; here the record being processed gives it,
        # so that a batch that is run again writes the same.
        self._log_change(self.name, key, value, max(0, self._current.timestamp), headers)

    @abstractmethod
    def restore(self, key: bytes, value: bytes | None, timestamp: int, headers: Headers) -> None:
        """Take one record of the changelog; nothing is logged."""

    def restore_all(self, records: Records) -> None:
        """Take many records of the changelog."""
        headers = records.headers or [NO_HEADERS] * len(records)
        for key, value, timestamp, pairs in zip(
            records.keys, records.values, records.timestamps, headers, strict=True
        ):
            if key is not None:
                self.restore(key, value, timestamp, pairs)

    def go_on_restoring(
        self, restored: Mapping[str, int], committed: Mapping[str, int] | None
    ) -> None:
        """Take more records into rows that others were restored into."""
        self.set_clocks(restored)

    def restored_clocks(self) -> dict[str, int]:
        """What the rows do not tell about the records that were restored into them."""
        return self.clocks()

    def clocks(self) -> dict[str, int]:
        """The entries tell all times."""
        return {}

    def set_clocks(self, clocks: Mapping[str, int]) -> None:  # noqa: B027
        """There are none."""


class OrderedKeys:
    """Keys from the smallest on: those of committed rows, and those that were added.

    The rows are read one by one, as far as they are needed, and not again after they were changed:
    whoever takes the first key has to see whether it still counts. A key may come twice.
    """

    __slots__ = ("_added", "_committed", "_rows", "head")

    def __init__(self, rows: BytesStore, start: bytes | None = None) -> None:
        self._rows: Iterator[tuple[bytes, bytes]] = rows.scan(start, None)
        self._added: list[bytes] = []
        self._committed = self._next_row()
        #: The first key, None if there is none.
        self.head: bytes | None = self._committed

    def add(self, key: bytes) -> None:
        """Add a key."""
        heapq.heappush(self._added, key)
        if self.head is None or key < self.head:
            self.head = key

    def drop_first(self) -> None:
        """Take the first key away."""
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
