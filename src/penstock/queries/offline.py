"""`OfflineSource`: the stores of an application, read without its topology and its driver.

The log describes the stores of an application, and a replica describes its rows. So the files on
this host can be read by any process. Commits that a replica does not contain yet are read from the
changelog and applied in memory. The store of a global table is read from its topic. Keys and values
are bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from penstock.config import StreamsConfig
from penstock.engine.layout.internal_topics import changelog_topic, tasks_topic
from penstock.engine.plan.task_records import read_task_records
from penstock.errors import InvalidStateStoreException, UnknownStateStoreException
from penstock.log.base import Log
from penstock.log.types import TopicPartition
from penstock.queries.position import Position
from penstock.queries.source import StoreInfo, UnfollowedReader, look_up
from penstock.record import NO_HEADERS, TaskId
from penstock.stores.api.builder import StoreBuilder
from penstock.stores.bytes.store import OpenBytesStore, open_in_memory
from penstock.stores.cache.record_cache import RecordCache
from penstock.stores.replica.databases import bytes_store_names
from penstock.stores.replica.layouts import StoreLayout, raw_builder
from penstock.stores.replica.protocol import ReplicaStore
from penstock.stores.replica.store_reader import StoreReader, StoreSession, read_replica_state
from penstock.suggestions import did_you_mean, listed
from penstock.task.global_state import GLOBAL_TASK
from penstock.task.result import TaskState
from penstock.task.runtime import Environment, Runtime
from penstock.topology.application_info import ApplicationInfo, decode_application
from penstock.topology.application_info import StoreInfo as DescribedStore

#: Without a replica, the rows of a changelog do not expire.
_NO_EXPIRY_MS = 2**53


class OfflineSource:
    """The stores of an application at the last commit. One thread uses it, until it is closed."""

    is_active = False
    thread_state = "OFFLINE"

    def __init__(self, source: Log, application_id: str, state_dir: Path | None) -> None:
        """`state_dir`: where the replicas are; None reads the changelogs only."""
        self._log = source
        self._application_id = application_id
        self._directory = None if state_dir is None else state_dir.absolute() / application_id
        self.application = _describe(source, application_id)
        self._incarnation = source.topic(tasks_topic(application_id)).id
        self._open: list[OfflineReader] = []
        shared = self.application.global_stores
        self.stores = {
            name: StoreInfo(
                name, info.kind, 1 if name in shared else info.partitions, is_global=name in shared
            )
            for name, info in self.application.all_stores.items()
        }

    def check_running(self, *, stopped: bool) -> None:
        """Nothing to check: the application does not have to run."""

    def reader(self, store: str, partition: int, *, stale: bool) -> OfflineReader:
        """Return the reader of a partition."""
        reader = OfflineReader(self, store, partition)
        self._open.append(reader)
        return reader

    def close(self) -> None:
        """Close the files. The log belongs to the caller."""
        for reader in self._open:
            reader.close()

    def open(self, store: str, partition: int) -> tuple[Any, StoreReader | None, Any]:
        """Open a store at the last commit, its files, and the session that reads them."""
        if store in self.application.global_stores:
            return self._open_global(store), None, None
        info = self.application.stores[store]
        group = self.application.group_of(store)
        assert group is not None
        task_id = TaskId(group, partition)
        layout, directory = self._replica(store, task_id)
        if layout is None:
            default = raw_builder(store, _default_layout(store, info))
            opened = _build(default, task_id, self._application_id, open_in_memory)
            self._apply(opened, info, partition, None)
            return opened, None, None
        assert directory is not None
        build = partial(_build, raw_builder(store, layout), task_id, self._application_id)
        names = bytes_store_names(ReplicaStore(store, True, build))
        files = StoreReader(directory, store, names, build)
        session: StoreSession = files.acquire()
        self._apply(session.store, info, partition, session.changelog_offset or 0)
        return session.store, files, session

    def _open_global(self, name: str) -> Any:
        """Read a global store from its topic."""
        info = self.application.global_stores[name]
        topic = info.restored_from
        assert topic is not None
        if info.role == "processor":
            raise InvalidStateStoreException(
                f"Store {name} is global, and a processor fills it from topic '{topic}', so its "
                "rows are not in the log. Read the topic, or query the running application."
            )
        builder = raw_builder(name, _default_layout(name, info))
        store = _build(builder, GLOBAL_TASK, self._application_id, open_in_memory)
        partitions = [TopicPartition(topic, n) for n in range(self._log.topic(topic).partitions)]
        for at, bounds in self._log.offsets(partitions).items():
            self._restore(store, at, bounds.start, bounds.end)
        return store

    def _replica(
        self, store: str, task_id: TaskId
    ) -> tuple[StoreLayout | None, Path | None]:
        """The layout of a store in the replica of this host, if the replica can be used."""
        if self._directory is None:
            return None, None
        directory = self._directory / str(task_id)
        state = read_replica_state(directory)
        prefix = f"{self._log.id}/{self._incarnation}/"
        if state is None or not state.log_id.startswith(prefix):
            return None, None
        return state.layouts.get(store), directory

    def _apply(
        self, store: Any, info: DescribedStore, partition: int, position: int | None
    ) -> None:
        """Apply the committed changes from a position on, in memory only."""
        topic = info.restored_from
        if topic is None:
            if position is None:
                raise InvalidStateStoreException(
                    f"Store {store.name} has no changelog, and this host has no replica of it. Run "
                    "the query on the host of the application, with its --state-dir."
                )
            return
        at = TopicPartition(topic, partition)
        bounds = self._log.offsets([at])[at]
        end = bounds.end
        if topic != changelog_topic(self._application_id, store.name):
            # A source topic that serves as a changelog counts up to its committed offset.
            committed = self._log.committed(self._application_id, [at]).get(at)
            end = 0 if committed is None else committed.offset
        start = bounds.start if position is None else max(position, bounds.start)
        self._restore(store, at, start, end)

    def _restore(self, store: Any, at: TopicPartition, start: int, end: int) -> None:
        for batch in self._log.read(*at, start, end) if start < end else ():
            rows = batch.columns()
            headers = rows.headers or [NO_HEADERS] * len(rows)
            for key, value, timestamp, pairs in zip(
                rows.keys, rows.values, rows.timestamps, headers, strict=True
            ):
                if key is not None:
                    store.restore(key, value, timestamp, pairs)


class OfflineReader(UnfollowedReader):
    """One partition of a store. It is opened once, at the first query."""

    def __init__(self, source: OfflineSource, store: str, partition: int) -> None:
        self.partition = partition
        self._source = source
        self._name = store
        self._opened: tuple[Any, StoreReader | None, Any] | None = None
        self.changelog_offset: int | None = None

    is_current = True
    lookup = look_up

    @property
    def store(self) -> Any:
        """The typed store. The reader is its own session."""
        assert self._opened is not None
        return self._opened[0]

    def key_serializer(self) -> Callable[[Any], bytes]:
        """Return the function that serializes the keys of the store."""
        serialize: Callable[[Any], bytes] = self.acquire().store.serialize_key
        return serialize

    def position(self, session: OfflineReader) -> Position:
        """Return an empty position: it is not known here."""
        return Position()

    def acquire(self) -> OfflineReader:
        """Return the reader, which is its own session."""
        if self._opened is None:
            self._opened = self._source.open(self._name, self.partition)
        return self

    def release(self, session: OfflineReader) -> None:
        """Nothing to do: `close` releases the files."""

    def close(self) -> None:
        """Release the files."""
        opened, self._opened = self._opened, None
        if opened is not None and opened[1] is not None:
            opened[1].release(opened[2])
            opened[1].close()


def _describe(source: Log, application_id: str) -> ApplicationInfo:
    records = read_task_records(source, application_id)
    if records.application is None:
        known = sorted(
            topic.name.removesuffix("-tasks") for topic in source.topics()
            if topic.name.endswith("-tasks")
        )
        raise UnknownStateStoreException(
            f"Application '{application_id}' has not run on this log."
            f"{did_you_mean(application_id, known)} Applications: {listed(known)}."
        )
    return decode_application(records.application).completed()


def _default_layout(name: str, info: DescribedStore) -> StoreLayout:
    """The layout for rows in memory, of a store that has no replica on this host."""
    if info.family == "versioned_key_value":
        fields: dict[str, Any] = {
            "history_retention_ms": _NO_EXPIRY_MS, "segment_interval_ms": _NO_EXPIRY_MS,
        }
        return StoreLayout(info.kind, "VersionedSupplier", fields)
    formats = {"timestamped": "timestamped", "with_headers": "headers"}
    found = next((kept for part, kept in reversed(formats.items()) if part in info.kind), "plain")
    if info.family == "session":
        kept = "session_headers" if found == "headers" else "plain"
        fields = {"persistent": True, "retention_ms": _NO_EXPIRY_MS,
                  "segment_interval_ms": _NO_EXPIRY_MS, "format": kept}
        return StoreLayout(info.kind, "SessionSupplier", fields)
    if info.family == "window":
        fields = {
            "persistent": True, "retention_ms": _NO_EXPIRY_MS,
            "window_size_ms": info.window_size_ms or 0,
            "retain_duplicates": info.retain_duplicates, "segment_interval_ms": _NO_EXPIRY_MS,
            "format": found,
        }
        return StoreLayout(info.kind, "WindowSupplier", fields)
    if info.family == "key_value":
        return StoreLayout(
            info.kind, "KeyValueSupplier", {"persistent": True, "format": found}
        )
    raise InvalidStateStoreException(
        f"Store {name} is a {info.kind.replace('_', ' ')}, which cannot be queried."
    )


def _build(
    builder: StoreBuilder, task_id: TaskId, application_id: str, open_bytes: OpenBytesStore
) -> Any:
    runtime = Runtime(
        StreamsConfig(application_id=application_id), task_id, Environment(cache=RecordCache(0)),
        TaskState(),
    )
    store = builder.build(open_bytes)
    store.init(runtime)
    return store
