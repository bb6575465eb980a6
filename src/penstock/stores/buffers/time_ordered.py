"""The buffers behind suppress and behind the stream-table join with grace.

Both hold bytes, ordered by time and then by key bytes, and follow a changelog in Kafka Streams' own
form (`buffer_wire`). A batch reads only those of the committed entries that it meets: what a buffer
holds may be much more than what passes through it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import ProcessorStateException, WrongSerdeException
from penstock.record import NO_HEADERS, Change, Headers, RecordContext
from penstock.stores.buffers.buffer import Buffer, OrderedKeys
from penstock.stores.buffers.codec import (
    CHANGELOG_HEADERS,
    VERSION,
    Buffered,
    context_size,
    decode_buffered,
    encode_buffered,
)
from penstock.stores.bytes.store import OpenInner, memory

if TYPE_CHECKING:
    from penstock.serdes.base import Serde

#: Hears what leaves a buffer: key, value (or change), the context of the record that put it there.
Emit = Callable[[Any, Any, RecordContext], None]

_TIME = struct.Struct(">q")
_pack_time = _TIME.pack
_SEQUENCE = struct.Struct(">i")
_SEQUENCE_MASK = 0x7FFFFFFF
_NEVER = 2**63 - 1
#: The row, among those of the order, that says how many bytes are held.
_BYTES_HELD = b""


class _Entry(NamedTuple):
    """A buffered update: where it stands in the order, what it weighs, and itself."""

    time: int
    size: int
    buffered: Buffered


# A NamedTuple's own constructor costs twice as much as the tuple it makes.
_entry_of: Callable[[tuple[int, int, Buffered]], _Entry] = partial(tuple.__new__, _Entry)
_buffered_of: Callable[
    [tuple[bytes | None, bytes | None, bytes | None, RecordContext]], Buffered
] = partial(tuple.__new__, Buffered)
_change_of: Callable[[tuple[Any, Any, bool]], Change] = partial(tuple.__new__, Change)


class ChangeBuffer(Buffer):
    """The last update of each key that suppress holds back.

    A key keeps the time of its first update until it is sent; later updates only replace the
    value. `_entries` holds what was read or written since the store was opened, None for what has
    left; other keys are as the committed rows have them. Rows by key are changelog values; rows by
    time and key say the order.
    """

    def __init__(
        self, name: str, key_serde: Serde[Any] | None, value_serde: Serde[Any] | None,
        *, logging: bool = True, open_inner: OpenInner = memory,
    ) -> None:
        super().__init__(name, key_serde, value_serde, logging=logging, open_inner=open_inner)
        self._entries: dict[bytes, _Entry | None] = {}
        #: Keys changed since the last commit, in order; written to the changelog by the commit.
        self._dirty: dict[bytes, None] = {}
        #: Keys changed since the last advance, and what has become of their places in the order.
        self._changed: dict[bytes, None] = {}
        self._places: dict[bytes, bytes | None] = {}
        #: How many keys are held back.
        self.num_records = 0
        #: As Kafka counts: keys, values, times, topic and headers.
        self.size_bytes = 0

    def _open_rows(self) -> None:
        self._rows = self._open_inner(self.name)
        self._order_rows = self._open_inner(f"{self.name}.order")
        self._order = OrderedKeys(self._order_rows, b"\x00")
        self.num_records = self._rows.count()
        self.size_bytes = int.from_bytes(self._order_rows.get(_BYTES_HELD) or b"", "big")

    @property
    def min_timestamp(self) -> int:
        """The time of the first entry, 2**63 - 1 if there is none."""
        order = self._order
        while order.head is not None:
            time: int = _TIME.unpack_from(order.head)[0]
            entry = self._find(order.head[8:])
            if entry is not None and entry.time == time:
                return time
            order.drop_first()
        return _NEVER

    def is_over(self, max_records: int, max_bytes: int) -> bool:
        """True if a limit is exceeded."""
        return self.num_records > max_records or self.size_bytes > max_bytes

    def put(self, time: int, key: Any, change: Change, context: RecordContext) -> None:
        """Hold an update back, in the place of an earlier one of the key if there is one."""
        to_bytes = self._value_to_bytes
        try:
            raw_key = self._key_to_bytes(key)
            old = None if change.old is None else to_bytes(change.old)
            new = None if change.new is None else to_bytes(change.new)
        except TypeError as error:
            raise WrongSerdeException(f"Store {self.name}: {error}") from error
        earlier = self._find(raw_key)
        prior = old if earlier is None else earlier[2][0]
        self._set(time, raw_key, _buffered_of((prior, old, new, context)), earlier)
        if self._logging:
            self._dirty[raw_key] = None

    def _find(self, key: bytes) -> _Entry | None:
        """The entry of a key."""
        entries = self._entries
        if key in entries:
            return entries[key]
        row = self._rows.get(key)
        if row is None:
            return None
        buffered, time = decode_buffered(row)
        entry = entries[key] = _entry_of((time, _size(key, buffered), buffered))
        return entry

    def _set(self, time: int, key: bytes, buffered: Buffered, earlier: _Entry | None) -> None:
        size = _size(key, buffered)
        if earlier is None:
            place = _pack_time(time) + key
            self._order.add(place)
            self._places[place] = b""
            self.num_records += 1
            self.size_bytes += size
        else:
            time = earlier[0]
            self.size_bytes += size - earlier[1]
        self._entries[key] = _entry_of((time, size, buffered))
        self._changed[key] = None

    def _remove(self, key: bytes, entry: _Entry) -> None:
        self._entries[key] = None
        self._changed[key] = None
        self._places[_pack_time(entry[0]) + key] = None
        self.num_records -= 1
        self.size_bytes -= entry[1]

    def evict_until(self, time: int, emit: Emit) -> None:
        """Send, in order, every entry of that time or earlier."""
        if time < 0:
            return
        order, last = self._order, _pack_time(time)
        # The order alone tells, in most cases, that nothing is due.
        while order.head is not None and order.head[:8] <= last and self.min_timestamp <= time:
            self._evict_first(emit)

    def evict_over(self, max_records: int, max_bytes: int, emit: Emit) -> None:
        """Send the first entries until neither limit is exceeded."""
        while self.is_over(max_records, max_bytes) and self.min_timestamp != _NEVER:
            self._evict_first(emit)

    def _evict_first(self, emit: Emit) -> None:
        """Send the first entry. To be called right after `min_timestamp`, which finds it."""
        assert self._order.head is not None
        key = self._order.head[8:]
        entry = self._entries[key]
        assert entry is not None
        _, _, (_, old, new, context) = entry
        from_bytes = self._value_from_bytes
        change = _change_of((
            None if new is None else from_bytes(new),
            None if old is None else from_bytes(old), True,
        ))
        # The entry leaves after it was sent: readers downstream still see the prior value.
        emit(self._key_from_bytes(key), change, context)
        self._order.drop_first()
        self._remove(key, entry)
        if self._logging:
            self._dirty[key] = None

    def prior_value(self, key: Any) -> tuple[bool, Any]:
        """(is the key held back?, its value from before)."""
        entry = self._find(self._key_to_bytes(key))
        if entry is None:
            return False, None
        prior = entry.buffered.prior
        return True, None if prior is None else self._value_from_bytes(prior)

    def commit(self) -> None:
        """Log what has changed, once for each key. To be called when all caches are flushed."""
        for key in self._dirty:
            entry = self._entries[key]
            if entry is None:
                self._log(key, None, NO_HEADERS)
            else:
                self._log(key, encode_buffered(entry.buffered, entry.time), CHANGELOG_HEADERS)
        self._dirty.clear()

    def advance(self) -> None:
        """Make what has changed part of the committed rows."""
        if not self._changed:
            return
        entries = self._entries
        self._rows.write([
            (key, None if entry is None else encode_buffered(entry.buffered, entry.time))
            for key in self._changed for entry in (entries[key],)
        ])
        self._places[_BYTES_HELD] = self.size_bytes.to_bytes(8, "big")
        self._order_rows.write(self._places.items())
        self._changed.clear()
        self._places = {}

    def restore(self, key: bytes, value: bytes | None, timestamp: int, headers: Headers) -> None:
        """Take one record of the changelog; nothing is logged.

        The record says all about its key: an entry that left and came back between two commits has
        another time than before.
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
        buffered, time = decode_buffered(value)
        self._set(time, key, buffered, None)

    def close(self) -> None:
        """Forget what was not advanced."""
        self._open = False
        self._entries.clear()
        self._dirty.clear()
        self._changed.clear()
        self._places = {}


