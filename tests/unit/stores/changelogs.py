"""In-memory changelogs, stores of every kind, and replicas in a directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from penstock import Serdes, Stores
from penstock.record import NO_HEADERS, Headers, PartitionColumns
from penstock.stores.bytes.store import OpenBytesStore
from penstock.stores.replica.protocol import ChangelogStart, ChangelogTruncated, ReplicaStore
from penstock.stores.replica.task_replica import TaskReplica
from unit.stores.fakes import FakeContext

STRING = Serdes.string()
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)

#: key, value, timestamp, headers
Change = tuple[bytes, bytes | None, int, Headers]

KINDS: dict[str, Callable[[], Any]] = {
    "key_value": lambda: Stores.key_value_store_builder(
        Stores.persistent_key_value_store("s"), STRING, STRING),
    "timestamped": lambda: Stores.timestamped_key_value_store_builder(
        Stores.persistent_timestamped_key_value_store("s"), STRING, STRING),
    "in_memory": lambda: Stores.timestamped_key_value_store_builder(
        Stores.in_memory_key_value_store("s"), STRING, STRING),
    "headers": lambda: Stores.timestamped_key_value_store_with_headers_builder(
        Stores.persistent_timestamped_key_value_store_with_headers("s"), STRING, STRING),
    "window": lambda: Stores.timestamped_window_store_builder(
        Stores.persistent_timestamped_window_store("s", 3 * MINUTE, SECOND), STRING, STRING),
    "in_memory_window": lambda: Stores.window_store_builder(
        Stores.in_memory_window_store("s", 3 * MINUTE, SECOND), STRING, STRING),
    "duplicates": lambda: Stores.window_store_builder(
        Stores.persistent_window_store("s", 3 * MINUTE, SECOND, retain_duplicates=True),
        STRING, STRING),
    "session": lambda: Stores.session_store_builder(
        Stores.persistent_session_store("s", 3 * MINUTE), STRING, STRING),
    "in_memory_session": lambda: Stores.session_store_builder(
        Stores.in_memory_session_store("s", 3 * MINUTE), STRING, STRING),
    "versioned": lambda: Stores.versioned_key_value_store_builder(
        Stores.persistent_versioned_key_value_store("s", 3 * MINUTE), STRING, STRING),
}


def builder_of(kind: str) -> Callable[[OpenBytesStore], Any]:
    """Returns a function that builds and opens a store of a kind."""

    def build(open_bytes: OpenBytesStore) -> Any:
        store = KINDS[kind]().build(open_bytes)
        store.init(FakeContext())
        return store

    return build


def replica_store(kind: str, *, logged: bool = True) -> ReplicaStore:
    return ReplicaStore("s", logged, builder_of(kind))


@dataclass
class Batch:
    next_offset: int
    tombstones_removed_to: int
    records: PartitionColumns

    def __len__(self) -> int:
        return len(self.records)

    def columns(self) -> PartitionColumns:
        return self.records


@dataclass
class MemoryChangelogs:
    """Satisfies `Changelogs`. `records`: store -> (offset, change), with gaps after compaction."""

    records: dict[str, list[tuple[int, Change]]] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    starts: dict[str, int] = field(default_factory=dict)
    removed: dict[str, int] = field(default_factory=dict)
    batch_size: int = 7
    #: (store, start) of every read.
    reads: list[tuple[str, int]] = field(default_factory=list)
    #: A reader that read last before this time may have missed tombstones.
    tombstones_expired_at: int = 0
    #: Called before every batch.
    before_batch: Callable[[], None] = lambda: None

    def add(self, store: str, *changes: Change) -> int:
        """Append changes. Returns the end offset."""
        for change in changes:
            end = self.ends.get(store, 0)
            self.records.setdefault(store, []).append((end, change))
            self.ends[store] = end + 1
        return self.ends.get(store, 0)

    def put(self, store: str, key: str, value: str | None, timestamp: int = 0) -> int:
        raw = None if value is None else value.encode()
        return self.add(store, (key.encode(), raw, timestamp, NO_HEADERS))

    def compact(self, store: str, *, tombstones: bool = False) -> None:
        """Keep the newest record of each key; with `tombstones`, remove tombstones too."""
        newest = {change[0]: offset for offset, change in self.records[store]}
        self.records[store] = [
            (offset, change) for offset, change in self.records[store]
            if newest[change[0]] == offset and not (tombstones and change[1] is None)
        ]
        if tombstones:
            self.removed[store] = self.ends[store]

    def start(self, store: str) -> ChangelogStart:
        return ChangelogStart(self.starts.get(store, 0), self.removed.get(store, 0))

    def read(
        self, store: str, start: int, end: int, since: int | None = None
    ) -> Iterator[Batch]:
        self.reads.append((store, start))
        if since is not None and since < self.tombstones_expired_at:
            raise ChangelogTruncated
        while start < end:
            self.before_batch()
            if start < self.starts.get(store, 0):
                raise ChangelogTruncated
            found = [
                (offset, change) for offset, change in self.records.get(store, ())
                if start <= offset < end
            ][: self.batch_size]
            if not found:
                return
            start = found[-1][0] + 1
            keys, values, times, headers = zip(*(change for _, change in found), strict=True)
            yield Batch(start, self.removed.get(store, 0), PartitionColumns(
                topic=store, partition=0, offsets=[offset for offset, _ in found],
                timestamps=list(times), keys=list(keys), values=list(values),
                headers=list(headers),
            ))


class ReplicaDirectory:
    """Opens replicas in one directory. Each represents a process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open: list[TaskReplica] = []

    def open(self, *stores: ReplicaStore, log_id: str = "log") -> TaskReplica:
        stores = stores or (replica_store("timestamped"),)
        self._open.append(TaskReplica.open(self.path, log_id, stores))
        return self._open[-1]

    def close(self) -> None:
        for replica in self._open:
            replica.close()


def rows_of(replica: TaskReplica, name: str = "s") -> dict[bytes, bytes]:
    with replica.snapshot() as snapshot:
        return dict(snapshot.open_bytes(name).scan(None, None))
