"""LMDB under the rules that it sets: one file, many processes, a map that grows."""

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
        capture_output=True, text=True, timeout=60, check=False,
    )


def test_an_environment_is_opened_once_in_a_process(
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
        # It was about to be closed, and stays open for who comes before it is.
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


def test_one_that_is_deleted_while_it_is_opened_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows"
    LmdbEnvironment.open(path, create=True).close()
    really = lmdb.open

    def deleted_before(*arguments: Any, **options: Any) -> Any:
        shutil.rmtree(path)
        return really(*arguments, **options)

    monkeypatch.setattr(lmdb, "open", deleted_before)
    with pytest.raises(FileNotFoundError, match="was deleted"):
        LmdbEnvironment.open(path)


def test_one_that_is_not_there_is_not_made_by_accident(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no LMDB file"):
        LmdbEnvironment.open(tmp_path / "nowhere")


def test_a_reader_sees_what_was_committed_when_it_began(environment: LmdbEnvironment) -> None:
    put(environment, a="1")
    with environment.reading() as transaction:
        rows = transaction.open("t")
        assert rows is not None
        put(environment, a="2", b="3")
        assert (rows.get(b"a"), rows.get(b"b")) == (b"1", None)
        with pytest.raises(ProcessorStateException, match="snapshot"):
            rows.write([(b"a", b"x")])
    assert get(environment, "a") == b"2"


def test_what_raises_has_written_nothing(environment: LmdbEnvironment) -> None:
    put(environment, a="1")

    def work(transaction: LmdbTransaction) -> None:
        transaction.open_writable("t").write([(b"a", b"2")])
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        environment.write(["t"], work)
    assert get(environment, "a") == b"1"


def test_the_map_grows_when_it_is_full(environment: LmdbEnvironment) -> None:
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


def test_a_reader_that_died_does_not_hold_its_slot(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    LmdbEnvironment.open(path, create=True).close()
    assert run(READ_AND_DIE, path).returncode == -signal.SIGKILL
    environment = LmdbEnvironment.open(path)
    assert "no active readers" in environment._raw.readers()
    environment.close()


def test_a_writer_that_died_leaves_nothing_and_blocks_nobody(environment: LmdbEnvironment) -> None:
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


def test_a_forked_process_leaves_the_files_of_its_parent_alone(tmp_path: Path) -> None:
    LmdbEnvironment.open(tmp_path / "rows", create=True).close()
    ran = run(FORK, tmp_path / "rows")
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("damage", ["cut", "overwritten", "empty"])
def test_a_damaged_file_is_recognized(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "rows"
    environment = LmdbEnvironment.open(path, create=True)
    put(environment, **{f"k{n}": "x" * 100 for n in range(1000)})
    environment.sync()
    environment.close()
    file = path / "data.mdb"
    if damage == "cut":
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
    sys.exit("nothing was raised")
with environment.reading(["t"]) as transaction:
    assert transaction.open("t").count() == 0
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
environment.write(["t"], fill)
with environment.reading(["t"]) as transaction:
    assert transaction.open("t").count() == 50_000
"""


def test_no_room_on_the_disk_is_told_and_nothing_is_lost(tmp_path: Path) -> None:
    LmdbEnvironment.open(tmp_path / "rows", create=True).close()
    ran = run(FULL_DISK, tmp_path / "rows")
    assert (ran.returncode, ran.stderr) == (0, "")


def write_many(path: Path, first: int, done: multiprocessing.synchronize.Barrier) -> None:
    environment = LmdbEnvironment.open(path)
    done.wait(30)
    for n in range(first, first + 200):
        put(environment, **{f"k{n}": str(n)})
    environment.close()


def test_several_processes_write_one_after_the_other(tmp_path: Path) -> None:
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
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    environment = LmdbEnvironment.open(path)
    assert all(get(environment, f"k{n}") == str(n).encode() for n in range(600))
    environment.close()