def _size(key: bytes, buffered: Buffered) -> int:
    prior, old, new, context = buffered
    return (
        8 + len(key) + (0 if prior is None else len(prior))
        + (0 if old is None or old == prior else len(old))
        + (0 if new is None else len(new)) + context_size(context)
    )


class GraceBuffer(Buffer):
    """The stream's records that wait, in a join with grace, for the table to catch up.

    Ordered by Kafka's store key: a zero byte, 8-byte time, key bytes, 4-byte sequence number. Each
    record has its own entry. The buffer's stream time is the largest time put into it. `_entries`
    holds what was written since the store was opened, None for what has left.
    """

    def __init__(
        self, name: str, key_serde: Serde[Any] | None, value_serde: Serde[Any] | None,
        grace_ms: int, *, logging: bool = True, open_inner: OpenInner = memory,
    ) -> None:
        super().__init__(name, key_serde, value_serde, logging=logging, open_inner=open_inner)
        self._grace = grace_ms
        self._entries: dict[bytes, Buffered | None] = {}
        #: Changed since the last advance.
        self._changed: dict[bytes, None] = {}
        self._stream_time = -1
        self._sequence = 0
        #: How many records wait.
        self.num_records = 0

    def _open_rows(self) -> None:
        self._rows = self._open_inner(self.name)
        self._order = OrderedKeys(self._rows)
        self.num_records = self._rows.count()

    def put(self, key: Any, value: Any, context: RecordContext) -> bool:
        """Let a record wait; False if it is late already and has to be joined at once."""
        if key is None:
            raise TypeError(
                f"The join buffer {self.name} cannot hold a null key. A left join with a grace "
                "period needs keys: filter null keys out, or join without a grace period."
            )
        timestamp = context.timestamp
        if self._stream_time - self._grace > timestamp:
            return False
        self._sequence = (self._sequence + 1) & _SEQUENCE_MASK
        raw_key = b"".join((
            b"\x00", _TIME.pack(timestamp), self._key_to_bytes(key),
            _SEQUENCE.pack(self._sequence),
        ))
        buffered = Buffered(None, None, self._value_to_bytes(value), context)
        self._add(raw_key, buffered)
        self._stream_time = max(self._stream_time, timestamp)
        if self._logging:
            self._log(raw_key, encode_buffered(buffered, 0), NO_HEADERS)
        return True

    def evict(self, emit: Emit) -> None:
        """Send, in order, every record that is at least the grace period behind stream time."""
        limit = self._stream_time - self._grace
        if limit < 0:
            return
        order = self._order
        last = _TIME.pack(limit)
        while (raw_key := order.head) is not None and raw_key[1:9] <= last:
            buffered = self._find(raw_key)
            if buffered is not None:
                new = buffered.new
                emit(
                    self._key_from_bytes(raw_key[9:-4]),
                    None if new is None else self._value_from_bytes(new), buffered.context,
                )
                self._remove(raw_key)
                if self._logging:
                    self._log(raw_key, None, NO_HEADERS)
            order.drop_first()

    def commit(self) -> None:
        """Nothing to do: every change was logged when it was made."""

    def advance(self) -> None:
        """Make what has changed part of the committed rows."""
        entries = self._entries
        if self._changed:
            self._rows.write([
                (key, None if entry is None else encode_buffered(entry, 0))
                for key in self._changed for entry in (entries[key],)
            ])
            self._changed.clear()

    def restore(self, key: bytes, value: bytes | None, timestamp: int, headers: Headers) -> None:
        """Take one record of the changelog; nothing is logged."""
        self._stream_time = max(self._stream_time, _TIME.unpack_from(key, 1)[0])
        if self._find(key) is not None:
            self._remove(key)
        if value is not None:
            self._add(key, decode_buffered(value)[0])

    def _find(self, raw_key: bytes) -> Buffered | None:
        if raw_key in self._entries:
            return self._entries[raw_key]
        row = self._rows.get(raw_key)
        return None if row is None else decode_buffered(row)[0]

    def _add(self, raw_key: bytes, buffered: Buffered) -> None:
        self._entries[raw_key] = buffered
        self._changed[raw_key] = None
        self._order.add(raw_key)
        self.num_records += 1

    def _remove(self, raw_key: bytes) -> None:
        self._entries[raw_key] = None
        self._changed[raw_key] = None
        self.num_records -= 1

    def clocks(self) -> dict[str, int]:
        """Stream time, and the last sequence number: equal keys of one time must not collide."""
        return {"stream-time": self._stream_time, "sequence": self._sequence}

    def set_clocks(self, clocks: Mapping[str, int]) -> None:
        """Go on from the times of an earlier batch."""
        self._stream_time = max(self._stream_time, clocks.get("stream-time", -1))
        self._sequence = clocks.get("sequence", self._sequence)

    def close(self) -> None:
        """Forget what was not advanced."""
        self._open = False
        self._entries.clear()
        self._changed.clear()


