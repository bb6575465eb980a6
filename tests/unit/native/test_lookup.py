"""`core.pooled_lookup` uses a free session while the gate is open, and the reader otherwise."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import native
from penstock.stores.bytes.lmdb.environment import LmdbEnvironment
from penstock.stores.bytes.lmdb.long_keys import MAX_KEY_SIZE
from penstock.stores.bytes.lmdb.reader import LmdbReader
from penstock.stores.replica.generations import Generations
from penstock.stores.replica.store_reader import LookupGate, StoreSession

if native.core is None:
    pytest.skip(f"penstock runs {native.in_use()}", allow_module_level=True)

core = native.core
ROWS = "rows/words"


class Pool:
    """A pool with one session, on a file with some rows."""

    def __init__(self, directory: Path) -> None:
        generations = Generations(directory)
        name = generations.replace(None)
        self.environment: LmdbEnvironment = generations.open(name, 1 << 20)
        self.environment.prepare([ROWS])
        self.reader = LmdbReader(self.environment)
        self.gate = LookupGate()
        self.gate.generation, self.gate.until = "1", float("inf")
        self.free: list[StoreSession] = []
        self.commits = 0
        self.careful: list[Any] = []
        self.write({b"\0tea": b"3", b"\0milk": b"1"})
        self.rows = self.reader.open(ROWS)
        self.session = self.new_session("1", self._load)
        self.lookup = core.pooled_lookup(
            self.gate, self.free, lambda: 0.0, lambda: self.commits, self._look_up
        )

    def write(self, rows: dict[bytes, bytes]) -> None:
        def put(transaction: Any) -> None:
            for key, value in rows.items():
                transaction._raw.put(key, value, db=transaction._databases[ROWS])

        self.environment.write([ROWS], put)

    def new_session(self, generation: str, load: Callable[[Any], Any]) -> StoreSession:
        owner: Any = None
        session = StoreSession(owner, "words", generation, self.reader)
        session.load_value = load
        session.number = self.reader.begin()
        self.reader.end()
        self.free.append(session)
        return session

    def _load(self, key: str) -> bytes | None:
        return self.rows.get(key.encode())

    def _look_up(self, key: str) -> str:
        self.careful.append(key)
        return "careful"


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    pool = Pool(tmp_path)
    yield pool
    pool.environment.close()


def test_open_gate_reads_the_last_commit(pool: Pool) -> None:
    assert [pool.lookup(key) for key in ("tea", "milk", "tea", "salt")] == [b"3", b"1", b"3", None]
    assert pool.careful == []
    assert pool.free == [pool.session]
    assert pool.reader.transaction is None


def test_key_that_is_too_long_for_a_row_is_read_too(pool: Pool) -> None:
    assert pool.lookup("x" * (MAX_KEY_SIZE + 1)) is None
    assert pool.careful == []


def test_closed_gate_calls_the_reader(pool: Pool) -> None:
    pool.gate.until = 0.0
    assert pool.lookup("tea") == "careful"


def test_new_commit_calls_the_reader(pool: Pool) -> None:
    pool.write({b"\0tea": b"4"})
    assert pool.lookup("tea") == "careful"
    assert pool.free == [pool.session]


def test_commit_that_must_be_read_first_calls_the_reader(pool: Pool) -> None:
    pool.gate.commits = 0
    assert pool.lookup("tea") == b"3"
    pool.commits = 1
    assert pool.lookup("tea") == "careful"


def test_commits_of_the_gate_may_change_while_they_are_compared(pool: Pool) -> None:
    events = []

    class Commits:
        def __eq__(self, other: object) -> bool:
            events.append("compared")
            return True

        __hash__ = None  # type: ignore[assignment]

        def __del__(self) -> None:
            events.append("released")

    def count_commits() -> int:
        pool.gate.commits = 1
        return 0

    gate: Any = pool.gate
    gate.commits = Commits()
    lookup = core.pooled_lookup(pool.gate, pool.free, lambda: 0.0, count_commits, pool._look_up)
    assert lookup("tea") == b"3"
    assert events == ["compared", "released"]


def test_without_a_free_session_the_reader_is_called(pool: Pool) -> None:
    pool.free.clear()
    assert pool.lookup("tea") == "careful"


def test_session_of_another_generation_is_closed(pool: Pool) -> None:
    pool.gate.generation = "2"
    assert pool.lookup("tea") == "careful"
    assert pool.free == []


def test_error_of_the_fast_path_calls_the_reader(pool: Pool) -> None:
    def fail(key: object) -> Any:
        raise ValueError(key)

    pool.session.load_value = fail
    assert pool.lookup("tea") == "careful"
    assert pool.free == [pool.session]
    assert not pool.reader.lock.locked()


def test_interrupt_is_not_swallowed(pool: Pool) -> None:
    def interrupt(key: object) -> Any:
        raise KeyboardInterrupt

    pool.session.load_value = interrupt
    with pytest.raises(KeyboardInterrupt):
        pool.lookup("tea")
    assert pool.careful == []
    assert not pool.reader.lock.locked()
    assert pool.free == [pool.session]


def test_forked_process_calls_the_reader(pool: Pool) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0 if pool.lookup("tea") == "careful" else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert pool.lookup("tea") == b"3"


def test_threads_share_the_pool(pool: Pool) -> None:
    found: set[Any] = set()

    def look_up() -> None:
        found.update(pool.lookup("tea") for _ in range(2_000))

    threads = [threading.Thread(target=look_up) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found <= {b"3", "careful"}
    assert pool.free == [pool.session]


def test_value_is_loaded_without_its_timestamp() -> None:
    rows = {b"tea": (7).to_bytes(8, "big") + b"3", b"none": bytes(8) + b"-", b"short": b"3"}
    read: Callable[[bytes], Any] = {b"3": 3, b"-": None}.__getitem__
    load = core.value_load(rows.get, read, read)
    assert [load(key) for key in (b"tea", b"none", b"milk")] == [3, None, None]
    with pytest.raises(ValueError, match="at least 8 bytes"):
        load(b"short")


def test_value_is_read_by_the_careful_function_if_the_fast_one_fails() -> None:
    def refuse(data: bytes) -> Any:
        raise TypeError(data)

    load = core.value_load({b"tea": bytes(8) + b"3"}.get, refuse, int)
    assert load(b"tea") == 3
