"""Table replication: the table in a database equals the source, whenever its writer fails.

The tests run with SQLite and with a real PostgreSQL.
"""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from showcase import Input, send
from table_replication.replica import PostgresReplica, Replica, RowChange, open_replica
from table_replication.source import Source
from table_replication.topology import (
    CHANGES,
    CUSTOMERS,
    Customer,
    build,
    row_after,
)
from table_replication.writer import main, replicate

from examples import postgresql
from penstock import Streams, StreamsConfig
from penstock.clients import AdminClient, KafkaException, Producer, TopicPartition
from penstock.log import open_log

POSTGRESQL = [
    pytest.mark.full, pytest.mark.slow,
    pytest.mark.skipif(
        postgresql.find() is None, reason="PostgreSQL is missing; see tests/examples/postgresql.py"
    ),
]
MASTERS = ["inline", pytest.param("local[2]", marks=[pytest.mark.slow, pytest.mark.spark])]
SALLY = Customer(1001, "Sally Thomas", "sally@example.com", "Oslo")
MOVED = Customer(1001, "Sally Thomas", "sally@example.com", "Turin")


class Failure(Exception):
    """The failure that a test provokes."""


def fail_after(replica: Replica, statements: int) -> None:
    """Let a replica fail after it has executed a number of statements."""
    execute, left = replica._execute, itertools.count(statements, -1)

    def failing(statement: str, *values: object) -> Iterable[Any]:
        result = execute(statement, *values)
        if next(left) == 0:
            raise Failure
        return result

    replica._execute = failing


