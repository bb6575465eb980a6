"""What all typed stores share: opening, layers, serdes, listeners, clocks, closing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from penstock.errors import ConfigException, InvalidStateStoreException, StreamsException
from penstock.record import Headers, PartitionColumns
from penstock.serdes.builtin import Serde
from penstock.stores.api.store import FlushListener, StoreContext
from penstock.stores.bytes.changelog_layer import ChangelogLayer
from penstock.stores.bytes.key_schema import KeySchema, rows_from_changelog
from penstock.stores.bytes.rows import KeyValueRows, LruRows, Rows, WindowedRows
from penstock.stores.bytes.store import OpenBytesStore
from penstock.stores.bytes.value_formats import ValueFormat
from penstock.stores.cache.cache_layer import CacheLayer, RowListener
from penstock.stores.typed.row_access import Serdes


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """How a store is to be built, apart from what is in it."""

    key_serde: Serde[Any] | None
    value_serde: Serde[Any] | None
    caching: bool
    logging: bool
    open_bytes: OpenBytesStore = field(compare=False)


class TypedStore:
    """A store of typed keys and values over the byte layers.

    The layers are put together in `init`; `_rows` is the uppermost one. Before `init` and after
    `close` every access ends in `InvalidStateStoreException`, at no cost in between.
    """

    #: True if the store keeps versions (`VersionedKeyValueStore`).
    is_versioned = False

    def __init__(self, name: str, persistent: bool, options: StoreOptions) -> None:
        self.name = name
        self.persistent = persistent
        self._options = options
        self._kept: KeyValueRows | WindowedRows | None = None
        self._kept_format: ValueFormat | None = None
        self._rows: Any = _Closed(name, "is not open yet")
        self._cached: CacheLayer | None = None
        self._serialize_key: Callable[[Any], bytes] = self._refuse
        self._deserialize_key: Callable[[bytes], Any] = self._refuse
        self._serialize_value: Callable[[Any], bytes] = self._refuse
        self._deserialize_value: Callable[[bytes], Any] = self._refuse
        #: Write and read a key as it usually is; what they raise says only to ask `row_of`.
        self.write_key: Callable[[Any], bytes] = self._refuse
        self.read_key: Callable[[bytes], Any] = self._refuse
        self._fast_value: tuple[Callable[[Any], bytes], Callable[[bytes], Any]] = (
            self._refuse, self._refuse
        )
        #: int or float if that is what the values are, in 8 bytes each.
        self._number: type | None = None
        self._plain_json = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} '{self.name}', {'open' if self.is_open else 'not open'}>"

    @property
    def is_open(self) -> bool:
        """True between `init` and `close`."""
        return not isinstance(self._rows, _Closed)

    def commit(self) -> None:
        """Let the cache go."""
        if self._cached is not None:
            self._cached.flush()

    def advance(self) -> None:
        """The writes are committed."""
        if self._kept is not None:
            self._kept.advance()

    def restore(self, key: bytes, value: bytes | None, timestamp: int, headers: Headers) -> None:
        """Take one record of the changelog; nothing is logged or cached."""
        kept, kept_format = self._kept, self._kept_format
        if kept is None or kept_format is None:
            self._refuse(key)
        stored = None if value is None else kept_format.from_log(value, timestamp, headers)
        row = kept.layout.from_changelog(key) if isinstance(kept, WindowedRows) else key
        kept.restore(row, stored)

    def restore_all(self, records: PartitionColumns) -> None:
        """Take many records of the changelog; those without a key are left out."""
        kept, kept_format = self._kept, self._kept_format
        if kept is None or kept_format is None:
            self._refuse(records)
        keys = records.keys
        stored = kept_format.all_from_log(records)
        if None in keys:
            stored = [value for key, value in zip(keys, stored, strict=True) if key is not None]
        present = [key for key in keys if key is not None]
        if isinstance(kept, WindowedRows):
            present = rows_from_changelog(kept.layout, present)
        kept.restore_all(present, stored)

    def resume_restore(
        self, restored: Mapping[str, int], committed: Mapping[str, int] | None
    ) -> None:
        """Take more records into rows that others were restored into.

        `restored` is what `restored_clocks` gave after those, `committed` what `clocks` gave at
        the commit that the restoring leads to (None: there is none yet).
        """
        if not isinstance(self._kept, LruRows):
            self.set_clocks(restored)
        elif committed is not None:
            self.set_clocks(committed)

    def restored_clocks(self) -> dict[str, int]:
        """What the rows do not tell about the records that were restored into them."""
        return {} if isinstance(self._kept, LruRows) else self.clocks()

    def clocks(self) -> dict[str, int]:
        """The observed stream time, if the store has one."""
        return {} if self._kept is None else self._kept.clocks()

    def set_clocks(self, clocks: Mapping[str, int]) -> None:
        """Go on from an earlier batch."""
        if self._kept is not None:
            self._kept.set_clocks(clocks)

    @property
    def is_caching(self) -> bool:
        """Whether updates wait in the record cache."""
        return self._cached is not None

    def set_flush_listener(self, listener: FlushListener, send_old_values: bool) -> bool:
        """Let someone hear of what leaves the cache; False if there is none to hear of.

        Only an open store knows whether it has a cache.
        """
        if not self.is_open:
            self._refuse(listener)
        if self._cached is None:
            return False
        self._cached.set_listener(self._row_listener(listener), send_old_values)
        return True

    def close(self) -> None:
        """Forget the cache and release the rows."""
        self._rows = _Closed(self.name, "is closed")
        if self._cached is not None:
            self._cached.clear()
            self._cached = None
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    # ------------------------------------------------------------------ for the stores themselves

    def _open(
        self, context: StoreContext, kept: KeyValueRows | WindowedRows,
        formats: tuple[ValueFormat, ValueFormat],
    ) -> None:
        """Put the layers on the rows. `formats`: of what goes through them, and of what is kept."""
        options = self._options
        layout: KeySchema | None = kept.layout if isinstance(kept, WindowedRows) else None
        rows: Rows = kept
        if options.logging:
            logged = ChangelogLayer(kept, self.name, context, formats[0], layout)
            # Only a plain LRU store logs what it lets go: a timestamped one hides it from the log.
            if isinstance(kept, LruRows) and formats[0].name == "plain":
                logged.watch_evictions(kept)
            rows = logged
        if options.caching and context.cache.max_bytes > 0:
            self._cached = CacheLayer(rows, context.cache, context.current, layout)
            rows = self._cached
        self._kept = kept
        self._kept_format = formats[1]
        self._rows = rows

    def _init_serdes(self, context: StoreContext) -> None:
        topic = context.changelog_topic(self.name)
        key = _serde(self._options.key_serde, context.default_key_serde, "key", self.name)
        value = _serde(self._options.value_serde, context.default_value_serde, "value", self.name)
        key = key.for_topic(topic, True)
        value = value.for_topic(topic, False)
        self._serialize_key = key.serialize
        self._deserialize_key = key.deserialize
        self._serialize_value = value.serialize
        self._deserialize_value = value.deserialize
        self._number = {"long": int, "double": float}.get(value.name)
        self._plain_json = value.plain_json
        #: Fast functions: what they refuse is for the careful ones.
        self.write_key = key.writer
        self.read_key = key.reader
        self._fast_value = value.writer, value.reader

    def _serdes(self) -> Serdes:
        return (
            self._serialize_value, self._deserialize_value, *self._fast_value, self._number,
            self._plain_json,
        )

    def _row_listener(self, listener: FlushListener) -> RowListener:
        """Turns what leaves the cache into typed keys and plain values, if there is a cache."""
        raise NotImplementedError

    def _key(self, key: Any) -> bytes:
        if key is None:
            raise null_key(self.name)
        return self._serialize_key(key)

    def _refuse(self, _: object) -> NoReturn:
        raise InvalidStateStoreException(f"Store '{self.name}' is not open.")


class _Closed:
    """Stands in for the layers of a store that cannot be asked."""

    def __init__(self, name: str, why: str) -> None:
        self._message = f"Store '{name}' {why}. Ask the task or the application for it again."

    def __getattr__(self, _: str) -> NoReturn:
        raise InvalidStateStoreException(self._message)


def null_key(store: str) -> TypeError:
    """The error for a key of None."""
    return TypeError(f"The key for store '{store}' is None. A store has no row without a key.")


def _serde(
    given: Serde[Any] | None, default: Serde[Any] | None, which: str, store: str
) -> Serde[Any]:
    serde = given or default
    if serde is None:
        cause = ConfigException(
            f"No {which} serde was given and there is no default one. "
            f"Give one where the store is described, or set default_{which}_serde in StreamsConfig."
        )
        raise StreamsException(
            f"Failed to initialize {which} serdes for store {store}. {cause}"
        ) from cause
    return serde
