"""A replica holds the rows of its changelogs, whatever fails in between."""

from __future__ import annotations

import shutil
import time
from struct import pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Serdes
from penstock.errors import TaskCorruptedException
from penstock.record import NO_HEADERS, Headers
from penstock.stores.bytes.store import BytesStore, InMemoryBytesStore
from penstock.stores.replica import generations, task_replica
from penstock.stores.replica.generations import clean_up
from penstock.stores.replica.protocol import (
    ReplicaAhead,
    ReplicaStore,
    ReplicaTarget,
    StoreProgress,
    StoreRestore,
)
from penstock.stores.replica.task_replica import TaskReplica
from unit.stores.changelogs import (
    KINDS,
    Change,
    MemoryChangelogs,
    ReplicaDirectory,
    builder_of,
    replica_store,
    rows_of,
)

STRING = Serdes.string()


def values_of(replica: TaskReplica) -> dict[str, str]:
    """The values of a timestamped store."""
    return {key.decode(): row[8:].decode() for key, row in rows_of(replica).items()}


# ---- restoring -------------------------------------------------------------------------------

times = st.integers(0, 20).map(lambda n: n * 30_000)
names = st.sampled_from([b"a", b"b", b"ab", b""])
values = st.none() | st.sampled_from([b"", b"x", b"yy"])


def key_of(kind: str, name: bytes, time_ms: int, number: int) -> bytes:
    if "window" in kind or kind == "duplicates":
        return name + pack(">qI", time_ms, number if kind == "duplicates" else 0)
    if "session" in kind:
        return name + pack(">qq", time_ms, max(0, time_ms - 1000 * (number % 3)))
    return name


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=12)
def test_rows_do_not_depend_on_how_the_changelog_is_split(
    kind: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory,
) -> None:
    drawn = data.draw(st.lists(st.tuples(names, values, times), max_size=40))
    headers = Headers((("h", b"1"),)) if kind == "headers" else NO_HEADERS
    changes: list[Change] = [
        (key_of(kind, name, time, number), value, time, headers)
        for number, (name, value, time) in enumerate(drawn)
    ]
    cuts = sorted(data.draw(st.sets(st.integers(0, len(changes)), max_size=4)) | {len(changes)})
    changelogs = MemoryChangelogs()
    changelogs.add("s", *changes)

    opened: dict[str, BytesStore] = {}
    expected = builder_of(kind)(
        lambda name: opened.setdefault(name, InMemoryBytesStore())
    )
    for change in changes:
        expected.restore(*change)
    expected.advance()

    directory = tmp_path_factory.mktemp("replica")
    replica = TaskReplica.open(directory, "log", (replica_store(kind),))
    for cut in cuts:
        replica.catch_up(ReplicaTarget({"s": cut}), changelogs)
    expected_rows = {name: dict(rows.scan(None, None)) for name, rows in opened.items()}
    assert rows_of(replica) == expected_rows["s"]
    if "s.index" in expected_rows:
        # An index may keep entries of expired rows.
        index = rows_of(replica, "s.index")
        assert index.items() <= expected_rows["s.index"].items()
        assert len(index) >= len(expected_rows["s"])
    assert replica._environment.state().clocks["s"] == expected.clocks()
    replica.close()
    shutil.rmtree(directory)


def test_interrupted_restore_continues_with_the_next_chunk(
    state: ReplicaDirectory, changelogs: MemoryChangelogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_replica, "CHUNK_RECORDS", 20)
    end = 0
    for n in range(100):
        end = changelogs.put("s", f"k{n % 70}", f"v{n}", n)
    steps: list[str] = []

    def fail_at_third_chunk(step: str) -> None:
        steps.append(step)
        if steps.count("applying") == 3:
            raise RuntimeError("boom")

    replica = state.open()
    with pytest.raises(RuntimeError, match="boom"):
        replica.catch_up(ReplicaTarget({"s": end}), changelogs, fail_at_third_chunk)
    assert replica.positions() == {"s": 42}
    assert replica.catch_up(ReplicaTarget({"s": end}), changelogs) == []
    assert changelogs.reads[3:] == [("s", 42), ("s", 63), ("s", 84)]
    assert values_of(replica) == {f"k{n % 70}": f"v{n}" for n in range(100)}
    assert steps[:4] == ["restoring", "applying", "restoring", "applying"]


