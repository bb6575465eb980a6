"""Replicas: the rows are those of the changelog, whatever happens on the way."""

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
from penstock.stores.replica import generations as replica_files
from penstock.stores.replica import task_replica as replica_module
from penstock.stores.replica.generations import clean_up
from penstock.stores.replica.protocol import ReplicaAhead, ReplicaTarget, StoreRestore
from penstock.stores.replica.task_replica import TaskReplica
from unit.stores.changelogs import (
    KINDS,
    Change,
    MemoryChangelogs,
    Place,
    builder_of,
    followed,
    rows_of,
)

STRING = Serdes.string()


def values_of(replica: TaskReplica) -> dict[str, str]:
    """The rows of a timestamped store."""
    return {key.decode(): row[8:].decode() for key, row in rows_of(replica).items()}


# ---- the rows are those of the changelog -----------------------------------------------------

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
def test_rows_are_the_same_however_the_changelog_is_cut(
    kind: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory,
) -> None:
    from unit.stores.conftest import FakeContext

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
    expected = builder_of(kind, FakeContext)(
        lambda name: opened.setdefault(name, InMemoryBytesStore())
    )
    for change in changes:
        expected.restore(*change)
    expected.advance()

    directory = tmp_path_factory.mktemp("replica")
    replica = TaskReplica.open(directory, "log", (followed(kind, FakeContext),))
    for cut in cuts:
        replica.catch_up(ReplicaTarget({"s": cut}), changelogs)
    wanted = {name: dict(rows.scan(None, None)) for name, rows in opened.items()}
    assert rows_of(replica) == wanted["s"]
    if "s.index" in wanted:
        # An index may have entries left of rows that have expired.
        index = rows_of(replica, "s.index")
        assert index.items() <= wanted["s.index"].items()
        assert len(index) >= len(wanted["s"])
    assert replica._environment.state().clocks["s"] == expected.clocks()
    replica.close()
    shutil.rmtree(directory)


def test_a_restore_is_cut_into_chunks_and_goes_on_after_an_interruption(
    place: Place, changelogs: MemoryChangelogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_module, "CHUNK_RECORDS", 20)
    end = 0
    for n in range(100):
        end = changelogs.put("s", f"k{n % 70}", f"v{n}", n)
    steps: list[str] = []

    def fail_at_the_third(step: str) -> None:
        steps.append(step)
        if steps.count("applying") == 3:
            raise RuntimeError("boom")

    replica = place.open()
    with pytest.raises(RuntimeError, match="boom"):
        replica.catch_up(ReplicaTarget({"s": end}), changelogs, fail_at_the_third)
    assert replica.positions() == {"s": 42}
    assert replica.catch_up(ReplicaTarget({"s": end}), changelogs) == []
    assert changelogs.reads[3:] == [("s", 42), ("s", 63), ("s", 84)]
    assert values_of(replica) == {f"k{n % 70}": f"v{n}" for n in range(100)}
    assert steps[:4] == ["restoring", "applying", "restoring", "applying"]


def test_it_tells_what_was_filled_from_nothing(place: Place, changelogs: MemoryChangelogs) -> None:
    changelogs.starts["s"] = 2
    for n in range(5):
        changelogs.put("s", f"k{n}", "v")
    replica = place.open()
    assert replica.catch_up(ReplicaTarget({"s": 5}), changelogs) == [StoreRestore("s", 2, 5, 3)]
    changelogs.put("s", "k", "v")
    assert replica.catch_up(ReplicaTarget({"s": 6}), changelogs) == []


