"""The base classes of typed stores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from penstock.errors import ConfigException, InvalidStateStoreException, StreamsException
from penstock.record import Headers, PartitionColumns
from penstock.serdes.builtin import Serde
from penstock.serdes.headers import ReadOnlyHeaders, RecordHeaders
from penstock.serdes.store import store_serde
from penstock.stores.api.store import FlushListener, StoreContext
from penstock.stores.api.suppliers import KeyValueSupplier, SessionSupplier, WindowSupplier
from penstock.stores.bytes.changelog_layer import ChangelogLayer
from penstock.stores.bytes.key_schema import KeySchema, row_keys_from_changelog
from penstock.stores.bytes.rows import KeyValueRows, LruRows, RowLayer
from penstock.stores.bytes.store import OpenBytesStore
from penstock.stores.bytes.value_formats import PLAIN, Converters, ValueFormat, converters_between
from penstock.stores.bytes.windowed_rows import WindowedRows
from penstock.stores.cache.cache_layer import CacheLayer, RowListener
from penstock.stores.typed.row_access import ValueCodec


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """The settings of a store that do not depend on its kind."""

    key_serde: Serde[Any] | None
    value_serde: Serde[Any] | None
    caching: bool
    logging: bool
    open_bytes: OpenBytesStore = field(compare=False)


class TypedStore:
    """A store of typed keys and values.

    `_rows` is the uppermost layer below the store. Before `init` and after `close`, every access
    raises `InvalidStateStoreException`; an open store pays nothing for this check.
    """

    #: True for `VersionedKeyValueStore`.
    is_versioned = False
    #: The end of `metrics_scope`.
    _scope_suffix = ""
    #: The functions that read and write values. Set by `init`.
    _value_codec: ValueCodec
    #: The headers of the row that is read or written, in a store with headers. In other stores a
    #: serde sees the headers of the current record.
    _row_headers: RecordHeaders | None = None

    def __init__(self, name: str, persistent: bool, options: StoreOptions) -> None:
        self.name = name
        self.persistent = persistent
        self._options = options
        self._rows: Any = _ClosedRows(name, "is not open yet")
        self._serialize_key: Callable[[Any], bytes] = self._refuse
        self._deserialize_key: Callable[[bytes], Any] = self._refuse
        self._serialize_value: Callable[[Any], bytes] = self._refuse
        self._deserialize_value: Callable[[bytes], Any] = self._refuse
        #: Fast functions for keys of the usual type. If one raises, use `row_of` instead.
        self.write_key: Callable[[Any], bytes] = self._refuse
        self.read_key: Callable[[bytes], Any] = self._refuse

    def __repr__(self) -> str:
        return f"<{type(self).__name__} '{self.name}', {'open' if self.is_open else 'not open'}>"

    @property
    def is_open(self) -> bool:
        """True between `init` and `close`."""
        return not isinstance(self._rows, _ClosedRows)

    @property
    def is_caching(self) -> bool:
        """Whether writes stay in the record cache until the next flush."""
        return False

    @property
    def metrics_scope(self) -> str:
        """The kind of the store in the tags of its metrics, such as `lmdb-window`."""
        return ("lmdb" if self.persistent else "in-memory") + self._scope_suffix

    @property
    def plain(self) -> Any:
        """The store as operators use it, without headers."""
        return self

    def set_flush_listener(self, listener: FlushListener, send_old_values: bool) -> bool:
        """Set the listener for flushed changes. Returns False if the store has no cache."""
        return False

    def commit(self) -> None:
        """Flush the cache, if the store has one."""

    def close(self) -> None:
        """Close the store."""
        self._rows = _ClosedRows(self.name, "is closed")

    def serialize_key(self, key: Any) -> bytes:
        """Return the bytes of a key, as its changelog has them; without a window."""
        return self._key(key)

    # ------------------------------------------------------------------ for subclasses

    def _init_serdes(self, context: StoreContext) -> None:
        topic = context.changelog_topic(self.name)
        key = _serde(self._options.key_serde, context.default_key_serde, "key", self.name)
        value = _serde(self._options.value_serde, context.default_value_serde, "value", self.name)
        headers = ReadOnlyHeaders(context.current)
        key = key.for_store(topic, True).with_headers_of(headers)
        value = value.for_store(topic, False).with_headers_of(self._row_headers or headers)
        key = store_serde(key, self.name, "key")
        value = store_serde(value, self.name, "value")
        self._serialize_key = key.serialize
        self._deserialize_key = key.deserialize
        self._serialize_value = value.serialize
        self._deserialize_value = value.deserialize
        self.write_key = key.writer
        self.read_key = key.reader
        self._value_codec = ValueCodec(
            value.serialize, value.deserialize, value.writer, value.reader,
            {"long": int, "double": float}.get(value.name), value.plain_json,
        )

    def _key(self, key: Any) -> bytes:
        if key is None:
            raise null_key(self.name)
        return self._serialize_key(key)

    def _refuse(self, _: object) -> NoReturn:
        raise InvalidStateStoreException(f"Store '{self.name}' is not open.")


class LayeredStore(TypedStore, ABC):
    """A typed store over the row layers: rows, changelog layer, cache layer.

    `init` of a subclass creates the rows and stacks the layers on them.
    """

    #: The format of the values that pass through the layers.
    _format: ValueFormat = PLAIN

    def __init__(self, name: str, persistent: bool, options: StoreOptions) -> None:
        super().__init__(name, persistent, options)
        self._base_rows: KeyValueRows | WindowedRows | None = None
        self._kept_format: ValueFormat | None = None
        self._cache_layer: CacheLayer | None = None

    @property
    def is_caching(self) -> bool:
        """Whether writes stay in the record cache until the next flush."""
        return self._cache_layer is not None

    @property
    def cache_layer(self) -> CacheLayer | None:
        """The part of the record cache that belongs to this store, if it has one."""
        return self._cache_layer

    def num_rows(self) -> int:
        """Return the approximate number of rows, without unflushed rows of the cache."""
        if self._base_rows is None:
            self._refuse(None)
        return self._base_rows.overlay.count()

    def set_flush_listener(self, listener: FlushListener, send_old_values: bool) -> bool:
        """Set the listener for flushed changes. Returns False if the store has no cache.

        The store must be open: `init` decides whether it has a cache.
        """
        if not self.is_open:
            self._refuse(listener)
        if self._cache_layer is None:
            return False
        self._cache_layer.set_listener(self._row_listener(listener), send_old_values)
        return True

    def commit(self) -> None:
        """Flush the cache."""
        if self._cache_layer is not None:
            self._cache_layer.flush()

    def advance(self) -> None:
        """Apply the writes to the committed rows."""
        if self._base_rows is not None:
            self._base_rows.advance()

    def restore(self, key: bytes, value: bytes | None, timestamp: int, headers: Headers) -> None:
        """Apply one changelog record. Bypasses the changelog and the cache."""
        rows, kept_format = self._base_rows, self._kept_format
        if rows is None or kept_format is None:
            self._refuse(key)
        stored = None if value is None else kept_format.from_changelog(value, timestamp, headers)
        row_key = rows.key_schema.from_changelog(key) if isinstance(rows, WindowedRows) else key
        rows.restore(row_key, stored)

    def restore_all(self, records: PartitionColumns) -> None:
        """Apply many changelog records. Records without a key are skipped."""
        rows, kept_format = self._base_rows, self._kept_format
        if rows is None or kept_format is None:
            self._refuse(records)
        keys = records.keys
        stored = kept_format.all_from_changelog(records)
        if None in keys:
            stored = [value for key, value in zip(keys, stored, strict=True) if key is not None]
        row_keys = [key for key in keys if key is not None]
        if isinstance(rows, WindowedRows):
            row_keys = row_keys_from_changelog(rows.key_schema, row_keys)
        rows.restore_all(row_keys, stored)

    def resume_restore(
        self, restored: Mapping[str, int], committed: Mapping[str, int] | None
    ) -> None:
        """Continue a restore whose earlier records are in the rows already.

        `restored` is the result of `restored_clocks` after those records. `committed` is the result
        of `clocks` at the commit that the restore leads to; None if there is no commit yet.
        """
        if not isinstance(self._base_rows, LruRows):
            self.set_clocks(restored)
        elif committed is not None:
            self.set_clocks(committed)

    def restored_clocks(self) -> dict[str, int]:
        """State of the restore that the rows do not hold; the argument of `resume_restore`."""
        return {} if isinstance(self._base_rows, LruRows) else self.clocks()

    def clocks(self) -> dict[str, int]:
        """The observed stream time, if the store has one."""
        return {} if self._base_rows is None else self._base_rows.clocks()

    def set_clocks(self, clocks: Mapping[str, int]) -> None:
        """Set the state of an earlier batch."""
        if self._base_rows is not None:
            self._base_rows.set_clocks(clocks)

    def close(self) -> None:
        """Discard the cache and release the rows."""
        super().close()
        if self._cache_layer is not None:
            self._cache_layer.clear()
            self._cache_layer = None
        if self._base_rows is not None:
            self._base_rows.close()
            self._base_rows = None

    # ------------------------------------------------------------------ for subclasses

    @abstractmethod
    def _row_listener(self, listener: FlushListener) -> RowListener:
        """Adapt a listener of typed changes to the flushed rows of the cache layer."""

    def _converters(
        self, supplier: KeyValueSupplier | WindowSupplier | SessionSupplier
    ) -> Converters | None:
        """The converters to the format that the supplier keeps. In memory, nothing is converted."""
        return converters_between(self._format, supplier.format) if supplier.persistent else None

    def _stack_layers(
        self, context: StoreContext, rows: KeyValueRows | WindowedRows, kept_format: ValueFormat
    ) -> None:
        """Put the changelog layer and the cache layer on the rows, as the options say."""
        options = self._options
        key_schema: KeySchema | None = rows.key_schema if isinstance(rows, WindowedRows) else None
        top: RowLayer = rows
        if options.logging:
            top = changelog = ChangelogLayer(rows, self.name, context, self._format, key_schema)
            # Only a plain LRU map logs its evictions, as in Kafka Streams.
            if isinstance(rows, LruRows) and self._format.name == "plain":
                changelog.log_evictions(rows)
        if options.caching and context.cache.max_bytes > 0:
            top = self._cache_layer = CacheLayer(top, context.cache, context.current, key_schema)
        self._base_rows = rows
        self._kept_format = kept_format
        self._rows = top
        self._bind()

    def _bind(self) -> None:
        """Create the functions that operators call for every record, with everything bound."""

    def _encode(self, value: Any) -> bytes | None:
        return self._serialize_value(value)

    def _decode(self, stored: bytes) -> Any:
        return self._deserialize_value(stored)

    def _split(self, stored: bytes) -> tuple[Any, int | None]:
        """The plain value and its timestamp; None if the store keeps no timestamps."""
        return self._deserialize_value(stored), None


class _ClosedRows:
    """Replaces the layers of a store that is not open."""

    def __init__(self, name: str, reason: str) -> None:
        self._message = f"Store '{name}' {reason}. Get it again from the task or the application."

    def __getattr__(self, _: str) -> NoReturn:
        raise InvalidStateStoreException(self._message)


def null_key(store: str) -> TypeError:
    """The error for a key of None."""
    return TypeError(f"The key for store '{store}' is None. Store keys must not be None.")


def _serde(
    given: Serde[Any] | None, default: Serde[Any] | None, which: str, store: str
) -> Serde[Any]:
    serde = given or default
    if serde is None:
        cause = ConfigException(
            f"The store has no {which} serde and no default is configured. "
            f"Give the store builder a serde, or set default_{which}_serde in StreamsConfig."
        )
        raise StreamsException(
            f"Failed to initialize {which} serdes for store {store}. {cause}"
        ) from cause
    return serde