def test_progress_of_a_restore_includes_stores_that_wait(
    state: ReplicaDirectory, changelogs: MemoryChangelogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_replica, "CHUNK_RECORDS", 10)
    changelogs.batch_size = 10
    changelogs.starts["b"] = 5
    for n in range(20):
        changelogs.put("a", f"k{n}", "v")
        changelogs.put("b", f"k{n}", "v")
    replica = state.open(*(ReplicaStore(name, logged=True, build=None) for name in "ab"))
    seen: list[list[StoreProgress]] = []
    target = ReplicaTarget({"a": 20, "b": 20})
    restores = replica.catch_up(target, changelogs, on_progress=seen.append)
    assert seen == [
        [StoreProgress("a", 0, 10, 20), StoreProgress("b", 5, 5, 20)],
        [StoreProgress("a", 0, 20, 20), StoreProgress("b", 5, 5, 20)],
        [StoreProgress("a", 0, 20, 20), StoreProgress("b", 5, 15, 20)],
    ]
    assert restores == [StoreRestore("a", 0, 20, 20), StoreRestore("b", 5, 20, 15)]
    # Changes after a restore are no restore.
    changelogs.put("a", "k", "v")
    seen.clear()
    replica.catch_up(ReplicaTarget({"a": 21, "b": 20}), changelogs, on_progress=seen.append)
    assert seen == []


def test_catch_up_returns_complete_restores(
    state: ReplicaDirectory, changelogs: MemoryChangelogs
) -> None:
    changelogs.starts["s"] = 2
    for n in range(5):
        changelogs.put("s", f"k{n}", "v")
    replica = state.open()
    assert replica.catch_up(ReplicaTarget({"s": 5}), changelogs) == [StoreRestore("s", 2, 5, 3)]
    changelogs.put("s", "k", "v")
    assert replica.catch_up(ReplicaTarget({"s": 6}), changelogs) == []


def test_rows_older_than_the_tombstone_retention_are_restored_completely(
    state: ReplicaDirectory, changelogs: MemoryChangelogs
) -> None:
    """A tombstone was written and removed in the meantime, and the log does not report it."""
    changelogs.put("s", "a", "1")
    changelogs.put("s", "b", "1")
    replica = state.open()
    replica.catch_up(ReplicaTarget({"s": 2}), changelogs)
    changelogs.put("s", "a", None)
    changelogs.put("s", "b", "2")
    changelogs.compact("s", tombstones=True)
    changelogs.removed.clear()
    changelogs.tombstones_expired_at = time.time_ns() // 1_000_000 + 1
    assert replica.catch_up(ReplicaTarget({"s": 4}), changelogs) == [StoreRestore("s", 0, 4, 1)]
    assert values_of(replica) == {"b": "2"}
    changelogs.tombstones_expired_at = 0
    changelogs.put("s", "b", "3")
    assert replica.catch_up(ReplicaTarget({"s": 5}), changelogs) == []
    assert values_of(replica) == {"b": "3"}


def test_catch_up_stops_at_the_target(
    state: ReplicaDirectory, changelogs: MemoryChangelogs
) -> None:
    changelogs.put("s", "a", "1")
    changelogs.put("s", "a", "2")
    replica = state.open()
    replica.catch_up(ReplicaTarget({"s": 1}), changelogs)
    assert values_of(replica) == {"a": "1"}


def test_store_without_a_target_is_empty(
    state: ReplicaDirectory, changelogs: MemoryChangelogs
) -> None:
    replica = state.open()
    replica.catch_up(ReplicaTarget({}), changelogs)
    with replica.snapshot(ReplicaTarget({})) as snapshot:
        assert list(snapshot.open_bytes("s").scan(None, None)) == []
        assert list(snapshot.open_bytes("unknown").scan(None, None)) == []


# ---- snapshots -------------------------------------------------------------------------------


def test_snapshot_does_not_change_while_the_replica_catches_up(
    state: ReplicaDirectory, changelogs: MemoryChangelogs
) -> None:
    replica, other = state.open(), state.open()
    replica.catch_up(ReplicaTarget({"s": changelogs.put("s", "a", "1")}), changelogs)
    with replica.snapshot(ReplicaTarget({"s": 1})) as snapshot:
        other.catch_up(ReplicaTarget({"s": changelogs.put("s", "a", "2")}), changelogs)
        assert snapshot.open_bytes("s").get(b"a") == pack(">q", 0) + b"1"
    assert values_of(replica) == {"a": "2"}


def test_snapshot_is_refused_away_from_its_target(
    state: ReplicaDirectory, changelogs: MemoryChangelogs
) -> None:
    replica = state.open()
    replica.catch_up(ReplicaTarget({"s": changelogs.put("s", "a", "1")}), changelogs)
    with pytest.raises(TaskCorruptedException, match="is not at the positions"):
        replica.snapshot(ReplicaTarget({"s": 2}))
    with pytest.raises(ReplicaAhead, match="offset 1 of store 's', beyond 0"):
        replica.snapshot(ReplicaTarget({"s": 0}))