def test_rows_that_are_too_old_for_the_changelog_are_filled_anew(
    place: Place, changelogs: MemoryChangelogs
) -> None:
    """A tombstone was written and removed while the host was away, and the log does not tell."""
    changelogs.put("s", "a", "1")
    changelogs.put("s", "b", "1")
    replica = place.open()
    replica.catch_up(ReplicaTarget({"s": 2}), changelogs)
    changelogs.put("s", "a", None)
    changelogs.put("s", "b", "2")
    changelogs.compact("s", tombstones=True)
    changelogs.removed.clear()
    changelogs.forgotten = time.time_ns() // 1_000_000 + 1
    assert replica.catch_up(ReplicaTarget({"s": 4}), changelogs) == [StoreRestore("s", 0, 4, 1)]
    assert values_of(replica) == {"b": "2"}
    changelogs.forgotten = 0
    changelogs.put("s", "b", "3")
    assert replica.catch_up(ReplicaTarget({"s": 5}), changelogs) == []
    assert values_of(replica) == {"b": "3"}


def test_only_what_is_committed_is_read(place: Place, changelogs: MemoryChangelogs) -> None:
    changelogs.put("s", "a", "1")
    changelogs.put("s", "a", "2")
    replica = place.open()
    replica.catch_up(ReplicaTarget({"s": 1}), changelogs)
    assert values_of(replica) == {"a": "1"}


def test_a_store_that_no_plan_names_is_empty(place: Place, changelogs: MemoryChangelogs) -> None:
    replica = place.open()
    replica.catch_up(ReplicaTarget({}), changelogs)
    with replica.snapshot(ReplicaTarget({})) as snapshot:
        assert list(snapshot.open_bytes("s").scan(None, None)) == []
        assert list(snapshot.open_bytes("unknown").scan(None, None)) == []


# ---- snapshots -------------------------------------------------------------------------------


def test_a_snapshot_stands_still_while_the_replica_moves_on(
    place: Place, changelogs: MemoryChangelogs
) -> None:
    replica, other = place.open(), place.open()
    replica.catch_up(ReplicaTarget({"s": changelogs.put("s", "a", "1")}), changelogs)
    with replica.snapshot(ReplicaTarget({"s": 1})) as snapshot:
        other.catch_up(ReplicaTarget({"s": changelogs.put("s", "a", "2")}), changelogs)
        assert snapshot.open_bytes("s").get(b"a") == pack(">q", 0) + b"1"
    assert values_of(replica) == {"a": "2"}


def test_a_snapshot_is_only_given_where_it_is_wanted(
    place: Place, changelogs: MemoryChangelogs
) -> None:
    replica = place.open()
    replica.catch_up(ReplicaTarget({"s": changelogs.put("s", "a", "1")}), changelogs)
    with pytest.raises(TaskCorruptedException, match="is not at the positions"):
        replica.snapshot(ReplicaTarget({"s": 2}))
    with pytest.raises(ReplicaAhead, match="offset 1 of store 's', beyond 0"):
        replica.snapshot(ReplicaTarget({"s": 0}))


# ---- zombies ---------------------------------------------------------------------------------


def test_a_task_that_is_behind_its_replica_is_a_zombie(
    place: Place, changelogs: MemoryChangelogs
) -> None:
    replica = place.open()
    changelogs.put("s", "a", "1")
    changelogs.put("s", "a", "2")
    replica.catch_up(ReplicaTarget({"s": 2}), changelogs)
    with pytest.raises(ReplicaAhead, match="beyond 1"):
        replica.catch_up(ReplicaTarget({"s": 1}), changelogs)


def test_so_is_one_of_an_older_epoch(place: Place, changelogs: MemoryChangelogs) -> None:
    replica = place.open()
    changelogs.put("s", "a", "1")
    changelogs.put("s", "a", "2")
    replica.catch_up(ReplicaTarget({"s": 1}, epoch=5), changelogs)
    with pytest.raises(ReplicaAhead, match="epoch 5, not 4"):
        replica.catch_up(ReplicaTarget({"s": 2}, epoch=4), changelogs)
    replica.catch_up(ReplicaTarget({"s": 2}), changelogs)
    assert replica._environment.state().epoch == 5


# ---- what the log has forgotten --------------------------------------------------------------


