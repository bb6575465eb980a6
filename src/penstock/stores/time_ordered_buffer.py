"""The buffers behind suppress and behind the stream-table join with grace.

Both hold bytes in memory, ordered by time and then by key bytes, and follow a changelog in Kafka
Streams' own form (`buffer_wire`). They are stores without a cache and cannot be queried.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import ConfigException, ProcessorStateException, WrongSerdeException
from penstock.record import NO_HEADERS, Change, Headers, RecordContext
from penstock.stores.buffer_wire import (
    CHANGELOG_HEADERS,
    VERSION,
    Buffered,
    context_size,
    decode_buffered,
    encode_buffered,
)

if TYPE_CHECKING:
    from penstock.serde import Serde
    from penstock.stores.base import StoreContext

#: Hears what leaves a buffer: key, value (or change), the context of the record that put it there.
Emit = Callable[[Any, Any, RecordContext], None]

_TIME = struct.Struct(">q")
_SEQUENCE = struct.Struct(">i")
_SEQUENCE_MASK = 0x7FFFFFFF
_NEVER = 2**63 - 1


class _Buffer:
    """What both buffers have in common: a name, serdes, and the way to the changelog."""

    persistent = False

    def __init__(
        self, name: str, key_serde: Serde[Any] | None, value_serde: Serde[Any] | None,
        *, logging: bool = True,
    ) -> None:
        self.name = name
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._logging = logging
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
        self._open = True

    def _log(self, key: bytes, value: bytes | None, headers: Headers) -> None:
        # Kafka leaves the time to the producer's clock; here the record being processed gives it,
        # so that a batch that is run again writes the same.
        self._log_change(self.name, key, value, max(0, self._current.timestamp), headers)

    def advance(self) -> None:
        """Nothing to do: what was written is there already."""

    def clocks(self) -> dict[str, int]:
        """The times that the entries do not tell."""
        return {}

    def set_clocks(self, clocks: Mapping[str, int]) -> None:
        """Go on from the times of an earlier batch."""


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


class ChangeBuffer(_Buffer):
    """The last update of each key that suppress holds back.

    A key keeps the time of its first update until it is sent; later updates only replace the
    value. `_entries` is the truth; `_order` holds (time, key) of every entry, and may hold some of
    entries that a restored record took away.
    """

    def __init__(
        self, name: str, key_serde: Serde[Any] | None, value_serde: Serde[Any] | None,
        *, logging: bool = True,
    ) -> None:
        super().__init__(name, key_serde, value_serde, logging=logging)
        self._entries: dict[bytes, _Entry] = {}
        self._order: list[tuple[int, bytes]] = []
        #: Keys changed since the last commit, in order; written to the changelog by the commit.
        self._dirty: dict[bytes, None] = {}
        #: As Kafka counts: keys, values, times, topic and headers.
        self.size_bytes = 0

    @property
    def num_records(self) -> int:
        """How many keys are held back."""
        return len(self._entries)

    @property
    def min_timestamp(self) -> int:
        """The time of the first entry, 2**63 - 1 if there is none."""
        order, entries = self._order, self._entries
        while order:
            time, key = order[0]
            entry = entries.get(key)
            if entry is not None and entry.time == time:
                return time
            heapq.heappop(order)
        return _NEVER

    def is_over(self, max_records: int, max_bytes: int) -> bool:
        """True if a limit is exceeded."""
        return len(self._entries) > max_records or self.size_bytes > max_bytes

    def put(self, time: int, key: Any, change: Change, context: RecordContext) -> None:
        """Hold an update back, in the place of an earlier one of the key if there is one."""
        to_bytes = self._value_to_bytes
        try:
            raw_key = self._key_to_bytes(key)
            old = None if change.old is None else to_bytes(change.old)
            new = None if change.new is None else to_bytes(change.new)
        except TypeError as error:
            raise WrongSerdeException(f"Store {self.name}: {error}") from error
        earlier = self._entries.get(raw_key)
        prior = old if earlier is None else earlier[2][0]
        self._set(time, raw_key, _buffered_of((prior, old, new, context)))
        if self._logging:
            self._dirty[raw_key] = None

    def _set(self, time: int, key: bytes, buffered: Buffered) -> None:
        prior, old, new, context = buffered
        size = (
            8 + len(key) + (0 if prior is None else len(prior))
            + (0 if old is None or old == prior else len(old))
            + (0 if new is None else len(new)) + context_size(context)
        )
        earlier = self._entries.get(key)
        if earlier is None:
            heapq.heappush(self._order, (time, key))
            self.size_bytes += size
        else:
            time = earlier.time
            self.size_bytes += size - earlier.size
        self._entries[key] = _entry_of((time, size, buffered))

    def evict_until(self, time: int, emit: Emit) -> None:
        """Send, in order, every entry of that time or earlier."""
        order = self._order
        # The order alone tells, in most cases, that nothing is due.
        while order and order[0][0] <= time and self.min_timestamp <= time:
            self._evict_first(emit)

    def evict_over(self, max_records: int, max_bytes: int, emit: Emit) -> None:
        """Send the first entries until neither limit is exceeded."""
        while self.is_over(max_records, max_bytes) and self.min_timestamp != _NEVER:
            self._evict_first(emit)

    def _evict_first(self, emit: Emit) -> None:
        """Send the first entry. To be called right after `min_timestamp`, which finds it."""
        key = self._order[0][1]
        _, size, (_, old, new, context) = self._entries[key]
        from_bytes = self._value_from_bytes
        change = _change_of((
            None if new is None else from_bytes(new),
            None if old is None else from_bytes(old), True,
        ))
        # The entry leaves after it was sent: readers downstream still see the prior value.
        emit(self._key_from_bytes(key), change, context)
        heapq.heappop(self._order)
        del self._entries[key]
        self.size_bytes -= size
        if self._logging:
            self._dirty[key] = None

    def prior_value(self, key: Any) -> tuple[bool, Any]:
        """(is the key held back?, its value from before)."""
        entry = self._entries.get(self._key_to_bytes(key))
        if entry is None:
            return False, None
        prior = entry.buffered.prior
        return True, None if prior is None else self._value_from_bytes(prior)

    def commit(self) -> None:
        """Log what has changed, once for each key. To be called when all caches are flushed."""
        for key in self._dirty:
            entry = self._entries.get(key)
            if entry is None:
                self._log(key, None, NO_HEADERS)
            else:
                self._log(key, encode_buffered(entry.buffered, entry.time), CHANGELOG_HEADERS)
        self._dirty.clear()

    def restore(self, key: bytes, value: bytes | None, timestamp: int, headers: Headers) -> None:
        """Take one record of the changelog; nothing is logged.

        The record says all about its key: an entry that left and came back between two commits has
        another time than before.
        """
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.size_bytes -= entry.size
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
        self._set(time, key, buffered)

    def held(self) -> Iterator[tuple[bytes, bytes, int, Headers]]:
        """All that is held back, each as `restore` takes it; for the next batch."""
        for key, (time, _, buffered) in self._entries.items():
            stamp = buffered.context.timestamp
            yield key, encode_buffered(buffered, time), stamp, CHANGELOG_HEADERS

    def close(self) -> None:
        """Forget everything."""
        self._open = False
        self._entries.clear()
        self._order.clear()
        self._dirty.clear()
        self.size_bytes = 0


class GraceBuffer(_Buffer):
    """The stream's records that wait, in a join with grace, for the table to catch up.

    Ordered by Kafka's store key: a zero byte, 8-byte time, key bytes, 4-byte sequence number. Each
    record has its own entry. The buffer's stream time is the largest time put into it.
    """

    def __init__(
        self, name: str, key_serde: Serde[Any] | None, value_serde: Serde[Any] | None,
        grace_ms: int, *, logging: bool = True,
    ) -> None:
        super().__init__(name, key_serde, value_serde, logging=logging)
        self._grace = grace_ms
        self._entries: dict[bytes, Buffered] = {}
        self._order: list[bytes] = []
        self._stream_time = -1
        self._sequence = 0

    @property
    def num_records(self) -> int:
        """How many records wait."""
        return len(self._entries)

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
        self._entries[raw_key] = buffered
        heapq.heappush(self._order, raw_key)
        self._stream_time = max(self._stream_time, timestamp)
        if self._logging:
            self._log(raw_key, encode_buffered(buffered, 0), NO_HEADERS)
        return True

    def evict(self, emit: Emit) -> None:
        """Send, in order, every record that is at least the grace period behind stream time."""
        limit = self._stream_time - self._grace
        if limit < 0:
            return
        order, entries = self._order, self._entries
        last = _TIME.pack(limit)
        while order:
            raw_key = order[0]
            if raw_key[1:9] > last:
                return
            buffered = entries.get(raw_key)
            if buffered is not None:
                new = buffered.new
                emit(
                    self._key_from_bytes(raw_key[9:-4]),
                    None if new is None else self._value_from_bytes(new), buffered.context,
                )
                del entries[raw_key]
                if self._logging:
                    self._log(raw_key, None, NO_HEADERS)
            heapq.heappop(order)

    def commit(self) -> None:
        """Nothing to do: every change was logged when it was made."""

    def restore(self, key: bytes, value: bytes | None, timestamp: int, headers: Headers) -> None:
        """Take one record of the changelog; nothing is logged."""
        self._stream_time = max(self._stream_time, _TIME.unpack_from(key, 1)[0])
        if value is None:
            self._entries.pop(key, None)
        else:
            if key not in self._entries:
                heapq.heappush(self._order, key)
            self._entries[key] = decode_buffered(value)[0]

    def clocks(self) -> dict[str, int]:
        """Stream time, and the last sequence number: equal keys of one time must not collide."""
        return {"stream-time": self._stream_time, "sequence": self._sequence}

    def set_clocks(self, clocks: Mapping[str, int]) -> None:
        """Go on from the times of an earlier batch."""
        self._stream_time = max(self._stream_time, clocks.get("stream-time", -1))
        self._sequence = clocks.get("sequence", self._sequence)

    def held(self) -> Iterator[tuple[bytes, bytes, int, Headers]]:
        """All that waits, each as `restore` takes it; for the next batch."""
        for key, buffered in self._entries.items():
            yield key, encode_buffered(buffered, 0), buffered.context.timestamp, NO_HEADERS

    def close(self) -> None:
        """Forget everything."""
        self._open = False
        self._entries.clear()
        self._order.clear()


@dataclass(frozen=True, slots=True)
class ChangeBufferBuilder:
    """Builds the buffer of one suppress node."""

    name: str
    key_serde: Serde[Any] | None = None
    value_serde: Serde[Any] | None = None
    logging_enabled: bool = True
    log_config: Mapping[str, str] = field(default_factory=dict)

    def build(self) -> ChangeBuffer:
        """A new buffer, for one task."""
        return ChangeBuffer(
            self.name, self.key_serde, self.value_serde, logging=self.logging_enabled
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

    def build(self) -> GraceBuffer:
        """A new buffer, for one task."""
        return GraceBuffer(
            self.name, self.key_serde, self.value_serde, self.grace_ms,
            logging=self.logging_enabled,
        )
