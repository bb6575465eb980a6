"""Replicas of LRU maps, buffers, unlogged stores and custom stores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Serdes, Stores
from penstock.record import NO_HEADERS, Change, Headers, RecordContext
from penstock.stores.buffers.join_grace import JoinGraceBufferBuilder
from penstock.stores.buffers.suppress import SuppressBufferBuilder
from penstock.stores.bytes.store import BytesStore, InMemoryBytesStore, open_in_memory
from penstock.stores.replica.protocol import ReplicaStore, ReplicaTarget
from penstock.stores.replica.task_replica import TaskReplica
from unit.stores.changelogs import MemoryChangelogs, ReplicaDirectory, replica_store, rows_of
from unit.stores.fakes import FakeContext

STRING = Serdes.string()


class Recorder:
    """A custom store that collects restored records."""

    def __init__(self) -> None:
        self.restored: list[tuple[bytes, bytes | None, int, Headers]] = []

    def restore(self, *record: Any) -> None:
        self.restored.append(record)


def test_custom_store_is_restored_from_the_last_record_of_each_key(
    state: ReplicaDirectory, changelogs: MemoryChangelogs
) -> None:
    headers = Headers((("h", None), ("h", b"1")))
    changelogs.add(
        "s", (b"b", b"1", 5, NO_HEADERS), (b"a", b"2", 6, headers), (b"c", b"3", 7, NO_HEADERS),
        (b"b", b"4", 8, NO_HEADERS), (b"c", None, 9, NO_HEADERS),
    )
    replica = state.open(ReplicaStore("s", True, None))
    replica.catch_up(ReplicaTarget({"s": 3}), changelogs)
    replica.catch_up(ReplicaTarget({"s": 5}), changelogs)
    store = Recorder()
    with replica.snapshot() as snapshot:
        snapshot.restore_custom_stores({"s": store})
    assert store.restored == [(b"a", b"2", 6, headers), (b"b", b"4", 8, NO_HEADERS)]


def lru() -> ReplicaStore:
    def build(open_bytes: Callable[[str], BytesStore]) -> Any:
        store = Stores.timestamped_key_value_store_builder(
            Stores.lru_map("s", 2), STRING, STRING
        ).build(open_bytes)
        store.init(FakeContext())
        return store

    return ReplicaStore("s", True, build)


def test_order_of_use_decides_which_rows_an_lru_store_keeps(
    state: ReplicaDirectory, changelogs: MemoryChangelogs
) -> None:
    store = lru()
    assert store.build is not None
    replica = state.open(store)
    clocks: dict[str, int] = {}

    def run_batch(*work: tuple[str, str]) -> list[str]:
        nonlocal clocks
        end = changelogs.ends.get("s", 0)
        target = ReplicaTarget({"s": end}, clocks={"s": clocks} if end else {})
        replica.catch_up(target, changelogs)
        with replica.snapshot(target) as snapshot:
            task = store.build(snapshot.open_bytes)  # type: ignore[misc]
            if end:
                task.set_clocks(clocks)
            for action, key in work:
                if action == "put":
                    task.save(key, "v", 0)
                    changelogs.put("s", key, "v")
                else:
                    task.load(key)
            clocks = task.clocks()
            return [key for key, _ in task.all()]

    assert run_batch(("put", "b"), ("put", "a")) == ["a", "b"]
    # The read makes "b" the most recently used key.
    assert run_batch(("get", "b")) == ["a", "b"]
    assert run_batch(("put", "c")) == ["b", "c"]
    # The changelog does not contain the eviction of "a".
    assert run_batch() == ["b", "c"]
    assert sorted(rows_of(replica)) == [b"b", b"c"]
    elsewhere = TaskReplica.open(state.path.with_name("elsewhere"), "log", (store,))
    elsewhere.catch_up(ReplicaTarget({"s": 3}, clocks={"s": clocks}), changelogs)
    assert sorted(rows_of(elsewhere)) == [b"b", b"c"]
    elsewhere.close()


# ---- buffers ---------------------------------------------------------------------------------


def buffer_of(kind: str) -> Any:
    if kind == "suppress":
        return SuppressBufferBuilder("s", STRING, STRING)
    return JoinGraceBufferBuilder("s", 5, STRING, STRING)


class BufferRunner:
    """Builds a buffer, processes records with it and collects the emitted records."""

    def __init__(self, kind: str, context: Any) -> None:
        self.kind = kind
        self.context = context
        self.sent: list[Any] = []

    def build(self, open_bytes: Callable[[str], BytesStore]) -> Any:
        buffer = buffer_of(self.kind).build(open_bytes)
        buffer.init(self.context)
        return buffer

    def work(self, buffer: Any, work: list[tuple[str, int]]) -> None:
        for key, time in work:
            record = RecordContext("t", 0, 0, time, NO_HEADERS)
            self.context.current.set_context(record)
            if self.kind == "suppress":
                buffer.put(time, key, Change(f"{key}{time}", None), record)
                buffer.evict_until(time - 5, self.emit)
                buffer.evict_over(4, 10**6, self.emit)
            elif buffer.put(key, f"{key}{time}", record):
                buffer.evict(self.emit)
        buffer.commit()

    def emit(self, *sent: Any) -> None:
        self.sent.append(sent)


batches = st.lists(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 12)), max_size=8), max_size=5
)


@pytest.mark.parametrize("kind", ["suppress", "grace"])
@given(batches=batches)
@settings(max_examples=20)
def test_buffer_rebuilt_for_each_batch_emits_the_same_records(
    kind: str, batches: list[list[tuple[str, int]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    permanent = BufferRunner(kind, FakeContext())
    buffer = permanent.build(open_in_memory)
    for batch in batches:
        permanent.work(buffer, batch)
    rebuilt = BufferRunner(kind, FakeContext())
    directory = tmp_path_factory.mktemp("replica")
    replica = TaskReplica.open(directory, "log", (ReplicaStore("s", True, rebuilt.build),))
    changelogs, clocks, totals = MemoryChangelogs(), None, (0, 0)
    for batch in batches:
        target = ReplicaTarget({"s": changelogs.ends.get("s", 0)})
        replica.catch_up(target, changelogs)
        with replica.snapshot(target) as snapshot:
            again = rebuilt.build(snapshot.open_bytes)
            again.set_clocks(clocks or {})
            rebuilt.work(again, batch)
            clocks = again.clocks()
            totals = again.num_records, getattr(again, "size_bytes", 0)
        changelogs.add("s", *(change[1:] for change in rebuilt.context.logged))
        rebuilt.context.logged.clear()
    assert rebuilt.sent == permanent.sent
    assert totals == (buffer.num_records, getattr(buffer, "size_bytes", 0))
    replica.close()


class CountingRows(InMemoryBytesStore):
    """Counts reads."""

    __slots__ = ("reads",)

    def get(self, key: bytes) -> bytes | None:
        self.reads = getattr(self, "reads", 0) + 1
        return super().get(key)


@pytest.mark.parametrize("kind", ["suppress", "grace"])
def test_batch_reads_only_the_buffer_entries_that_it_emits(
    kind: str
) -> None:
    opened: dict[str, CountingRows] = {}

    def open_bytes(name: str) -> BytesStore:
        return opened.setdefault(name, CountingRows())

    buffering = BufferRunner(kind, FakeContext())
    first = buffering.build(open_bytes)
    for number in range(1000):
        record = RecordContext("t", 0, 0, 100 + number, NO_HEADERS)
        if kind == "suppress":
            first.put(100 + number, f"k{number}", Change("v", None), record)
        else:
            first.put(f"k{number}", "v", record)
    first.advance()
    for rows in opened.values():
        rows.reads = 0
    second = buffering.build(open_bytes)
    if kind == "suppress":
        second.evict_until(102, buffering.emit)
    else:
        second.set_clocks({"stream-time": 107})
        second.evict(buffering.emit)
    assert [sent[0] for sent in buffering.sent] == ["k0", "k1", "k2"]
    assert second.num_records == 997
    assert sum(rows.reads for rows in opened.values()) <= 5


def test_unlogged_buffer_continues_on_its_host(
    state: ReplicaDirectory
) -> None:
    def build(open_bytes: Callable[[str], BytesStore]) -> Any:
        buffer = SuppressBufferBuilder("s", STRING, STRING, logging_enabled=False).build(open_bytes)
        buffer.init(FakeContext())
        return buffer

    replica = state.open(ReplicaStore("s", False, build))
    last = (0, 0)
    for number in range(1, 4):
        target = ReplicaTarget({}, last_run=last)
        replica.catch_up(target, MemoryChangelogs())
        with replica.snapshot(target) as snapshot:
            buffer = build(snapshot.open_bytes)
            assert buffer.num_records == number - 1
            record = RecordContext("t", 0, 0, number, NO_HEADERS)
            buffer.put(number, f"k{number}", Change("v", None), record)
            buffer.commit()
            last = (number, 7)
            snapshot.stage_writes(last, {"s": buffer})


# ---- stores without a changelog --------------------------------------------------------------


class Unlogged:
    """Runs batches of a task with a store without a changelog."""

    def __init__(self, replica: TaskReplica, store: ReplicaStore) -> None:
        assert store.build is not None
        self.replica, self.build = replica, store.build

    def run(
        self, number: int, attempt: int, last: tuple[int, int], **rows: str | None
    ) -> dict[str, str]:
        """Run a batch. Returns the content of the store before it."""
        target = ReplicaTarget({}, last_run=last)
        self.replica.catch_up(target, MemoryChangelogs())
        with self.replica.snapshot(target) as snapshot:
            task = self.build(snapshot.open_bytes)
            content = {key: value.value for key, value in task.all()}
            for key, value in rows.items():
                task.save(key, value, 0)
            snapshot.stage_writes((number, attempt), {"s": task})
            return content


@pytest.fixture
def unlogged(state: ReplicaDirectory) -> Unlogged:
    store = replica_store("timestamped", logged=False)
    return Unlogged(state.open(store), store)


def test_unlogged_store_continues_from_the_committed_run(unlogged: Unlogged) -> None:
    unlogged.run(1, 10, (0, 0), a="1", b="1")
    assert unlogged.run(2, 20, (1, 10), a="lost") == {"a": "1", "b": "1"}
    assert unlogged.run(2, 21, (1, 10), a="2", b=None) == {"a": "1", "b": "1"}
    assert unlogged.run(3, 30, (2, 21)) == {"a": "2"}
    assert unlogged.run(4, 40, (3, 30)) == {"a": "2"}
    assert [path.name for path in unlogged.replica.directory.glob("aside-*")] == ["aside-4-40"]


def test_unlogged_store_is_empty_on_a_host_without_the_last_run(unlogged: Unlogged) -> None:
    unlogged.run(1, 10, (0, 0), a="1")
    assert unlogged.run(3, 30, (2, 20), b="3") == {}
    assert unlogged.run(4, 40, (3, 30)) == {"b": "3"}


def test_staged_writes_apply_only_to_the_rows_of_their_parent_run(
    unlogged: Unlogged,
) -> None:
    unlogged.run(1, 10, (0, 0), a="1")
    unlogged.run(2, 20, (1, 10), b="2")
    # The rows are lost, and with them the parent of the writes of batch 2.
    unlogged.replica._environment.rebuild(3)
    assert unlogged.run(3, 30, (2, 20)) == {}
