"""LMDB environments: one file, many processes, a growing map."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lmdb
import pytest

from penstock.errors import ProcessorStateException, TaskCorruptedException
from penstock.stores.bytes.lmdb.environment import (
    EnvironmentClosed,
    LmdbEnvironment,
    LmdbTransaction,
)

SMALL_MAP = 256 << 10


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[LmdbEnvironment]:
    opened = LmdbEnvironment.open(tmp_path / "rows", create=True, map_size=SMALL_MAP)
    yield opened
    opened.close()


def put(environment: LmdbEnvironment, **rows: str) -> None:
    environment.write(["t"], lambda transaction: transaction.open_writable("t").write(
        (key.encode(), value.encode()) for key, value in rows.items()
    ))


def get(environment: LmdbEnvironment, key: str) -> bytes | None:
    with environment.reading(["t"]) as transaction:
        rows = transaction.open("t")
        assert rows is not None
        return rows.get(key.encode())


def run(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True, text=True, timeout=180, check=False,
    )


def test_environment_is_opened_once_per_process(
    environment: LmdbEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(environment.path.parent)
    for path in (environment.path, Path(environment.path.name)):
        again = LmdbEnvironment.open(path)
        assert again is environment
        again.close()


def test_file_closes_when_all_users_have_closed_it(environment: LmdbEnvironment) -> None:
    put(environment, a="1")
    other = LmdbEnvironment.open(environment.path)
    environment.close()
    assert get(other, "a") == b"1"
    with other.reading() as transaction:
        other.close()
        with pytest.raises(EnvironmentClosed):
            get(other, "a")
        # A new user keeps the file open while a transaction delays its closing.
        third = LmdbEnvironment.open(environment.path)
        assert third is environment
        rows = transaction.open("t")
        assert rows is not None
        assert rows.get(b"a") == b"1"
    assert get(third, "a") == b"1"
    third.close()
    last = LmdbEnvironment.open(environment.path)
    assert last is not environment
    assert get(last, "a") == b"1"
    last.close()


def test_environment_deleted_while_opening_raises_file_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows"
    LmdbEnvironment.open(path, create=True).close()
    original_open = lmdb.open

    def delete_and_open(*arguments: Any, **options: Any) -> Any:
        shutil.rmtree(path)
        return original_open(*arguments, **options)

    monkeypatch.setattr(lmdb, "open", delete_and_open)
    with pytest.raises(FileNotFoundError, match="was deleted"):
        LmdbEnvironment.open(path)


def test_missing_environment_is_not_created_implicitly(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no LMDB file"):
        LmdbEnvironment.open(tmp_path / "nowhere")


def test_reader_sees_the_commits_from_before_its_start(environment: LmdbEnvironment) -> None:
    put(environment, a="1")
    with environment.reading() as transaction:
        rows = transaction.open("t")
        assert rows is not None
        put(environment, a="2", b="3")
        assert (rows.get(b"a"), rows.get(b"b")) == (b"1", None)
        with pytest.raises(ProcessorStateException, match="snapshot"):
            rows.write([(b"a", b"x")])
    assert get(environment, "a") == b"2"


def test_failed_transaction_writes_nothing(environment: LmdbEnvironment) -> None:
    put(environment, a="1")

    def work(transaction: LmdbTransaction) -> None:
        transaction.open_writable("t").write([(b"a", b"2")])
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        environment.write(["t"], work)
    assert get(environment, "a") == b"1"


def test_full_map_is_enlarged(environment: LmdbEnvironment) -> None:
    calls = []

    def work(transaction: LmdbTransaction) -> None:
        calls.append(1)
        transaction.open_writable("t").write((b"%07d" % n, b"x" * 100) for n in range(50_000))

    environment.write(["t"], work)
    assert len(calls) > 1
    with environment.reading() as transaction:
        rows = transaction.open("t")
        assert rows is not None
        assert rows.count() == 50_000


GROW = """
import sys
from pathlib import Path
from penstock.stores.bytes.lmdb.environment import LmdbEnvironment
environment = LmdbEnvironment.open(Path(sys.argv[1]), map_size=1 << 30)
environment.write(["t"], lambda transaction: transaction.open_writable("t").write(
    (b"%07d" % n, b"x" * 100) for n in range(50_000)
))
environment.close()
"""


def test_map_size_of_another_process_is_adopted(environment: LmdbEnvironment) -> None:
    put(environment, a="1")
    assert run(GROW, environment.path).stderr == ""
    assert get(environment, "a") == b"1"
    assert get(environment, "0049999") == b"x" * 100
    put(environment, b="2")
    assert get(environment, "b") == b"2"


READ_AND_DIE = """
import os, signal, sys
from pathlib import Path
from penstock.stores.bytes.lmdb.environment import LmdbEnvironment
with LmdbEnvironment.open(Path(sys.argv[1])).reading(["t"]):
    os.kill(os.getpid(), signal.SIGKILL)
