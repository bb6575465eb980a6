"""Replicas shared by processes: concurrent catch-ups, killed and stopped writers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.engine.worker.changelogs import LogChangelogs
from penstock.log import Log, RecordColumns, TopicPartition, open_log
from penstock.stores.replica.protocol import ReplicaTarget
from unit.stores import catch_up_process
from unit.stores.catch_up_process import TOPIC, replica_in

RECORDS = 50_000
KEYS = 17_000
#: The size of an append; larger than the batches that the log merges when it is read.
CHUNK = 5_000


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "log.db") as opened:
        opened.create_topic(TOPIC, 1, {"cleanup.policy": "compact"})
        for first in range(0, RECORDS, CHUNK):
            numbers = range(first, first + CHUNK)
            opened.append(TOPIC, 0, RecordColumns(
                [b"key-%05d" % (n * 7919 % KEYS) for n in numbers],
                [None if n % 11 == 0 else b"value-%d" % n for n in numbers], list(numbers),
            ))
        yield opened


def expected() -> dict[bytes, bytes]:
    rows: dict[bytes, bytes] = {}
    for n in range(RECORDS):
        key = b"key-%05d" % (n * 7919 % KEYS)
        if n % 11 == 0:
            rows.pop(key, None)
        else:
            rows[key] = n.to_bytes(8, "big") + b"value-%d" % n
    return rows


def start(log: Log, directory: Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, catch_up_process.__file__, log.address, str(directory), str(RECORDS),
         str(CHUNK)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, **environment},
    )


def wait_for(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=240)
    finally:
        process.kill()
    return process.returncode, out.strip(), err


def rows_in(log: Log, directory: Path) -> dict[bytes, bytes]:
    replica = replica_in(directory, log.id)
    with replica.snapshot(ReplicaTarget({"s": RECORDS})) as snapshot:
        rows = dict(snapshot.open_bytes("s").scan(None, None))
    replica.close()
    return rows


def test_concurrent_catch_ups_produce_the_same_rows(log: Log, tmp_path: Path) -> None:
    directory = tmp_path / "0_0"
    processes = [start(log, directory) for _ in range(4)]
    rows = expected()
    assert [wait_for(process) for process in processes] == [(0, str(len(rows)), "")] * 4
    assert rows_in(log, directory) == rows


@pytest.mark.parametrize("count", [1, 4, 10])
def test_killed_writer_has_written_only_whole_chunks(
    log: Log, tmp_path: Path, count: int
) -> None:
    directory = tmp_path / "0_0"
    crash = f"applying:{count}:{tmp_path / 'once'}"
    killed = start(log, directory, PENSTOCK_CRASH_AT=crash)
    assert wait_for(killed)[0] == -signal.SIGKILL
    replica = replica_in(directory, log.id)
    position = replica.positions().get("s", 0)
    assert position == (count - 1) * CHUNK
    topics = LogChangelogs(log, {"s": TopicPartition(TOPIC, 0)})
    replica.catch_up(ReplicaTarget({"s": RECORDS}), topics)
    replica.close()
    assert rows_in(log, directory) == expected()


def test_other_processes_continue_when_a_writer_is_killed(log: Log, tmp_path: Path) -> None:
    directory = tmp_path / "0_0"
    crash = f"applying:2:{tmp_path / 'once'}"
    processes = [start(log, directory, PENSTOCK_CRASH_AT=crash) for _ in range(3)]
    codes = sorted(wait_for(process)[0] for process in processes)
    assert codes == [-signal.SIGKILL, 0, 0]
    assert rows_in(log, directory) == expected()


def test_stopped_writer_blocks_other_writers_but_not_readers(
    log: Log, tmp_path: Path
) -> None:
    directory, once = tmp_path / "0_0", tmp_path / "once"
    replica = replica_in(directory, log.id)
    stopped = start(log, directory, PENSTOCK_STOP_AT=f"applying:2:{once}")
    waited = os.waitid(os.P_PID, stopped.pid, os.WSTOPPED | os.WNOWAIT)
    assert waited is not None
    assert waited.si_status == signal.SIGSTOP
    other = start(log, directory)
    # A reader that has the files open is not blocked.
    assert replica.positions() == {"s": CHUNK}
    replica.close()
    os.kill(stopped.pid, signal.SIGCONT)
    rows = expected()
    assert [wait_for(stopped), wait_for(other)] == [(0, str(len(rows)), "")] * 2
    assert rows_in(log, directory) == rows