# ---- stale plans -----------------------------------------------------------------------------


def test_task_behind_its_replica_is_refused(
    state: ReplicaDirectory, changelogs: MemoryChangelogs
) -> None:
    replica = state.open()
    changelogs.put("s", "a", "1")
    changelogs.put("s", "a", "2")
    replica.catch_up(ReplicaTarget({"s": 2}), changelogs)
    with pytest.raises(ReplicaAhead, match="beyond 1"):
        replica.catch_up(ReplicaTarget({"s": 1}), changelogs)


def test_task_of_an_older_epoch_is_refused(
    state: ReplicaDirectory, changelogs: MemoryChangelogs
) -> None:
    replica = state.open()
    changelogs.put("s", "a", "1")
    changelogs.put("s", "a", "2")
    replica.catch_up(ReplicaTarget({"s": 1}, epoch=5), changelogs)
    with pytest.raises(ReplicaAhead, match="epoch 5, not 4"):
        replica.catch_up(ReplicaTarget({"s": 2}, epoch=4), changelogs)
    replica.catch_up(ReplicaTarget({"s": 2}), changelogs)
    assert replica._environment.state().epoch == 5


# ---- removed records -------------------------------------------------------------------------


def test_replica_that_may_have_missed_a_tombstone_restores_completely(
    state: ReplicaDirectory, changelogs: MemoryChangelogs
) -> None:
    replica = state.open()
    changelogs.put("s", "a", "1")
    changelogs.put("s", "b", "1")
    replica.catch_up(ReplicaTarget({"s": 2}), changelogs)
    changelogs.put("s", "a", None)
    changelogs.put("s", "c", "1")
    changelogs.compact("s", tombstones=True)
    assert replica.catch_up(ReplicaTarget({"s": 4}), changelogs) == [StoreRestore("s", 0, 4, 2)]
    assert values_of(replica) == {"b": "1", "c": "1"}


def test_missed_tombstone_at_the_end_of_the_changelog_is_detected(
    state: ReplicaDirectory, changelogs: MemoryChangelogs
) -> None:
    replica = state.open()
    changelogs.put("s", "a", "1")
    changelogs.put("s", "b", "1")
    replica.catch_up(ReplicaTarget({"s": 2}), changelogs)
    changelogs.put("s", "a", None)
    changelogs.compact("s", tombstones=True)
    replica.catch_up(ReplicaTarget({"s": 3}), changelogs)
    assert values_of(replica) == {"b": "1"}


def test_tombstones_removed_before_the_restore_are_not_needed(
    state: ReplicaDirectory, changelogs: MemoryChangelogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_replica, "CHUNK_RECORDS", 10)
    for n in range(40):
        changelogs.put("s", f"k{n}", "v")
        changelogs.put("s", f"k{n}", None if n % 2 else "w")
    changelogs.compact("s", tombstones=True)
    replica = state.open()
    assert replica.catch_up(ReplicaTarget({"s": 80}), changelogs) == [StoreRestore("s", 0, 80, 20)]
    assert changelogs.reads == [("s", 0), ("s", 54)]
    assert values_of(replica) == {f"k{n}": "w" for n in range(0, 40, 2)}


def test_restore_overtaken_by_compaction_starts_again(
    state: ReplicaDirectory, changelogs: MemoryChangelogs
) -> None:
    for n in range(30):
        changelogs.put("s", f"k{n}", "v")
    for n in range(30):
        changelogs.put("s", f"k{n}", None if n < 10 else "w")
    steps = iter(range(100))

    def compact_in_the_middle() -> None:
        if next(steps) == 3:
            changelogs.compact("s", tombstones=True)

    changelogs.before_batch = compact_in_the_middle
    replica = state.open()
    replica.catch_up(ReplicaTarget({"s": 60}), changelogs)
    assert values_of(replica) == {f"k{n}": "w" for n in range(10, 30)}


def test_replica_behind_the_start_of_the_changelog_restores_completely(
    state: ReplicaDirectory, changelogs: MemoryChangelogs
) -> None:
    replica = state.open()
    for n in range(10):
        changelogs.put("s", f"k{n}", "v")
    replica.catch_up(ReplicaTarget({"s": 2}), changelogs)
    changelogs.starts["s"] = 5
    assert replica.catch_up(ReplicaTarget({"s": 10}), changelogs) == [StoreRestore("s", 5, 10, 5)]
    assert sorted(values_of(replica)) == [f"k{n}" for n in range(5, 10)]


# ---- replacing the files ---------------------------------------------------------------------