"""

WRITE_AND_DIE = """
import os, signal, sys
from pathlib import Path
from penstock.stores.bytes.lmdb.environment import LmdbEnvironment
def work(transaction):
    transaction.open_writable("t").write([(b"a", b"lost")])
    os.kill(os.getpid(), signal.SIGKILL)
LmdbEnvironment.open(Path(sys.argv[1])).write(["t"], work)
"""


def test_dead_reader_releases_its_slot(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    LmdbEnvironment.open(path, create=True).close()
    assert run(READ_AND_DIE, path).returncode == -signal.SIGKILL
    environment = LmdbEnvironment.open(path)
    assert "no active readers" in environment._raw.readers()
    environment.close()


def test_dead_writer_leaves_no_changes_and_no_lock(environment: LmdbEnvironment) -> None:
    put(environment, a="1")
    assert run(WRITE_AND_DIE, environment.path).returncode == -signal.SIGKILL
    assert get(environment, "a") == b"1"
    put(environment, a="2")
    assert get(environment, "a") == b"2"


FORK = """
import os, sys
from pathlib import Path
from penstock.errors import ProcessorStateException
from penstock.stores.bytes.lmdb.environment import LmdbEnvironment
path = Path(sys.argv[1])
parent = LmdbEnvironment.open(path)
write = lambda environment, value: environment.write(
    ["t"], lambda transaction: transaction.open_writable("t").write([(b"a", value)])
)
write(parent, b"1")
with parent.reading() as transaction:
    child = os.fork()
    if not child:
        for use in (lambda: write(parent, b"2"), lambda: LmdbEnvironment.open(path)):
            try:
                use()
            except ProcessorStateException as error:
                assert "forked" in str(error)
            else:
                os._exit(1)
        write(LmdbEnvironment.open(path.with_name("other"), create=True), b"3")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert str(os.getpid()) in parent._raw.readers()
    write(parent, b"4")
    assert transaction.open("t").get(b"a") == b"1"
"""


def test_forked_process_cannot_use_the_environment_of_its_parent(tmp_path: Path) -> None:
    LmdbEnvironment.open(tmp_path / "rows", create=True).close()
    ran = run(FORK, tmp_path / "rows")
    assert (ran.returncode, ran.stderr) == (0, "")


FORK_BETWEEN_READS = """
import os, sys
from pathlib import Path
from penstock.stores.bytes.lmdb.environment import LmdbEnvironment
parent = LmdbEnvironment.open(Path(sys.argv[1]))

def read():
    with parent.reading(["t"]) as transaction:
        return transaction.open("t").get(b"a")

parent.write(["t"], lambda transaction: transaction.open_writable("t").write([(b"a", b"1")]))
assert read() == b"1"
child = os.fork()
if not child:
    del parent
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
with parent.reading(["t"]) as transaction:
    assert str(os.getpid()) in parent._raw.readers()
    parent.write(["t"], lambda transaction: transaction.open_writable("t").write([(b"a", b"2")]))
    assert transaction.open("t").get(b"a") == b"1"