def test_a_replica_that_may_have_missed_a_tombstone_starts_again(
    place: Place, changelogs: MemoryChangelogs
) -> None:
    replica = place.open()
    changelogs.put("s", "a", "1")
    changelogs.put("s", "b", "1")
    replica.catch_up(ReplicaTarget({"s": 2}), changelogs)
    changelogs.put("s", "a", None)
    changelogs.put("s", "c", "1")
    changelogs.compact("s", tombstones=True)
    assert replica.catch_up(ReplicaTarget({"s": 4}), changelogs) == [StoreRestore("s", 0, 4, 2)]
    assert values_of(replica) == {"b": "1", "c": "1"}


def test_a_tombstone_may_have_been_all_that_was_left_to_read(
    place: Place, changelogs: MemoryChangelogs
) -> None:
    replica = place.open()
    changelogs.put("s", "a", "1")
    changelogs.put("s", "b", "1")
    replica.catch_up(ReplicaTarget({"s": 2}), changelogs)
    changelogs.put("s", "a", None)
    changelogs.compact("s", tombstones=True)
    replica.catch_up(ReplicaTarget({"s": 3}), changelogs)
    assert values_of(replica) == {"b": "1"}


def test_tombstones_that_were_gone_before_the_restore_are_not_missed(
    place: Place, changelogs: MemoryChangelogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_module, "CHUNK_RECORDS", 10)
    for n in range(40):
        changelogs.put("s", f"k{n}", "v")
        changelogs.put("s", f"k{n}", None if n % 2 else "w")
    changelogs.compact("s", tombstones=True)
    replica = place.open()
    assert replica.catch_up(ReplicaTarget({"s": 80}), changelogs) == [StoreRestore("s", 0, 80, 20)]
    assert changelogs.reads == [("s", 0), ("s", 54)]
    assert values_of(replica) == {f"k{n}": "w" for n in range(0, 40, 2)}


def test_a_restore_that_compaction_overtakes_starts_again(
    place: Place, changelogs: MemoryChangelogs
) -> None:
    for n in range(30):
        changelogs.put("s", f"k{n}", "v")
    for n in range(30):
        changelogs.put("s", f"k{n}", None if n < 10 else "w")
    steps = iter(range(100))

    def compact_in_the_middle() -> None:
        if next(steps) == 3:
            changelogs.compact("s", tombstones=True)

    changelogs.between = compact_in_the_middle
    replica = place.open()
    replica.catch_up(ReplicaTarget({"s": 60}), changelogs)
    assert values_of(replica) == {f"k{n}": "w" for n in range(10, 30)}


def test_a_replica_that_retention_has_overtaken_starts_again(
    place: Place, changelogs: MemoryChangelogs
) -> None:
    replica = place.open()
    for n in range(10):
        changelogs.put("s", f"k{n}", "v")
    replica.catch_up(ReplicaTarget({"s": 2}), changelogs)
    changelogs.starts["s"] = 5
    assert replica.catch_up(ReplicaTarget({"s": 10}), changelogs) == [StoreRestore("s", 5, 10, 5)]
    assert sorted(values_of(replica)) == [f"k{n}" for n in range(5, 10)]


# ---- what cannot be trusted ------------------------------------------------------------------


def generation(place: Place) -> str:
    return (place.directory / "current").read_text()


def test_rows_of_another_log_are_not_used(place: Place, changelogs: MemoryChangelogs) -> None:
    replica = place.open()
    replica.catch_up(ReplicaTarget({"s": changelogs.put("s", "a", "1")}), changelogs)
    before = generation(place)
    other = place.open(log_id="another")
    assert other.positions() == {}
    assert generation(place) != before
    assert not (place.directory / before).exists()