def generation(state: ReplicaDirectory) -> str:
    return (state.path / "current").read_text()


def test_rows_of_another_log_are_discarded(
    state: ReplicaDirectory, changelogs: MemoryChangelogs
) -> None:
    replica = state.open()
    replica.catch_up(ReplicaTarget({"s": changelogs.put("s", "a", "1")}), changelogs)
    before = generation(state)
    other = state.open(log_id="another")
    assert other.positions() == {}
    assert generation(state) != before
    assert not (state.path / before).exists()


def test_unsynced_rows_are_discarded_after_a_reboot(
    state: ReplicaDirectory, changelogs: MemoryChangelogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = state.open()
    replica.catch_up(ReplicaTarget({"s": changelogs.put("s", "a", "1")}), changelogs)
    replica.close()
    assert state.open().positions() == {"s": 1}
    monkeypatch.setattr(generations, "boot_id", lambda: "another boot")
    assert state.open().positions() == {}


def test_environment_closed_by_another_replica_is_opened_again(
    state: ReplicaDirectory, changelogs: MemoryChangelogs
) -> None:
    mine, theirs = state.open(), state.open()
    end = changelogs.put("s", "a", "1")
    mine.catch_up(ReplicaTarget({"s": end}), changelogs)
    theirs.close()
    assert mine.positions() == {"s": end}


def test_synced_rows_survive_a_reboot(
    state: ReplicaDirectory, changelogs: MemoryChangelogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = state.open()
    replica.catch_up(ReplicaTarget({"s": changelogs.put("s", "a", "1")}), changelogs)
    replica.sync()
    replica.close()
    monkeypatch.setattr(generations, "boot_id", lambda: "another boot")
    again = state.open()
    assert values_of(again) == {"a": "1"}
    again.catch_up(ReplicaTarget({"s": changelogs.put("s", "b", "1")}), changelogs)
    again.close()
    monkeypatch.setattr(generations, "boot_id", lambda: "a third boot")
    assert state.open().positions() == {}


@pytest.mark.parametrize("victim", ["data.mdb", "current", "generation", "everything"])
def test_corrupt_replica_is_restored(
    state: ReplicaDirectory, changelogs: MemoryChangelogs, victim: str
) -> None:
    replica = state.open()
    end = changelogs.put("s", "a", "1")
    replica.catch_up(ReplicaTarget({"s": end}), changelogs)
    replica.close()
    match victim:
        case "data.mdb":
            (state.path / generation(state) / "data.mdb").write_bytes(b"x" * 10_000)
        case "current":
            (state.path / "current").write_bytes(b"../\xff")
        case "generation":
            shutil.rmtree(state.path / generation(state))
        case _:
            shutil.rmtree(state.path.parent)
    again = state.open()
    again.catch_up(ReplicaTarget({"s": end}), changelogs)
    assert values_of(again) == {"a": "1"}


def test_open_replica_notices_deleted_files(
    state: ReplicaDirectory, changelogs: MemoryChangelogs
) -> None:
    replica = state.open()
    end = changelogs.put("s", "a", "1")
    replica.catch_up(ReplicaTarget({"s": end}), changelogs)
    clean_up(state.path.parent.parent, "app")
    assert not state.path.exists()
    assert replica.catch_up(ReplicaTarget({"s": end}), changelogs) == [StoreRestore("s", 0, 1, 1)]
    assert values_of(replica) == {"a": "1"}


def test_rebuild_order_is_carried_out_once(
    state: ReplicaDirectory, changelogs: MemoryChangelogs
) -> None:
    replica, other = state.open(), state.open()
    end = changelogs.put("s", "a", "1")
    replica.catch_up(ReplicaTarget({"s": end}), changelogs)
    order = ReplicaTarget({"s": end}, rebuild_batch=7)
    assert replica.catch_up(order, changelogs) == [StoreRestore("s", 0, 1, 1)]
    made = generation(state)
    assert other.catch_up(order, changelogs) == []
    assert generation(state) == made
    assert values_of(other) == {"a": "1"}


def test_reader_keeps_an_old_generation_and_then_finds_the_new_one(
    state: ReplicaDirectory, changelogs: MemoryChangelogs
) -> None:
    replica, other = state.open(), state.open()
    end = changelogs.put("s", "a", "1")
    replica.catch_up(ReplicaTarget({"s": end}), changelogs)
    with other.snapshot() as snapshot:
        replica.catch_up(ReplicaTarget({"s": end}, rebuild_batch=1), changelogs)
        assert snapshot.open_bytes("s").get(b"a") == pack(">q", 0) + b"1"
    assert values_of(other) == {"a": "1"}