assert read() == b"2"
"""


def test_forked_process_that_ends_leaves_the_cached_transaction_of_its_parent(
    tmp_path: Path,
) -> None:
    LmdbEnvironment.open(tmp_path / "rows", create=True).close()
    ran = run(FORK_BETWEEN_READS, tmp_path / "rows")
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("damage", ["truncated", "overwritten", "too short"])
def test_corrupt_file_is_detected(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "rows"
    environment = LmdbEnvironment.open(path, create=True)
    put(environment, **{f"k{n}": "x" * 100 for n in range(1000)})
    environment.sync()
    environment.close()
    file = path / "data.mdb"
    if damage == "truncated":
        os.truncate(file, file.stat().st_size // 2)
    elif damage == "overwritten":
        file.write_bytes(b"\xa5" * file.stat().st_size)
    else:
        file.write_bytes(b"x")
    with pytest.raises(TaskCorruptedException):
        LmdbEnvironment.open(path)


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from penstock.errors import ProcessorStateException
from penstock.stores.bytes.lmdb.environment import LmdbEnvironment
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
environment = LmdbEnvironment.open(Path(sys.argv[1]))
fill = lambda transaction: transaction.open_writable("t").write(
    (b"%07d" % n, b"x" * 100) for n in range(50_000)
)
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
try:
    environment.write(["t"], fill)
except ProcessorStateException as error:
    assert "free some space" in str(error), error
else:
    sys.exit("no error was raised")
with environment.reading(["t"]) as transaction:
    assert transaction.open("t").count() == 0
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
environment.write(["t"], fill)
with environment.reading(["t"]) as transaction:
    assert transaction.open("t").count() == 50_000
"""


def test_full_disk_is_reported_and_nothing_is_lost(tmp_path: Path) -> None:
    LmdbEnvironment.open(tmp_path / "rows", create=True).close()
    ran = run(FULL_DISK, tmp_path / "rows")
    assert (ran.returncode, ran.stderr) == (0, "")


def write_many(path: Path, first: int, done: multiprocessing.synchronize.Barrier) -> None:
    environment = LmdbEnvironment.open(path)
    done.wait(180)
    for n in range(first, first + 200):
        put(environment, **{f"k{n}": str(n)})
    environment.close()


def test_writers_of_several_processes_take_turns(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    LmdbEnvironment.open(path, create=True).close()
    spawn = multiprocessing.get_context("spawn")
    start = spawn.Barrier(3)
    processes = [
        spawn.Process(target=write_many, args=(path, n * 200, start)) for n in range(3)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(180)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    environment = LmdbEnvironment.open(path)
    assert all(get(environment, f"k{n}") == str(n).encode() for n in range(600))
    environment.close()


#: Limits the address space to so many MiB more than the process has, then writes rows of 1 MiB.
LIMITED = """
import resource, sys
from pathlib import Path
from penstock.stores.bytes.lmdb.environment import LmdbEnvironment
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
limit = used + (int(sys.argv[2]) << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
environment = LmdbEnvironment.open(Path(sys.argv[1]), create=True)
for number in range(int(sys.argv[3])):
    environment.write(["t"], lambda transaction: transaction.open_writable("t").write(
        [(b"%d" % number, bytes(1 << 20))]
    ))
with environment.reading(["t"]) as transaction:
    print(sum(transaction.open("t").get(b"%d" % n) is not None for n in range(number + 1)))
"""
needs_proc = pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="the system has no /proc"
)


@needs_proc
def test_map_fits_into_a_limited_address_space_and_grows(tmp_path: Path) -> None:
    """As with spark.executor.pyspark.memory. A file of another process may have a larger map."""
    done = run(LIMITED, tmp_path / "rows", 256, 20)
    assert (done.stdout.strip(), done.stderr) == ("20", "")
    unlimited = LmdbEnvironment.open(tmp_path / "rows")
    put(unlimited, late="row")
    unlimited.close()
    done = run(LIMITED, tmp_path / "rows", 256, 20)
    assert (done.stdout.strip(), done.stderr) == ("20", "")


@needs_proc
def test_full_address_space_is_reported_with_the_setting_that_limits_it(tmp_path: Path) -> None:
    done = run(LIMITED, tmp_path / "rows", 64, 200)
    assert "does not fit into the address space" in done.stderr
    assert "spark.executor.pyspark.memory" in done.stderr.splitlines()[-1]