@pytest.fixture(scope="module")
def postgresql_server() -> Iterator[str]:
    with postgresql.server() as address:
        yield address


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=POSTGRESQL)])
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Creates databases of one kind. Returns their addresses."""
    numbers = itertools.count()
    if request.param == "sqlite":
        return lambda: str(tmp_path / f"customers-{next(numbers)}.db")
    server = request.getfixturevalue("postgresql_server")
    return lambda: new_postgresql_database(server)


_database_numbers = itertools.count()


def new_postgresql_database(server: str) -> str:
    import psycopg

    name = f"customers_{next(_database_numbers)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return server.removesuffix("/postgres") + f"/{name}"


@pytest.fixture
def database(new_database: Callable[[], str]) -> str:
    return new_database()


@pytest.fixture
def log(tmp_path: Path) -> str:
    address = str(tmp_path / "log.db")
    with open_log(address) as opened:
        for topic in (CHANGES, CUSTOMERS):
            opened.create_topic(topic, 2, {"retention.ms": -1})
    return address


@pytest.fixture
def new_replica(database: str) -> Iterator[Callable[[], Replica]]:
    """Opens one database several times, as several writers do."""
    opened: list[Replica] = []

    def open_one() -> Replica:
        opened.append(open_replica(database))
        return opened[-1]

    yield open_one
    for replica in opened:
        replica.close()


def send_to(log: str, events: Iterator[Input] | list[Input]) -> list[Input]:
    sent = list(events)
    with open_log(log) as opened:
        send(opened, sent)
    return sent


def as_rows(events: list[Input]) -> list[Input]:
    """The records that the application writes for these events."""
    return [each._replace(topic=CUSTOMERS, value=row_after(each.value)) for each in events]


def expected_rows(source: Source, events: list[Input]) -> list[tuple[Customer, int]]:
    """The rows of the source, and how many of the events wrote each of them."""
    writes = Counter(each.key.id for each in events if row_after(each.value) is not None)
    return [(row, writes[row.id]) for row in source.rows.values()]


def test_table_equals_the_source_after_a_failure_at_any_statement(
    log: str, new_database: Callable[[], str]
) -> None:
    source = Source(seed=3)
    events = [*source.snapshot(5), *source.change(12)]
    send_to(log, as_rows(events))
    for statements in itertools.count():
        database = new_database()
        failing = open_replica(database)
        fail_after(failing, statements)
        has_failed = False
        try:
            for _ in replicate(log, failing, batch_size=4):
                pass
        except Failure:
            has_failed = True
        failing.close()
        replica = open_replica(database)
        rest = sum(replicate(log, replica, batch_size=4))
        assert replica.rows() == expected_rows(source, events), statements
        replica.close()
        if not has_failed:
            break
    # Each event needs a statement, and each transaction one for its start and one for offsets.
    assert statements > len(events) + 2 * (len(events) // 4)
    assert rest == 0


def test_failed_batch_leaves_no_trace(new_replica: Callable[[], Replica]) -> None:
    replica = new_replica()
    replica.apply([RowChange(0, 4, 1001, SALLY)])
    failing = new_replica()
    # The lock, the positions, two rows, and the failure after the new position.
    fail_after(failing, 4)
    with pytest.raises(Failure):
        failing.apply([RowChange(0, 5, 1001, MOVED), RowChange(0, 6, 1001, MOVED)])
    assert replica.rows() == [(SALLY, 1)]
    assert replica.positions() == {0: 5}
    # The failed transaction has released its lock.
    assert replica.apply([RowChange(0, 5, 1001, MOVED)]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("kills", [
    pytest.param(("after-commit",) * 40, id="after-each-commit"),
    # After each statement of a first transaction, and of some of a second one.
    pytest.param(
        tuple(map(str, range(1, 16))), id="after-each-statement", marks=pytest.mark.full
    ),
])
def test_killed_writers_lose_and_repeat_nothing(
    log: str, database: str, kills: tuple[str, ...]
) -> None:
    source = Source(seed=4)
    events = [*source.snapshot(6), *source.change(10)]
    records = send_to(log, as_rows(events))
    codes = []
    for kill in (*kills, "never"):
        codes.append(run_killed_writer(log, database, kill))
        if codes[-1] == 0:
            break
    # The last process has reached the end of the topic. All others were killed.
    assert codes.pop() == 0
    assert set(codes) == {-signal.SIGKILL}
    assert len(codes) >= min(len(kills), len(records) // 4)
    replica = open_replica(database)
    assert replica.rows() == expected_rows(source, events)
    assert sum(replica.positions().values()) == len(records)
    replica.close()


def run_killed_writer(log: str, database: str, kill: str) -> int:
    """Run a writer that kills itself. Returns its exit code."""
    ran = subprocess.run(
        [sys.executable, Path(__file__).with_name("killed_writer.py"), log, database, kill],
        capture_output=True, text=True, check=False, timeout=120,
    )
    assert ran.returncode in (0, -signal.SIGKILL), ran.stderr
    return ran.returncode


def test_replayed_changes_are_skipped(new_replica: Callable[[], Replica]) -> None:
    replica = new_replica()
    batch = [RowChange(0, 0, 1001, SALLY), RowChange(0, 1, 1001, MOVED)]
    assert replica.apply(batch) == 2
    assert replica.apply(batch) == 0
    assert replica.apply([*batch, RowChange(0, 2, 1001, SALLY), RowChange(1, 0, 7, None)]) == 2
    assert replica.rows() == [(SALLY, 3)]
    assert replica.positions() == {0: 3, 1: 1}


def test_two_writers_write_each_change_once(
    log: str, new_replica: Callable[[], Replica]
) -> None:
    source = Source(seed=8)
    events = [*source.snapshot(6), *source.change(20)]
    records = send_to(log, as_rows(events))
    writers = [replicate(log, new_replica(), batch_size=3) for _ in range(2)]
    written = [count for pair in itertools.zip_longest(*writers, fillvalue=0) for count in pair]
    assert sum(written) == len(records)
    assert written.count(0) >= len(written) // 2
    assert new_replica().rows() == expected_rows(source, events)


def test_records_of_an_aborted_transaction_are_not_written(
    log: str, new_replica: Callable[[], Replica]
) -> None:
    key, value = b'{"id":1001}', b'{"id":1001,"name":"Sally Thomas","email":"%b","city":"Oslo"}'
    with Producer({"log": log, "transactional.id": "customers"}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(CUSTOMERS, value % b"aborted@example.com", key=key)
        producer.abort_transaction()
        producer.begin_transaction()
        producer.produce(CUSTOMERS, value % b"sally@example.com", key=key)
        producer.commit_transaction()
    replica = new_replica()
    assert sum(replicate(log, replica)) == 1
    assert replica.rows() == [(SALLY, 1)]


def test_position_that_retention_has_removed_is_an_error(
    log: str, new_replica: Callable[[], Replica]
) -> None:
    replica = new_replica()
    replica.apply([RowChange(0, 0, 1001, SALLY)])
    with Producer({"log": log}) as producer:
        for _ in range(3):
            producer.produce(CUSTOMERS, None, key=b'{"id":1001}', partition=0)
    with AdminClient({"log": log}) as admin:
        for future in admin.delete_records([TopicPartition(CUSTOMERS, 0, 2)]).values():
            future.result()
    with pytest.raises(KafkaException, match="has no initial offset"):
        sum(replicate(log, replica))
    assert replica.rows() == [(SALLY, 1)]


@pytest.mark.slow
def test_writer_follows_the_topic_until_it_is_interrupted(log: str, database: str) -> None:
    source = Source(seed=2)
    send_to(log, as_rows(list(source.snapshot(3))))
    writer = Path(sys.modules[replicate.__module__].__file__ or "")
    with subprocess.Popen(
        [sys.executable, writer, "--log", log, "--database", database],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:
        assert process.stdout is not None
        written = 0
        while written < 3:
            line = process.stdout.readline()
            assert line, process.communicate()
            written += int(line.removesuffix(" changes written\n"))
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    replica = open_replica(database)
    assert [row for row, _ in replica.rows()] == list(source.rows.values())
    replica.close()


def test_server_that_does_not_exist_is_reported_without_the_password(
    log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    address = "postgresql://penstock:secret@127.0.0.1:1/customers"
    assert main(["--log", log, "--database", address]) == 1
    message = capsys.readouterr().err
    assert message.startswith("PostgreSQL cannot be used: connection ")
    assert "secret" not in message


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.skipif(postgresql.find() is None, reason="PostgreSQL is missing")
def test_strict_isolation_of_the_server_changes_nothing(
    log: str, postgresql_server: str
) -> None:
    database = new_postgresql_database(postgresql_server)
    database += "?options=-cdefault_transaction_isolation%3Dserializable"
    writers = [open_replica(database) for _ in range(2)]
    assert all(isinstance(writer, PostgresReplica) for writer in writers)
    batch = [RowChange(0, 0, 1001, SALLY)]
    results: list[int] = []
    with writers[0]._transaction():
        # The second writer waits for the lock, and must see what the first one commits then.
        waiting = threading.Thread(target=lambda: results.append(writers[1].apply(batch)))
        waiting.start()
        wait_until_blocked(writers[0])
        writers[0]._write(batch[0])
        writers[0]._store_positions({0: 1})
    waiting.join(60)
    assert results == [0]
    assert writers[0].rows() == [(SALLY, 1)]
    for writer in writers:
        writer.close()


def wait_until_blocked(replica: Replica) -> None:
    """Wait until another session waits for the lock of the current transaction."""
    deadline = time.monotonic() + 60
    while not list(replica._execute("SELECT 1 FROM pg_locks WHERE NOT granted")):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.skipif(postgresql.find() is None, reason="PostgreSQL is missing")
def test_demo_writes_to_postgresql_once(postgresql_server: str, tmp_path: Path) -> None:
    database = new_postgresql_database(postgresql_server)
    command = [
        sys.executable, "-m", "penstock", "demo", "table-replication", "--master", "inline",
        "--database", database,
    ]
    first, second = (
        subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path
        )
        for _ in range(2)
    )
    assert (first.returncode, first.stderr) == (0, "")
    assert "== table customers in PostgreSQL\n" in first.stdout
    assert "  The table equals the source.\n" in first.stdout
    assert second.returncode == 1
    assert second.stderr.startswith("The database has rows of another topic")


@pytest.mark.parametrize("master", MASTERS)
def test_application_and_writers_replicate_exactly_once(
    master: str, log: str, tmp_path: Path, new_replica: Callable[[], Replica]
) -> None:
    source = Source(seed=5)
    events = send_to(log, source.snapshot(10))
    config = StreamsConfig(
        application_id="table-replication", log=log, state_dir=str(tmp_path / "state")
    )
    with Streams(build(), config, master=master) as streams:
        streams.run_until_caught_up(120)
        # This writer stops after its first batch.
        assert next(replicate(log, new_replica(), batch_size=4)) > 0
        events += send_to(log, source.change(30))
        streams.run_until_caught_up(120)
        replica = new_replica()
        assert sum(replicate(log, replica, batch_size=4)) > 0
    assert replica.rows() == expected_rows(source, events)
    assert len(source.rows) < len({each.key for each in events})
