"""Files of the embedded log: invalid, foreign, read-only, full and damaged ones."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from contracts.log_records import numbered, pairs, values
from penstock.errors import ConfigException
from penstock.log import Log, TopicPartition, open_log
from penstock.log.embedded.schema import APPLICATION_ID, FORMAT_VERSION
from penstock.log.errors import (
    LogBusy,
    LogDamaged,
    LogFull,
    LogReadOnly,
    LogUnavailable,
    NewerFormat,
    NotALog,
)

OpenHandle = Callable[..., Log]


def test_new_file_has_the_application_id_and_version(path: Path, log: Log) -> None:
    log.create_topic("orders")
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert db.execute("PRAGMA user_version").fetchone() == (FORMAT_VERSION,)
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert db.execute("SELECT value FROM meta WHERE name = 'id'").fetchone() == (log.id,)
    db.close()


def test_empty_file_becomes_a_log(path: Path) -> None:
    path.touch()
    with pytest.raises(NotALog, match="empty"):
        open_log(path, create=False)
    with open_log(path) as log:
        log.create_topic("orders")


@pytest.mark.parametrize("content", [b"hello, this is a text\n" * 100, b"x"])
def test_other_file_is_not_changed(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(NotALog, match="not a penstock log"):
        open_log(path)
    assert path.read_bytes() == content


def test_other_sqlite_file_is_not_changed(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE mine (a)")
    db.close()
    before = path.read_bytes()
    with pytest.raises(NotALog, match="is an SQLite file, but not a penstock log"):
        open_log(path)
    assert path.read_bytes() == before


def test_newer_format_is_rejected(path: Path) -> None:
    open_log(path).close()
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {FORMAT_VERSION + 1}")
    db.close()
    with pytest.raises(NewerFormat, match="has format 3; this penstock supports formats up to 2"):
        open_log(path)


def test_missing_paths_are_reported(tmp_path: Path) -> None:
    with pytest.raises(LogUnavailable, match="The directory"):
        open_log(tmp_path / "nowhere" / "log.db")
    with pytest.raises(LogUnavailable, match="does not exist"):
        open_log(tmp_path / "log.db", create=False)
    with pytest.raises(LogUnavailable, match="does not exist"):
        open_log(tmp_path / "log.db", read_only=True)
    with pytest.raises(NotALog, match="is a directory"):
        open_log(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_invalid_options_are_rejected(path: Path) -> None:
    with pytest.raises(ConfigException, match="synchronous"):
        open_log(path, synchronous="SOMETIMES")
    with pytest.raises(ConfigException, match="busy_timeout_ms"):
        open_log(path, busy_timeout_ms=-1)
    with pytest.raises(ConfigException, match="No broker"):
        open_log("kafka://")


@pytest.mark.parametrize("synchronous", ["off", "NORMAL", "full"])
def test_every_synchronous_mode_works(path: Path, synchronous: str) -> None:
    with open_log(path, synchronous=synchronous) as log:
        log.create_topic("orders")
        log.append("orders", 0, numbered([1]))
        assert pairs(log, "orders") == [(b"k1", b"1")]


def test_read_only_log_rejects_writes(
    path: Path, log: Log, open_handle: OpenHandle
) -> None:
    log.create_topic("orders")
    log.append("orders", 0, numbered([1]))
    reader = open_handle(read_only=True)
    assert pairs(reader, "orders") == [(b"k1", b"1")]
    log.append("orders", 0, numbered([2]))
    assert reader.wait_for_change(60)
    assert values(reader.read("orders", 0, 1)) == [b"2"]
    with pytest.raises(LogReadOnly):
        reader.append("orders", 0, numbered([3]))
    with pytest.raises(LogReadOnly):
        reader.create_topic("other")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write every file")
def test_file_without_write_permission_is_read_only(path: Path) -> None:
    with open_log(path) as log:
        log.create_topic("orders")
        log.append("orders", 0, numbered([1]))
    path.chmod(0o444)
    with open_log(path) as log:
        assert pairs(log, "orders") == [(b"k1", b"1")]
        with pytest.raises(LogReadOnly, match="cannot be written"):
            log.append("orders", 0, numbered([2]))


def test_full_log_rejects_whole_appends_and_recovers(
    path: Path, open_handle: OpenHandle
) -> None:
    log = open_handle(max_file_bytes=2_000_000)
    log.create_topic("orders", 1, {"retention.bytes": 500_000})
    rng = random.Random(1)
    count = 0

    def fill() -> None:
        nonlocal count
        while True:
            noise = [rng.randbytes(1000) for _ in range(100)]
            log.append("orders", 0, replace(numbered(range(100)), values=noise))
            count += 100

    with pytest.raises(LogFull, match="Nothing was written"):
        fill()
    assert count > 1000
    assert len(pairs(log, "orders")) == count
    assert log.clean().records_expired > 500
    log.append("orders", 0, numbered([1]))
    assert path.stat().st_size <= 2_000_000


def test_wait_for_another_writer_is_limited(
    path: Path, open_handle: OpenHandle
) -> None:
    log = open_handle(busy_timeout_ms=30)
    log.create_topic("orders")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LogBusy, match="for 30 ms"):
        log.append("orders", 0, numbered([1]))
    assert pairs(log, "orders") == []
    other.execute("ROLLBACK")
    log.append("orders", 0, numbered([2]))
    assert pairs(log, "orders") == [(b"k2", b"2")]
    other.close()


def test_damaged_batch_is_reported(path: Path, log: Log) -> None:
    log.create_topic("orders")
    log.append("orders", 0, numbered(range(1000)))
    with sqlite3.connect(path) as db:
        db.execute("UPDATE blobs SET data = zeroblob(100)")
    db.close()
    with pytest.raises(LogDamaged, match=r"Offsets 0 to 999 of 'orders' \[0\] are damaged"):
        list(log.read("orders", 0, 0))


def test_processes_that_create_a_log_at_once_share_it(path: Path) -> None:
    code = f"from penstock.log import open_log; print(open_log({str(path)!r}).id)"
    starting = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    ids = {process.communicate()[0].strip() for process in starting}
    assert [process.returncode for process in starting] == [0] * 4
    assert len(ids) == 1


def test_threads_share_a_log(log: Log) -> None:
    log.create_topic("orders", 4)
    failures: list[BaseException] = []

    def work(partition: int) -> None:
        try:
            for number in range(50):
                log.append("orders", partition, numbered([number]))
                assert len(pairs(log, "orders", partition)) == number + 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_forked_children_and_threads_write_concurrently(log: Log) -> None:
    code = (
        "import os, threading\n"
        "from penstock.log import RecordColumns, open_log\n"
        f"log = open_log({log.address!r})\n"
        "def write(name):\n"
        "    for n in range(40):\n"
        "        log.append('orders', 0, RecordColumns([name], [b'%d' % n], [1]))\n"
        "threads = [threading.Thread(target=write, args=(b't%d' % n,)) for n in range(2)]\n"
        "for thread in threads: thread.start()\n"
        "children = []\n"
        "for number in range(4):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        write(b'c%d' % number)\n"
        "        os._exit(0)\n"
        "    children.append(child)\n"
        "for thread in threads: thread.join()\n"
        "assert all(os.waitpid(child, 0)[1] == 0 for child in children)\n"
    )
    log.create_topic("orders")
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=120)
    found = pairs(log, "orders")
    for name in (b"t0", b"t1", b"c0", b"c1", b"c2", b"c3"):
        assert [value for key, value in found if key == name] == [b"%d" % n for n in range(40)]


def test_wal_is_reused(path: Path, log: Log, open_handle: OpenHandle) -> None:
    log.create_topic("orders")
    other = open_handle()
    rng = random.Random(2)
    noise = [rng.randbytes(1000) for _ in range(2000)]
    for number in range(60):
        writer = log if number % 2 else other
        writer.append("orders", 0, replace(numbered(range(2000)), values=noise))
        assert len(list(other.read("orders", 0, 2000 * number))) > 0
    assert path.stat().st_size > 100_000_000
    assert path.with_name("log.db-wal").stat().st_size < 40_000_000


def test_forked_child_continues_with_its_copy(log: Log) -> None:
    code = (
        "import os, sys\n"
        "from penstock.log import RecordColumns, open_log\n"
        f"log = open_log({log.address!r})\n"
        "log.append('orders', 0, RecordColumns([b'a'], [b'parent'], [1]))\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    log.append('orders', 0, RecordColumns([b'a'], [b'child'], [1]))\n"
        "    log.close()\n"
        "    os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "log.append('orders', 0, RecordColumns([b'a'], [b'after'], [1]))\n"
    )
    log.create_topic("orders")
    subprocess.run([sys.executable, "-c", code], check=True)
    assert values(log.read("orders", 0, 0)) == [b"parent", b"child", b"after"]
    assert log.offsets([TopicPartition("orders", 0)])["orders", 0].end == 3
