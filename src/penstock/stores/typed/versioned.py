"""The versioned key-value store: all versions of each key within the history retention."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Generic, TypeVar

from penstock.record import NO_HEADERS, Headers, PartitionColumns
from penstock.stores.api.results import VersionedRecord
from penstock.stores.api.store import StoreContext
from penstock.stores.api.suppliers import VersionedSupplier
from penstock.stores.bytes.key_schema import MAX_TIME
from penstock.stores.bytes.overlay import Overlay
from penstock.stores.bytes.versioned_rows import (
    NOT_PUT,
    VALID_TO_UNDEFINED,
    Version,
    VersionedRows,
)
from penstock.stores.typed.store import StoreOptions, TypedStore
from penstock.windows import instant_ms

K = TypeVar("K")
V = TypeVar("V")
Instant = int | datetime

MIN_TIME = -(2**63)


class VersionedKeyValueStore(TypedStore, Generic[K, V]):
    """Versions by key and time. Never cached, because the order of writes matters.

    It logs its own writes: a versioned store has no layers.

    Example:
        >>> from penstock import Stores
        >>> from penstock.testing import MockProcessorContext
        >>> supplier = Stores.persistent_versioned_key_value_store("prices", 60_000)
        >>> builder = Stores.versioned_key_value_store_builder(supplier, str, int)
        >>> store = builder.with_logging_disabled().build()
        >>> store.init(MockProcessorContext().state_store_context)
        >>> store.put("tea", 3, timestamp=1_000)
        -1
        >>> store.put("tea", 4, timestamp=2_000)
        -1
        >>> store.get("tea").value, store.get("tea", 1_500).value
        (4, 3)
    """

    is_versioned = True

    #: `put` returns this for a version that is the latest.
    PUT_RETURN_CODE_VALID_TO_UNDEFINED = VALID_TO_UNDEFINED
    #: `put` returns this for a version that is older than the history retention.
    PUT_RETURN_CODE_NOT_PUT = NOT_PUT

    def __init__(self, supplier: VersionedSupplier, options: StoreOptions) -> None:
        super().__init__(supplier.name, supplier.persistent, options)
        self._supplier = supplier
        self.history_retention_ms = supplier.history_retention_ms
        self._versions: VersionedRows | None = None
        self._context: StoreContext | None = None

    def init(self, context: StoreContext) -> None:
        """Open the store in a task.

        Args:
            context: The context of the task.
        """
        self._init_serdes(context)
        supplier = self._supplier
        self._versions = VersionedRows(
            Overlay(self._options.open_bytes(self.name)), supplier.history_retention_ms,
            supplier.segment_interval_ms, lambda reason: context.drop(reason, self.name),
        )
        self._rows = self._versions
        self._context = context

    def put(self, key: K, value: V | None, timestamp: Instant) -> int:
        """Add a version; None adds a deletion.

        Returns the time up to which the version is valid, -1 if it is the latest, and -2**63 if it
        was not put.

        Args:
            key: The key.
            value: The value; None is a deletion.
            timestamp: The time from which the version is valid.

        Returns:
            The end of the version's validity: a timestamp, or a negative number if it is the latest
                version or was not stored.

        Kafka: VersionedKeyValueStore#put
        """
        time = instant_ms(timestamp)
        raw_key = self._key(key)
        raw = None if value is None else self._serialize_value(value)
        valid_to: int = self._rows.put(raw_key, raw, time)
        self._log(raw_key, raw, time)
        return valid_to

    def delete(self, key: K, timestamp: Instant) -> VersionedRecord[V] | None:
        """Add a deletion. Returns the version that was valid at that time.

        Args:
            key: The key.
            timestamp: The time from which the version is valid.

        Returns:
            The version, or None if there was none.

        Kafka: VersionedKeyValueStore#delete
        """
        time = instant_ms(timestamp)
        raw_key = self._key(key)
        version = self._rows.delete(raw_key, time)
        self._log(raw_key, None, time)
        return self._record(version)

    def get(self, key: K, as_of: Instant | None = None) -> VersionedRecord[V] | None:
        """Return the latest version, or the version at a time; without `valid_to`, as in Kafka.

        Args:
            key: The key.
            as_of: The time of the version; None for the latest.

        Kafka: VersionedKeyValueStore#get
        """
        return self._record(self._version(key, as_of))

    def get_version(self, key: K, as_of: Instant | None = None) -> VersionedRecord[V] | None:
        """`get` with `valid_to` if the version is not the latest (`VersionedKeyQuery`).

        Args:
            key: The key.
            as_of: The time of the version; None for the latest.

        Returns:
            The version, or None if there is none.
        """
        return self._full_record(self._version(key, as_of))

    def versions(
        self, key: K, time_from: Instant | None = None, time_to: Instant | None = None,
        reverse: bool = False,
    ) -> Iterator[VersionedRecord[V]]:
        """Return all versions valid at some time in [from, to], by time (`MultiVersionedKeyQuery`).

        Args:
            key: The key.
            time_from: The earliest time; None for no bound.
            time_to: The latest time; None for no bound.
            reverse: Whether the last one comes first.
        """
        low = MIN_TIME if time_from is None else instant_ms(time_from)
        high = MAX_TIME if time_to is None else instant_ms(time_to)
        if low > high:
            raise ValueError(f"time_from ({low}) must not be after time_to ({high}).")
        versions = self._rows.versions(self._key(key), low, high, reverse)
        full_record = self._full_record
        return (record for version in versions if (record := full_record(version)) is not None)

    def __getitem__(self, key: K) -> V:
        record = self.get(key)
        if record is None:
            raise KeyError(key)
        return record.value

    def __contains__(self, key: object) -> bool:
        return self._rows.get(self._key(key)) is not None

    def restore(self, key: bytes, value: bytes | None, timestamp: int, headers: Headers) -> None:
        """Apply one changelog record without logging it.

        Args:
            key: The key.
            value: The value; None is a deletion.
            timestamp: The time from which the version is valid.
            headers: The headers: pairs of a name and bytes or None.
        """
        self._rows.restore(key, value, timestamp, headers)

    def restore_all(self, records: PartitionColumns) -> None:
        """Apply many changelog records one by one, because each depends on those before it.

        Args:
            records: The records.
        """
        restore = self._rows.restore
        for key, value, time in zip(
            records.keys, records.values, records.timestamps, strict=True
        ):
            if key is not None:
                restore(key, value, time, NO_HEADERS)

    def resume_restore(
        self, restored: Mapping[str, int], committed: Mapping[str, int] | None
    ) -> None:
        """Continue a restore. The committed stream time does not apply to its records.

        Args:
            restored: The result of `restored_clocks`.
            committed: The result of `clocks` at the commit; None if there is none.
        """
        if self._versions is not None:
            self._versions.resume_restore(restored)

    def restored_clocks(self) -> dict[str, int]:
        """Return the stream time of the restored records."""
        return self.clocks()

    def advance(self) -> None:
        """Apply the writes to the committed rows."""
        if self._versions is not None:
            self._versions.advance()

    def clocks(self) -> dict[str, int]:
        """Return the observed stream time."""
        return {} if self._versions is None else self._versions.clocks()

    def set_clocks(self, clocks: Mapping[str, int]) -> None:
        """Set the stream time of an earlier batch.

        Args:
            clocks: The result of `clocks` in an earlier batch.
        """
        if self._versions is not None:
            self._versions.set_clocks(clocks)

    def close(self) -> None:
        """Release the versions."""
        super().close()
        if self._versions is not None:
            self._versions.close()
            self._versions = None

    def _version(self, key: K, as_of: Instant | None) -> Version | None:
        raw_key = self._key(key)
        version: Version | None
        if as_of is None:
            version = self._rows.get(raw_key)
        else:
            version = self._rows.get_as_of(raw_key, instant_ms(as_of))
        return version

    def _record(self, version: Version | None) -> VersionedRecord[V] | None:
        record = self._full_record(version)
        return None if record is None else VersionedRecord(record.value, record.timestamp)

    def _full_record(self, version: Version | None) -> VersionedRecord[V] | None:
        if version is None:
            return None
        raw, valid_from, valid_to = version
        value = self._deserialize_value(raw)
        return None if value is None else VersionedRecord(value, valid_from, valid_to)

    def _log(self, key: bytes, value: bytes | None, time: int) -> None:
        if self._options.logging and self._context is not None:
            self._context.log_change(self.name, key, value, time, NO_HEADERS)