def test_writes_that_a_crash_of_the_host_may_have_lost_are_not_trusted(
    place: Place, changelogs: MemoryChangelogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = place.open()
    replica.catch_up(ReplicaTarget({"s": changelogs.put("s", "a", "1")}), changelogs)
    replica.close()
    assert place.open().positions() == {"s": 1}
    monkeypatch.setattr(replica_files, "boot_id", lambda: "another boot")
    assert place.open().positions() == {}


def test_what_another_part_of_the_process_has_closed_is_opened_again(
    place: Place, changelogs: MemoryChangelogs
) -> None:
    mine, theirs = place.open(), place.open()
    end = changelogs.put("s", "a", "1")
    mine.catch_up(ReplicaTarget({"s": end}), changelogs)
    theirs.close()
    assert mine.positions() == {"s": end}


def test_settled_rows_are_good_after_a_reboot(
    place: Place, changelogs: MemoryChangelogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = place.open()
    replica.catch_up(ReplicaTarget({"s": changelogs.put("s", "a", "1")}), changelogs)
    replica.sync()
    replica.close()
    monkeypatch.setattr(replica_files, "boot_id", lambda: "another boot")
    again = place.open()
    assert values_of(again) == {"a": "1"}
    again.catch_up(ReplicaTarget({"s": changelogs.put("s", "b", "1")}), changelogs)
    again.close()
    monkeypatch.setattr(replica_files, "boot_id", lambda: "a third boot")
    assert place.open().positions() == {}


@pytest.mark.parametrize("victim", ["data.mdb", "current", "generation", "everything"])
def test_damage_is_mended_by_restoring(
    place: Place, changelogs: MemoryChangelogs, victim: str
) -> None:
    replica = place.open()
    end = changelogs.put("s", "a", "1")
    replica.catch_up(ReplicaTarget({"s": end}), changelogs)
    replica.close()
    match victim:
        case "data.mdb":
            (place.directory / generation(place) / "data.mdb").write_bytes(b"x" * 10_000)
        case "current":
            (place.directory / "current").write_bytes(b"../\xff")
        case "generation":
            shutil.rmtree(place.directory / generation(place))
        case _:
            shutil.rmtree(place.directory.parent)
    again = place.open()
    again.catch_up(ReplicaTarget({"s": end}), changelogs)
    assert values_of(again) == {"a": "1"}


def test_deleted_files_are_noticed_by_those_who_have_them_open(
    place: Place, changelogs: MemoryChangelogs
) -> None:
    replica = place.open()
    end = changelogs.put("s", "a", "1")
    replica.catch_up(ReplicaTarget({"s": end}), changelogs)
    clean_up(place.directory.parent.parent, "app")
    assert not place.directory.exists()
    assert replica.catch_up(ReplicaTarget({"s": end}), changelogs) == [StoreRestore("s", 0, 1, 1)]
    assert values_of(replica) == {"a": "1"}


def test_an_order_to_begin_anew_is_carried_out_once(
    place: Place, changelogs: MemoryChangelogs
) -> None:
    replica, other = place.open(), place.open()
    end = changelogs.put("s", "a", "1")
    replica.catch_up(ReplicaTarget({"s": end}), changelogs)
    order = ReplicaTarget({"s": end}, rebuild_batch=7)
    assert replica.catch_up(order, changelogs) == [StoreRestore("s", 0, 1, 1)]
    made = generation(place)
    assert other.catch_up(order, changelogs) == []
    assert generation(place) == made
    assert values_of(other) == {"a": "1"}


def test_readers_of_an_old_generation_keep_it_and_then_find_the_new_one(
    place: Place, changelogs: MemoryChangelogs
) -> None:
    replica, other = place.open(), place.open()
    end = changelogs.put("s", "a", "1")
    replica.catch_up(ReplicaTarget({"s": end}), changelogs)
    with other.snapshot() as snapshot:
        replica.catch_up(ReplicaTarget({"s": end}, rebuild_batch=1), changelogs)
        assert snapshot.open_bytes("s").get(b"a") == pack(">q", 0) + b"1"
    assert values_of(other) == {"a": "1"}
