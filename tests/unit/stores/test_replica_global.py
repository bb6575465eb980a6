"""The replica of the global tables: updated once per host, read by all of its processes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    ProcessingFailedException,
    Processor,
    Record,
    Serdes,
    Stores,
    StreamsBuilder,
    StreamsConfig,
)
from penstock.engine.worker.changelogs import LogChangelogs
from penstock.log import Log, RecordColumns, TopicPartition, open_log
from penstock.stores.bytes.lmdb.environment import EnvironmentClosed
from penstock.stores.replica import global_replica
from penstock.stores.replica.global_replica import GlobalReplica
from penstock.stores.replica.protocol import ReplicaAhead
from penstock.task.global_state import GlobalState

STRING = Serdes.string()
CONFIG = StreamsConfig(application_id="app")


class UpperCase(Processor[str, str]):
    """Stores values in upper case; fails if `fail` is set."""

    fail = False

    def process(self, record: Record[str, str]) -> None:
        if UpperCase.fail:
            raise RuntimeError("boom")
        self.context.get_state_store("loud").put(record.key, record.value.upper())


class Host:
    """A log, and global replicas in one directory. Each represents a process."""

    def __init__(self, where: Path) -> None:
        self.log: Log = open_log(where / "log.db")
        self.log.create_topic("names", 2, {"cleanup.policy": "compact", "delete.retention.ms": 0})
        self.log.create_topic("words", 1)
        builder = StreamsBuilder()
        builder.global_table("names", key=STRING, value=STRING, store="names")
        loud = Stores.key_value_store_builder(
            Stores.persistent_key_value_store("loud"), STRING, STRING
        )
        builder.add_global_store(loud, "words", UpperCase, key=STRING, value=STRING)
        self._make = partial(_global_state, builder.build())
        self.directory = where / "global"
        self._open: list[GlobalReplica] = []
        self.topics = {
            f"{topic}-{number}": TopicPartition(topic, number)
            for topic, number in (("names", 0), ("names", 1), ("words", 0))
        }

    def open(self) -> GlobalReplica:
        self._open.append(GlobalReplica(self.directory, self.log.id, self._make))
        return self._open[-1]

    def ends(self) -> dict[str, int]:
        ends = self.log.offsets(self.topics.values())
        return {name: ends[partition].end for name, partition in self.topics.items()}

    def stores(
        self, replica: GlobalReplica, positions: dict[str, int] | None = None,
        epoch: int | None = None,
    ) -> dict[str, Any]:
        offsets = self.ends() if positions is None else positions
        return replica.stores_at(offsets, LogChangelogs(self.log, self.topics), epoch)

    def put(self, topic: str, partition: int, **rows: str | None) -> None:
        values = [None if value is None else value.encode() for value in rows.values()]
        self.log.append(topic, partition, RecordColumns([key.encode() for key in rows], values))

    def close(self) -> None:
        for replica in self._open:
            replica.close()
        self.log.close()


def _global_state(topology: Any, open_bytes: Any) -> GlobalState:
    return GlobalState(topology, CONFIG, None, open_bytes)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    made.close()


def names(stores: dict[str, Any]) -> dict[str, str]:
    return {key: row.value for key, row in stores["names"].all()}


def test_stores_are_at_the_offsets_of_the_plan(host: Host) -> None:
    host.put("names", 0, a="1")
    host.put("names", 1, b="2")
    host.put("words", 0, w="hello")
    before = host.ends()
    host.put("names", 0, a="3")
    replica = host.open()
    stores = host.stores(replica, before)
    assert names(stores) == {"a": "1", "b": "2"}
    assert dict(stores["loud"].all()) == {"w": "HELLO"}
    assert names(host.stores(replica)) == {"a": "3", "b": "2"}


def test_records_are_processed_once_per_host(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.put("words", 0, w="hello")
    host.stores(host.open())
    monkeypatch.setattr(UpperCase, "fail", True)
    assert dict(host.stores(host.open())["loud"].all()) == {"w": "HELLO"}


def test_reader_keeps_its_snapshot_while_another_process_catches_up(host: Host) -> None:
    host.put("names", 0, a="1")
    reader, writer = host.open(), host.open()
    stores = host.stores(reader)
    host.put("names", 0, a="2")
    host.stores(writer)
    assert names(stores) == {"a": "1"}
    reader.release()
    assert names(host.stores(reader)) == {"a": "2"}


def test_failed_processor_leaves_no_changes(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.put("names", 0, a="1")
    host.put("words", 0, w="hello")
    replica = host.open()
    monkeypatch.setattr(UpperCase, "fail", True)
    with pytest.raises(ProcessingFailedException, match="RuntimeError: boom"):
        host.stores(replica)
    monkeypatch.setattr(UpperCase, "fail", False)
    stores = host.stores(replica)
    assert (names(stores), dict(stores["loud"].all())) == ({"a": "1"}, {"w": "HELLO"})


def test_batch_behind_the_replica_is_refused(host: Host) -> None:
    host.put("names", 0, a="1")
    replica = host.open()
    before = host.ends()
    host.stores(replica, epoch=3)
    host.put("names", 0, a="2")
    host.stores(replica, epoch=3)
    with pytest.raises(ReplicaAhead, match="beyond 1"):
        host.stores(replica, before)
    with pytest.raises(ReplicaAhead, match="epoch 3, not 2"):
        host.stores(replica, epoch=2)


def test_missed_tombstones_of_one_partition_restore_all_partitions(host: Host) -> None:
    host.put("names", 0, a="1", b="1")
    host.put("names", 1, c="1")
    replica = host.open()
    host.stores(replica)
    host.put("names", 0, a=None)
    host.put("names", 0, d="1")
    host.log.clean(["names"], force=True)
    host.log.clean(["names"], force=True)
    partition = host.topics["names-0"]
    assert host.log.offsets([partition])[partition].tombstones_removed_to > 2
    assert names(host.stores(replica)) == {"b": "1", "c": "1", "d": "1"}


def test_replica_deleted_while_catch_up_process_is_restored(host: Host) -> None:
    host.put("names", 0, a="1")
    deletions = []

    class Deleting(LogChangelogs):
        def read(self, *range_: Any) -> Any:
            if len(deletions) < 3:
                deletions.append(shutil.rmtree(host.directory))
            return super().read(*range_)

    stores = host.open().stores_at(host.ends(), Deleting(host.log, host.topics))
    assert (names(stores), len(deletions)) == ({"a": "1"}, 3)


def test_closed_files_are_opened_again(host: Host) -> None:
    host.put("names", 0, a="1")
    replica = host.open()
    host.stores(replica)
    opened = replica._environment.run(lambda name, environment: environment)
    replica.close_files()
    with pytest.raises(EnvironmentClosed), opened.reading():
        pass
    assert names(host.stores(replica)) == {"a": "1"}
    host.put("names", 0, a="2")
    replica.close_files()
    assert names(host.stores(replica)) == {"a": "2"}


def test_large_update_is_split_into_transactions(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(global_replica, "CHUNK_RECORDS", 1)
    for number in range(10):
        host.put("names", number % 2, **{f"k{number}": "v" * 1000})
        host.put("words", 0, **{f"w{number}": "v"})
    replica = host.open()
    applied = []
    replica.stores_at(host.ends(), LogChangelogs(host.log, host.topics), None, applied.append)
    assert len(applied) == 3
    assert len(names(host.stores(replica))) == 10