@dataclass(frozen=True, slots=True)
class ChangeBufferBuilder:
    """Builds the buffer of one suppress node."""

    name: str
    key_serde: Serde[Any] | None = None
    value_serde: Serde[Any] | None = None
    logging_enabled: bool = True
    log_config: Mapping[str, str] = field(default_factory=dict)

    @property
    def keeps_rows(self) -> bool:
        """True: what it holds rests where `build` is told."""
        return True

    def build(self, open_inner: OpenInner = memory) -> ChangeBuffer:
        """A new buffer, for one task."""
        return ChangeBuffer(
            self.name, self.key_serde, self.value_serde, logging=self.logging_enabled,
            open_inner=open_inner,
        )


@dataclass(frozen=True, slots=True)
class GraceBufferBuilder:
    """Builds the buffer of one stream-table join with grace."""

    name: str
    grace_ms: int
    key_serde: Serde[Any] | None = None
    value_serde: Serde[Any] | None = None
    logging_enabled: bool = True
    log_config: Mapping[str, str] = field(default_factory=dict)

    @property
    def keeps_rows(self) -> bool:
        """True: what it holds rests where `build` is told."""
        return True

    def build(self, open_inner: OpenInner = memory) -> GraceBuffer:
        """A new buffer, for one task."""
        return GraceBuffer(
            self.name, self.key_serde, self.value_serde, self.grace_ms,
            logging=self.logging_enabled, open_inner=open_inner,
        )
