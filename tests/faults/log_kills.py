"""Kills writers and cleaners of an embedded log at random points, then checks its contents.

    python tests/faults/log_kills.py [--kills 200] [--seed 4]

Three kinds of processes use one file concurrently. Each is killed with SIGKILL after a random time
and restarted:

    writers       transactions over two topics that must always be equal, with the group's offset
    table writers values and tombstones for the keys of a compacted topic
    cleaners      compaction with little memory, merging, sweeping, without a pause

A writer reports acknowledged appends to the parent. At the end no acknowledged record is lost, no
transaction is stored twice or in part, and every key has its newest value. After each kill the
parent checks that the log is consistent.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import random
import sqlite3
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from penstock.log import Log, RecordColumns, TopicPartition, open_log
from penstock.log.types import Append

PARTITIONS = 2
KEYS = 40
LONGEST_LIFE_S = 0.06
#: A new process skips some numbers, to distinguish its records from those of the killed one.
GAP = 1000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


# ---- the processes --------------------------------------------------------------------------


def size_of(worker: int, number: int) -> int:
    """The number of records of a transaction; the largest ones have several batches."""
    return random.Random(f"{worker}/{number}").choice((1, 1, 1, 3, 60, 3000))


def event_records(worker: int, number: int) -> RecordColumns:
    count = size_of(worker, number)
    values = [b"%d/%d/%d/%d" % (worker, number, index, count) for index in range(count)]
    return RecordColumns([b"w%d" % worker] * count, values, [now_ms()] * count)


def write_events(path: str, worker: int, first: int, acknowledged: Connection) -> None:
    log = open_log(path)
    acknowledged.send_bytes(b"ready")
    for number in itertools.count(first):
        records = event_records(worker, number)
        partition = number % PARTITIONS
        # Staged records, as in the engine, or the records themselves.
        parts: list[Any] = [records]
        if number % 3 == 0:
            parts = list(log.stage_records(records))
        with log.transaction() as transaction:
            for part in parts:
                transaction.append("events", partition, part)
            transaction.append("mirror", partition, records)
            transaction.commit_offsets(f"group-{worker}", {TopicPartition("events", 0): number})
        acknowledged.send_bytes(b"%d" % number)


def table_record(worker: int, number: int) -> tuple[bytes, bytes | None]:
    rng = random.Random(f"{worker}:{number}")
    key = b"%d-%d" % (worker, rng.randrange(KEYS))
    return key, None if rng.random() < 0.3 else b"%d" % number


def write_table(path: str, worker: int, first: int, acknowledged: Connection) -> None:
    log = open_log(path)
    acknowledged.send_bytes(b"ready")
    for number in itertools.count(first):
        key, value = table_record(worker, number)
        record = RecordColumns([key], [value], [now_ms()])
        log.append_many([Append("table", 0, record), Append("scratch", 0, record)])
        acknowledged.send_bytes(b"%d" % number)


def clean(path: str, worker: int, first: int, acknowledged: Connection) -> None:
    log = open_log(path, compaction_buffer_bytes=20_000)
    acknowledged.send_bytes(b"ready")
    while True:
        log.clean(force=True)


# ---- the parent -----------------------------------------------------------------------------


@dataclass
class Worker:
    """A process that is restarted after each kill."""

    number: int
    work: Callable[[str, int, int, Connection], None]
    next_first: int = 0
    acknowledged: list[int] = field(default_factory=list)
    #: The number at each kill: may be stored although it was not acknowledged.
    unacknowledged: list[int] = field(default_factory=list)
    process: Any = None
    pipe: Connection | None = None

    def start(self, context: Any, path: str) -> None:
        self.pipe, theirs = context.Pipe(duplex=False)
        self.process = context.Process(
            target=self.work, args=(path, self.number, self.next_first, theirs), daemon=True
        )
        self.process.start()
        theirs.close()
        assert self.pipe is not None
        assert self.pipe.recv_bytes() == b"ready"

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        assert self.process.exitcode == -9, f"{self.work.__name__} exited"
        assert self.pipe is not None
        received = False
        try:
            while True:
                self.acknowledged.append(int(self.pipe.recv_bytes()))
                received = True
        except (EOFError, OSError):
            self.pipe.close()
        first = self.acknowledged[-1] + 1 if received else self.next_first
        self.unacknowledged.append(first)
        self.next_first = first + GAP


class Trial:
    """A log and its workers."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.path = str(directory / "log.db")
        self.rng = random.Random(seed)
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["penstock.log.embedded.log"])
        self.workers = [
            *(Worker(number, write_events) for number in range(2)),
            Worker(2, write_table), Worker(3, clean), Worker(4, clean),
        ]
        with open_log(self.path) as log:
            for name in ("events", "mirror"):
                log.create_topic(name, PARTITIONS, {"retention.ms": -1})
            log.create_topic(
                "table", 1, {"cleanup.policy": "compact", "delete.retention.ms": 20}
            )
            log.create_topic("scratch", 1, {"retention.bytes": 20_000})
        self._table: tuple[int, ...] = (0, 0, 0)
        self._scratch_start = 0

    def run(self, kills: int, progress: Callable[[int], None] = lambda done: None) -> None:
        with open_log(self.path) as log:
            for worker in self.workers:
                worker.start(self.context, self.path)
            for done in range(kills):
                worker = self.rng.choice(self.workers)
                time.sleep(self.rng.random() * LONGEST_LIFE_S)
                worker.kill()
                self.look(log)
                progress(done + 1)
                worker.start(self.context, self.path)
            for worker in self.workers:
                worker.kill()
            self.verify(log)

    def look(self, log: Log) -> None:
        """Check the consistency of the log at this moment."""
        which = [
            TopicPartition(topic, n) for topic in ("events", "mirror") for n in range(PARTITIONS)
        ]
        found = log.offsets([*which, TopicPartition("table", 0), TopicPartition("scratch", 0)])
        for n in range(PARTITIONS):
            assert found["events", n] == found["mirror", n], "half of a transaction is visible"
        table, scratch = found["table", 0], found["scratch", 0]
        assert table.end == scratch.end, "half of an append is visible"
        assert scratch.start >= self._scratch_start
        self._scratch_start = scratch.start
        assert all(new >= old for new, old in zip(table, self._table, strict=True))
        self._table = tuple(table)

    def verify(self, log: Log) -> None:
        self._verify_events(log)
        self._verify_table(log)
        later = now_ms() + 7_200_000
        with open_log(self.path, clock=lambda: later) as cleaner:
            for _ in range(3):
                cleaner.clean(force=True)
        self._verify_events(log)
        self._verify_table(log)
        self._verify_file()

    def _verify_events(self, log: Log) -> None:
        seen: dict[tuple[int, int], int] = {}
        for partition in range(PARTITIONS):
            events, mirror = (values(log, topic, partition) for topic in ("events", "mirror"))
            assert events == mirror
            at = 0
            while at < len(events):
                worker, number, index, count = map(int, events[at].split(b"/"))
                assert index == 0
                expected = event_records(worker, number).values
                assert events[at : at + count] == expected, "incomplete or mixed"
                assert (worker, number) not in seen, "stored twice"
                seen[worker, number] = at
                at += count
        for worker in self.workers:
            if worker.work is not write_events:
                continue
            mine = {number for writer, number in seen if writer == worker.number}
            assert set(worker.acknowledged) <= mine, "acknowledged and lost"
            assert mine <= {*worker.acknowledged, *worker.unacknowledged}
            committed = log.committed(f"group-{worker.number}")
            assert {int(offset.offset) for offset in committed.values()} == (
                {max(mine)} if mine else set()
            )

    def _verify_table(self, log: Log) -> None:
        start = log.offsets([TopicPartition("table", 0)])["table", 0].start
        rows = [batch.columns() for batch in log.read("table", 0, start)]
        found: dict[bytes | None, bytes | None] = {}
        for block in rows:
            found.update(zip(block.keys, block.values, strict=True))
        for worker in self.workers:
            if worker.work is not write_table:
                continue
            # For each key, the newest acknowledged value and all that may be written after it.
            allowed: dict[bytes, set[bytes | None]] = {}
            for number in sorted({*worker.acknowledged, *worker.unacknowledged}):
                key, value = table_record(worker.number, number)
                if number in worker.unacknowledged:
                    allowed.setdefault(key, {None}).add(value)
                else:
                    allowed[key] = {value}
            assert found.keys() <= allowed.keys()
            for key, values_allowed in allowed.items():
                assert found.get(key) in values_allowed, f"{key!r} has {found.get(key)!r}"

    def _verify_file(self) -> None:
        db = sqlite3.connect(self.path)
        try:
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            lost = (
                "SELECT count(*) FROM batches "
                "WHERE records AND blob_id NOT IN (SELECT id FROM blobs)"
            )
            unused = "SELECT count(*) FROM blobs WHERE id NOT IN (SELECT blob_id FROM batches)"
            twice = "SELECT count(*) - count(DISTINCT blob_id) FROM batches WHERE records"
            for question in (lost, unused, twice, "SELECT count(*) FROM aside"):
                assert db.execute(question).fetchone() == (0,), question
        finally:
            db.close()

    def summary(self) -> str:
        acknowledged = sum(len(worker.acknowledged) for worker in self.workers)
        return f"{acknowledged} acknowledged appends, each stored once"


def values(log: Log, topic: str, partition: int) -> list[bytes]:
    found: list[bytes] = []
    position = 0
    for batch in log.read(topic, partition, 0):
        rows = batch.columns()
        assert list(rows.offsets) == list(range(position, position + len(rows)))
        position += len(rows)
        found.extend(value for value in rows.values if value is not None)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill writers and cleaners of a log.")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    print(f"seed {options.seed}, {options.kills} kills", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        trial = Trial(Path(directory), options.seed)
        trial.run(options.kills)
        print(trial.summary())


if __name__ == "__main__":
    main()
