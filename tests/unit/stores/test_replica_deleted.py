"""Replicas may be deleted at any time: what is lost is restored, and nobody fails."""

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
from unit.stores.changelogs import MemoryChangelogs, Place, rows_of

ROW = {b"a": pack(">q", 0) + b"1"}


class Deleting:
    """Deletes everything before each of the first calls of a function."""

    def __init__(self, place: Place, times: int, function: Callable[..., Any]) -> None:
        self.left = times
        self._place = place
        self._function = function

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if self.left > 0:
            self.left -= 1
            shutil.rmtree(self._place.directory.parent)
        return self._function(*arguments, **options)


def caught_up(replica: TaskReplica, changelogs: MemoryChangelogs) -> list[StoreRestore]:
    return replica.catch_up(ReplicaTarget({"s": changelogs.put("s", "a", "1")}), changelogs)


def test_while_changelogs_are_read(place: Place, changelogs: MemoryChangelogs) -> None:
    replica = place.open()
    changelogs.between = Deleting(place, 3, lambda: None)
    assert caught_up(replica, changelogs) == [StoreRestore("s", 0, 1, 1)]
    assert rows_of(replica) == ROW


def test_while_files_are_opened(
    place: Place, changelogs: MemoryChangelogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.open().close()
    deleting = Deleting(place, 3, lmdb.open)
    monkeypatch.setattr(lmdb, "open", deleting)
    replica = place.open()
    assert deleting.left == 0
    caught_up(replica, changelogs)
    assert rows_of(replica) == ROW


def test_while_a_new_generation_is_made(
    place: Place, changelogs: MemoryChangelogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleting = Deleting(place, 3, os.replace)
    monkeypatch.setattr(os, "replace", deleting)
    replica = place.open()
    assert deleting.left == 0
    caught_up(replica, changelogs)
    assert rows_of(replica) == ROW


def test_what_was_caught_up_can_be_read_though_its_files_are_gone(
    place: Place, changelogs: MemoryChangelogs
) -> None:
    replica = place.open()
    caught_up(replica, changelogs)
    shutil.rmtree(place.directory)
    with replica.snapshot(ReplicaTarget({"s": 1})) as snapshot:
        assert dict(snapshot.open_bytes("s").scan(None, None)) == ROW
    # But nobody goes on with it.
    assert replica.catch_up(ReplicaTarget({"s": 1}), changelogs) == [StoreRestore("s", 0, 1, 1)]


def test_who_deletes_without_end_is_told(place: Place, changelogs: MemoryChangelogs) -> None:
    replica = place.open()
    changelogs.between = deleting = Deleting(place, MAX_DELETIONS + 10, lambda: None)
    with pytest.raises(ReplicaDeleted, match="was deleted"):
        caught_up(replica, changelogs)
    assert deleting.left == 9
    deleting.left = 0
    replica.catch_up(ReplicaTarget({"s": 1}), changelogs)
    assert rows_of(replica) == ROW


def test_the_files_of_a_run_are_written_to_a_directory_that_was_deleted(tmp_path: Path) -> None:
    files = RunFiles(tmp_path / "app" / "0_1", "aside")
    files.delete_batches(lambda batch: True)
    files.write((3, 1), b"rows")
    assert files.read((3, 1)) == b"rows"


def test_to_clean_up_leaves_nothing(place: Place, tmp_path: Path) -> None:
    place.open()
    left = tmp_path / "app.0123.deleted" / "0_1"
    left.mkdir(parents=True)
    (tmp_path / "application").mkdir()
    clean_up(tmp_path, "app")
    clean_up(tmp_path, "app")
    assert [path.name for path in tmp_path.iterdir()] == ["application"]
