"""The buffer of a stream-table join with a grace period.

Records are ordered by time and then by key bytes. The changelog has Kafka Streams' format (see
`codec`). A batch reads only the committed entries that leave the buffer in this batch.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.record import NO_HEADERS, Headers, RecordContext
from penstock.stores.buffers.buffer import Buffer, Emit, OrderedKeys
from penstock.stores.buffers.codec import BufferValue, decode_buffer_value, encode_buffer_value
from penstock.stores.bytes.store import OpenBytesStore, open_in_memory

if TYPE_CHECKING:
    from penstock.serdes.base import Serde
    from penstock.stores.api.store import StoreContext

_TIME = struct.Struct(">q")
_SEQUENCE = struct.Struct(">i")
_SEQUENCE_MASK = 0x7FFFFFFF


class JoinGraceBuffer(Buffer):
    """Stream records that wait for the table to catch up.

    Row keys are Kafka's: a zero byte, 8-byte time, key bytes, 4-byte sequence number. Every record
    has its own entry. The stream time of the buffer is the largest time put into it. `_entries`
    holds the writes since the store was opened; None marks a removed entry.
    """

    def __init__(
        self, name: str, key_serde: Serde[Any] | None, value_serde: Serde[Any] | None,
        grace_ms: int, *, logging: bool = True, open_bytes: OpenBytesStore = open_in_memory,
    ) -> None:
        super().__init__(name, key_serde, value_serde, logging=logging, open_bytes=open_bytes)
        self._grace = grace_ms
        self._entries: dict[bytes, BufferValue | None] = {}
        #: Row keys changed since the last `advance`.
        self._changed: dict[bytes, None] = {}
        self._stream_time = -1
        self._sequence = 0
        #: The number of buffered records.
        self.num_records = 0

    def _open_rows(self) -> None:
        self._rows = self._open_bytes(self.name)
        self._order = OrderedKeys(self._rows)
        self.num_records = self._rows.count()

    def put(self, key: Any, value: Any, context: RecordContext) -> bool:
        """Buffer a record. Returns False if it is late already and must be joined at once."""
        if key is None:
            raise TypeError(
                f"The join buffer {self.name} cannot hold a null key. A left join with a grace "
                "period needs keys: filter null keys out, or join without a grace period."
            )
        timestamp = context.timestamp
        if self._stream_time - self._grace > timestamp:
            return False
        self._sequence = (self._sequence + 1) & _SEQUENCE_MASK
        self._record.headers = context.headers
        row_key = b"".join((
            b"\x00", _TIME.pack(timestamp), self._key_to_bytes(key),
            _SEQUENCE.pack(self._sequence),
        ))
        buffered = BufferValue(None, None, self._value_to_bytes(value), context)
        self._add(row_key, buffered)
        self._stream_time = max(self._stream_time, timestamp)
        if self._logging:
            self._log(row_key, encode_buffer_value(buffered, 0), NO_HEADERS)
        return True

    def _topic_of_serdes(self, context: StoreContext) -> str:
        # Kafka Streams passes the name of the join, not that of the changelog.
        return self.name.removesuffix("-Buffer")

    def evict(self, emit: Emit) -> None:
        """Emit, in order, every record that is at least the grace period behind stream time."""
        limit = self._stream_time - self._grace
        if limit < 0:
            return
        order = self._order
        last = _TIME.pack(limit)
        while (row_key := order.head) is not None and row_key[1:9] <= last:
            buffered = self._find(row_key)
            if buffered is not None:
                new = buffered.new
                self._record.headers = buffered.context.headers
                emit(
                    self._key_from_bytes(row_key[9:-4]),
                    None if new is None else self._value_from_bytes(new), buffered.context,
                )
                self._remove(row_key)
                if self._logging:
                    self._log(row_key, None, NO_HEADERS)
            order.drop_first()

    def commit(self) -> None:
        """Nothing to do: every change is logged when it is made."""

    def advance(self) -> None:
        """Write the changes to the committed rows."""
        entries = self._entries
        if self._changed:
            self._rows.write([
                (row_key, None if entry is None else encode_buffer_value(entry, 0))
                for row_key in self._changed for entry in (entries[row_key],)
            ])
            self._changed.clear()

    def restore(self, key: bytes, value: bytes | None, timestamp: int, headers: Headers) -> None:
        """Apply one changelog record without logging it."""
        self._stream_time = max(self._stream_time, _TIME.unpack_from(key, 1)[0])
        if self._find(key) is not None:
            self._remove(key)
        if value is not None:
            self._add(key, decode_buffer_value(value)[0])

    def _find(self, row_key: bytes) -> BufferValue | None:
        if row_key in self._entries:
            return self._entries[row_key]
        row = self._rows.get(row_key)
        return None if row is None else decode_buffer_value(row)[0]

    def _add(self, row_key: bytes, buffered: BufferValue) -> None:
        self._entries[row_key] = buffered
        self._changed[row_key] = None
        self._order.add(row_key)
        self.num_records += 1

    def _remove(self, row_key: bytes) -> None:
        self._entries[row_key] = None
        self._changed[row_key] = None
        self.num_records -= 1

    def clocks(self) -> dict[str, int]:
        """Stream time and the last sequence number, so that equal keys never collide."""
        return {"stream-time": self._stream_time, "sequence": self._sequence}

    def set_clocks(self, clocks: Mapping[str, int]) -> None:
        """Set stream time and sequence number of an earlier batch."""
        self._stream_time = max(self._stream_time, clocks.get("stream-time", -1))
        self._sequence = clocks.get("sequence", self._sequence)

    def close(self) -> None:
        """Discard the changes since the last `advance`."""
        self._open = False
        self._entries.clear()
        self._changed.clear()


@dataclass(frozen=True, slots=True)
class JoinGraceBufferBuilder:
    """Builds the buffer of one stream-table join with a grace period."""

    name: str
    grace_ms: int
    key_serde: Serde[Any] | None = None
    value_serde: Serde[Any] | None = None
    logging_enabled: bool = True
    log_config: Mapping[str, str] = field(default_factory=dict)

    @property
    def keeps_rows(self) -> bool:
        """True: `build` takes the bytes store that holds the rows."""
        return True

    def build(self, open_bytes: OpenBytesStore = open_in_memory) -> JoinGraceBuffer:
        """Build a buffer for one task."""
        return JoinGraceBuffer(
            self.name, self.key_serde, self.value_serde, self.grace_ms,
            logging=self.logging_enabled, open_bytes=open_bytes,
        )
