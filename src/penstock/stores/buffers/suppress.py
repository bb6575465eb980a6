"""The buffer of `suppress`.

Updates are ordered by time and then by key bytes. The changelog has Kafka Streams' format (see
`codec`). A batch reads only the committed entries that it updates or emits, because the buffer can
hold far more than passes through it in one batch.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import ProcessorStateException, WrongSerdeException
from penstock.record import NO_HEADERS, Change, Headers, RecordContext
from penstock.stores.buffers.buffer import Buffer, Emit, OrderedKeys
from penstock.stores.buffers.codec import (
    CHANGELOG_HEADERS,
    VERSION,
    BufferValue,
    context_size,
    decode_buffer_value,
    encode_buffer_value,
)
from penstock.stores.bytes.store import OpenBytesStore, open_in_memory

if TYPE_CHECKING:
    from penstock.serdes.base import Serde

_TIME = struct.Struct(">q")
_pack_time = _TIME.pack
_MAX_TIME = 2**63 - 1
#: The row, among the rows of the order, that holds the buffered size in bytes.
_SIZE_KEY = b""


class _BufferedUpdate(NamedTuple):
    """A buffered update: its time in the order, its size as Kafka counts it, and its value."""

    time: int
    size: int
    buffered: BufferValue


# The constructor of a NamedTuple takes twice as long as the tuple that it creates.
_new_update: Callable[[tuple[int, int, BufferValue]], _BufferedUpdate] = partial(
    tuple.__new__, _BufferedUpdate
)
_new_buffer_value: Callable[
    [tuple[bytes | None, bytes | None, bytes | None, RecordContext]], BufferValue
] = partial(tuple.__new__, BufferValue)
_new_change: Callable[[tuple[Any, Any, bool]], Change] = partial(tuple.__new__, Change)


class SuppressBuffer(Buffer):
    """The last update of each suppressed key.

    A key keeps the time of its first update until it is emitted; later updates replace only the
    value. `_entries` holds the entries read or written since the store was opened; None marks a
    removed entry, and other keys are in the committed rows. The rows by key hold changelog values.
    The rows by time and key hold the order.
    """

    _wrong_type = WrongSerdeException

    def __init__(
        self, name: str, key_serde: Serde[Any] | None, value_serde: Serde[Any] | None,
        *, logging: bool = True, open_bytes: OpenBytesStore = open_in_memory,
    ) -> None:
        super().__init__(name, key_serde, value_serde, logging=logging, open_bytes=open_bytes)
        self._entries: dict[bytes, _BufferedUpdate | None] = {}
        #: Keys changed since the last commit, in order. The commit logs them.
        self._dirty: dict[bytes, None] = {}
        #: Keys changed since the last `advance`, and the changes to the rows of the order.
        self._changed: dict[bytes, None] = {}
        self._order_changes: dict[bytes, bytes | None] = {}
        #: The number of suppressed keys.
        self.num_records = 0
        #: The size as Kafka counts it: keys, values, times, topic and headers.
        self.size_bytes = 0

    def _open_rows(self) -> None:
        self._rows = self._open_bytes(self.name)
        self._order_rows = self._open_bytes(f"{self.name}.order")
        self._order = OrderedKeys(self._order_rows, b"\x00")
        self.num_records = self._rows.count()
        self.size_bytes = int.from_bytes(self._order_rows.get(_SIZE_KEY) or b"", "big")

    @property
    def min_timestamp(self) -> int:
        """The time of the first entry; 2**63 - 1 if the buffer is empty."""
        order = self._order
        while order.head is not None:
            time: int = _TIME.unpack_from(order.head)[0]
            entry = self._find(order.head[8:])
            if entry is not None and entry.time == time:
                return time
            order.drop_first()
        return _MAX_TIME

    def is_over(self, max_records: int, max_bytes: int) -> bool:
        """Whether the buffer exceeds one of the limits."""
        return self.num_records > max_records or self.size_bytes > max_bytes

    def put(self, time: int, key: Any, change: Change, context: RecordContext) -> None:
        """Buffer an update. It replaces a buffered update of the same key."""
        to_bytes = self._value_to_bytes
        self._record.headers = context.headers
        raw_key = self._key_to_bytes(key)
        old = None if change.old is None else to_bytes(change.old)
        new = None if change.new is None else to_bytes(change.new)
        earlier = self._find(raw_key)
        prior = old if earlier is None else earlier[2][0]
        self._set(time, raw_key, _new_buffer_value((prior, old, new, context)), earlier)
        if self._logging:
            self._dirty[raw_key] = None

    def _find(self, key: bytes) -> _BufferedUpdate | None:
        entries = self._entries
        if key in entries:
            return entries[key]
        row = self._rows.get(key)
        if row is None:
            return None
        buffered, time = decode_buffer_value(row)
        entry = entries[key] = _new_update((time, _size(key, buffered), buffered))
        return entry

    def _set(
        self, time: int, key: bytes, buffered: BufferValue, earlier: _BufferedUpdate | None
    ) -> None:
        size = _size(key, buffered)
        if earlier is None:
            order_key = _pack_time(time) + key
            self._order.add(order_key)
            self._order_changes[order_key] = b""
            self.num_records += 1
            self.size_bytes += size
        else:
            time = earlier[0]
            self.size_bytes += size - earlier[1]
        self._entries[key] = _new_update((time, size, buffered))
        self._changed[key] = None

    def _remove(self, key: bytes, entry: _BufferedUpdate) -> None:
        self._entries[key] = None
        self._changed[key] = None
        self._order_changes[_pack_time(entry[0]) + key] = None
        self.num_records -= 1
        self.size_bytes -= entry[1]

    def evict_until(self, time: int, emit: Emit) -> None:
        """Emit, in order, every entry with that time or an earlier one."""
        if time < 0:
            return
        order, last = self._order, _pack_time(time)
        # In most cases the order alone shows that no entry is due.
        while order.head is not None and order.head[:8] <= last and self.min_timestamp <= time:
            self._evict_first(emit)

    def evict_over(self, max_records: int, max_bytes: int, emit: Emit) -> None:
        """Emit the first entries until the buffer is within both limits."""
        while self.is_over(max_records, max_bytes) and self.min_timestamp != _MAX_TIME:
            self._evict_first(emit)

    def _evict_first(self, emit: Emit) -> None:
        """Emit the first entry. `min_timestamp` must be called first: it finds the entry."""
        assert self._order.head is not None
        key = self._order.head[8:]
        entry = self._entries[key]
        assert entry is not None
        _, _, (_, old, new, context) = entry
        self._record.headers = context.headers
        from_bytes = self._value_from_bytes
        change = _new_change((
            None if new is None else from_bytes(new),
            None if old is None else from_bytes(old), True,
        ))
        # Remove the entry after emitting it: readers downstream still see the prior value.
        emit(self._key_from_bytes(key), change, context)
        self._order.drop_first()
        self._remove(key, entry)
        if self._logging:
            self._dirty[key] = None

    def prior_value(self, key: Any) -> tuple[bool, Any]:
        """Returns whether the key is suppressed, and its value from before the first update."""
        entry = self._find(self._key_to_bytes(key))
        if entry is None:
            return False, None
        prior = entry.buffered.prior
        self._record.headers = entry.buffered.context.headers
        return True, None if prior is None else self._value_from_bytes(prior)

    def commit(self) -> None:
        """Log each changed key once. Called after all caches are flushed."""
        for key in self._dirty:
            entry = self._entries[key]
            if entry is None:
                self._log(key, None, NO_HEADERS)
            else:
                self._log(key, encode_buffer_value(entry.buffered, entry.time), CHANGELOG_HEADERS)
        self._dirty.clear()

    def advance(self) -> None:
        """Write the changes to the committed rows."""
        if not self._changed:
            return
        entries = self._entries
        self._rows.write([
            (key, None if entry is None else encode_buffer_value(entry.buffered, entry.time))
            for key in self._changed for entry in (entries[key],)
        ])
        self._order_changes[_SIZE_KEY] = self.size_bytes.to_bytes(8, "big")
        self._order_rows.write(self._order_changes.items())
        self._changed.clear()
        self._order_changes = {}

    def restore(self, key: bytes, value: bytes | None, timestamp: int, headers: Headers) -> None:
        """Apply one changelog record without logging it.

        The record replaces the entry completely: an entry that was emitted and added again between
        two commits has a new time.
        """
        entry = self._find(key)
        if entry is not None:
            self._remove(key, entry)
        if value is None:
            return
        version = headers.last("v")
        if version != VERSION:
            raise ProcessorStateException(
                f"Cannot restore the buffer {self.name} from its changelog. The record of key "
                f"{key!r} has format {version!r}; this version reads {VERSION!r}, which Kafka "
                "Streams has written since 2.4. Let the old application drain its buffer first."
            )
        buffered, time = decode_buffer_value(value)
        self._set(time, key, buffered, None)

    def close(self) -> None:
        """Discard the changes since the last `advance`."""
        self._open = False
        self._entries.clear()
        self._dirty.clear()
        self._changed.clear()
        self._order_changes = {}


def _size(key: bytes, buffered: BufferValue) -> int:
    prior, old, new, context = buffered
    return (
        8 + len(key) + (0 if prior is None else len(prior))
        + (0 if old is None or old == prior else len(old))
        + (0 if new is None else len(new)) + context_size(context)
    )


@dataclass(frozen=True, slots=True)
class SuppressBufferBuilder:
    """Builds the buffer of one `suppress` node."""

    name: str
    key_serde: Serde[Any] | None = None
    value_serde: Serde[Any] | None = None
    logging_enabled: bool = True
    log_config: Mapping[str, str] = field(default_factory=dict)

    @property
    def keeps_rows(self) -> bool:
        """True: `build` takes the bytes store that holds the rows."""
        return True

    def build(self, open_bytes: OpenBytesStore = open_in_memory) -> SuppressBuffer:
        """Build a buffer for one task."""
        return SuppressBuffer(
            self.name, self.key_serde, self.value_serde, logging=self.logging_enabled,
            open_bytes=open_bytes,
        )
