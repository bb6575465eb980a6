"""Replicas can be deleted at any time. They are restored, and no process fails."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from struct import pack
from typing import Any

import lmdb
import pytest

from penstock.stores.replica.files import MAX_DELETIONS, ReplicaDeleted, RunFiles
from penstock.stores.replica.generations import clean_up
from penstock.stores.replica.protocol import ReplicaTarget, StoreRestore
from penstock.stores.replica.task_replica import TaskReplica
from unit.stores.changelogs import MemoryChangelogs, ReplicaDirectory, rows_of

ROW = {b"a": pack(">q", 0) + b"1"}


class Deleting:
    """Deletes the state directory before each of the first `times` calls of a function."""

    def __init__(self, state: ReplicaDirectory, times: int, function: Callable[..., Any]) -> None:
        self.left = times
        self._state = state
        self._function = function

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if self.left > 0:
            self.left -= 1
            shutil.rmtree(self._state.path.parent)
        return self._function(*arguments, **options)


def catch_up(replica: TaskReplica, changelogs: MemoryChangelogs) -> list[StoreRestore]:
    return replica.catch_up(ReplicaTarget({"s": changelogs.put("s", "a", "1")}), changelogs)


def test_replica_deleted_while_reading_changelogs_is_restored(
    state: ReplicaDirectory, changelogs: MemoryChangelogs
) -> None:
    replica = state.open()
    changelogs.before_batch = Deleting(state, 3, lambda: None)
    assert catch_up(replica, changelogs) == [StoreRestore("s", 0, 1, 1)]
    assert rows_of(replica) == ROW


def test_replica_deleted_while_opening_files_is_restored(
    state: ReplicaDirectory, changelogs: MemoryChangelogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    state.open().close()
    deleting = Deleting(state, 3, lmdb.open)
    monkeypatch.setattr(lmdb, "open", deleting)
    replica = state.open()
    assert deleting.left == 0
    catch_up(replica, changelogs)
    assert rows_of(replica) == ROW


def test_replica_deleted_while_replacing_the_generation_is_restored(
    state: ReplicaDirectory, changelogs: MemoryChangelogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleting = Deleting(state, 3, os.replace)
    monkeypatch.setattr(os, "replace", deleting)
    replica = state.open()
    assert deleting.left == 0
    catch_up(replica, changelogs)
    assert rows_of(replica) == ROW


def test_caught_up_rows_can_be_read_after_their_files_were_deleted(
    state: ReplicaDirectory, changelogs: MemoryChangelogs
) -> None:
    replica = state.open()
    catch_up(replica, changelogs)
    shutil.rmtree(state.path)
    with replica.snapshot(ReplicaTarget({"s": 1})) as snapshot:
        assert dict(snapshot.open_bytes("s").scan(None, None)) == ROW
    # The next catch-up does not use these rows.
    assert replica.catch_up(ReplicaTarget({"s": 1}), changelogs) == [StoreRestore("s", 0, 1, 1)]


def test_endless_deletions_raise_replica_deleted(
    state: ReplicaDirectory, changelogs: MemoryChangelogs
) -> None:
    replica = state.open()
    changelogs.before_batch = deleting = Deleting(state, MAX_DELETIONS + 10, lambda: None)
    with pytest.raises(ReplicaDeleted, match="was deleted"):
        catch_up(replica, changelogs)
    assert deleting.left == 9
    deleting.left = 0
    replica.catch_up(ReplicaTarget({"s": 1}), changelogs)
    assert rows_of(replica) == ROW


def test_run_file_is_written_to_a_directory_that_was_deleted(tmp_path: Path) -> None:
    files = RunFiles(tmp_path / "app" / "0_1", "aside")
    files.delete_batches(lambda batch: True)
    files.write((3, 1), b"rows")
    assert files.read((3, 1)) == b"rows"


def test_clean_up_deletes_replicas_and_leftovers(state: ReplicaDirectory, tmp_path: Path) -> None:
    state.open()
    left = tmp_path / "app.0123.deleted" / "0_1"
    left.mkdir(parents=True)
    (tmp_path / "application").mkdir()
    clean_up(tmp_path, "app")
    clean_up(tmp_path, "app")
    assert [path.name for path in tmp_path.iterdir()] == ["application"]
