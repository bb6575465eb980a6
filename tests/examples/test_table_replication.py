"""Table replication: the table in SQLite equals the source, whenever its writer fails."""

from __future__ import annotations

import itertools
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from showcase import Input, send
from table_replication.source import Source
from table_replication.topology import (
    CHANGES,
    CUSTOMERS,
    Change,
    Customer,
    CustomerKey,
    build,
    row_after,
)
from table_replication.writer import Replica, RowChange, replicate

from penstock import Streams, StreamsConfig
from penstock.clients import AdminClient, KafkaException, Producer, TopicPartition
from penstock.log import open_log
from penstock.testing import TopologyTestDriver

MASTERS = ["inline", pytest.param("local[2]", marks=[pytest.mark.slow, pytest.mark.spark])]
KEY = CustomerKey(1001)
SALLY = Customer(1001, "Sally Thomas", "sally@example.com", "Oslo")
MOVED = Customer(1001, "Sally Thomas", "sally@example.com", "Turin")


class Failure(Exception):
    """The failure that a test provokes."""


class FailingConnection(sqlite3.Connection):
    """Fails after it has executed a number of statements."""

    statements_left = -1

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        result = super().execute(*arguments)
        if self.statements_left == 0:
            raise Failure
        self.statements_left -= 1
        return result


@pytest.fixture
def log(tmp_path: Path) -> str:
    address = str(tmp_path / "log.db")
    with open_log(address) as opened:
        for topic in (CHANGES, CUSTOMERS):
            opened.create_topic(topic, 2, {"retention.ms": -1})
    return address


@pytest.fixture
def open_replica(tmp_path: Path) -> Iterator[Callable[[], Replica]]:
    opened: list[Replica] = []

    def open_one() -> Replica:
        opened.append(Replica.open(tmp_path / "customers.db"))
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


def test_row_follows_its_changes() -> None:
    with TopologyTestDriver(build()) as driver:
        changes = driver.create_input_topic(CHANGES, CustomerKey, Change)
        out = driver.create_output_topic(CUSTOMERS, CustomerKey, Customer)
        for change in (
            Change("c", None, SALLY, 1), Change("u", SALLY, MOVED, 2), Change("d", MOVED, None, 3),
            None,
        ):
            changes.pipe_input(KEY, change)
        assert out.read_key_values_to_list() == [
            (KEY, SALLY), (KEY, MOVED), (KEY, None), (KEY, None)
        ]


def test_envelope_of_debezium_is_read() -> None:
    key = b'{"id":1001}'
    row = b'{"id":1001,"name":"Sally Thomas","email":"sally@example.com","city":"Oslo","vip":true}'
    source = b'{"connector":"postgresql","table":"customers","lsn":24023128}'
    value = b'{"before":null,"after":%b,"source":%b,"op":"c","ts_ms":1}' % (row, source)
    with TopologyTestDriver(build()) as driver:
        driver.create_input_topic(CHANGES, bytes, bytes).pipe_input(key, value)
        store = driver.get_key_value_store("customers")
        assert dict(store.all()) == {KEY: SALLY}


def test_table_equals_the_source_after_a_failure_at_any_statement(
    log: str, tmp_path: Path
) -> None:
    source = Source(seed=3)
    events = [*source.snapshot(5), *source.change(12)]
    send_to(log, as_rows(events))
    for statements in itertools.count():
        path = tmp_path / f"{statements}.db"
        database = sqlite3.connect(path, factory=FailingConnection)
        failing = Replica(database)
        database.statements_left = statements
        has_failed = False
        try:
            for _ in replicate(log, failing, batch_size=4):
                pass
        except Failure:
            has_failed = True
        failing.close()
        replica = Replica.open(path)
        rest = sum(replicate(log, replica, batch_size=4))
        assert replica.rows() == expected_rows(source, events), statements
        replica.close()
        if not has_failed:
            break
    # Each event needs a statement, and each transaction one for its start and one for offsets.
    assert statements > len(events) + 2 * (len(events) // 4)
    assert rest == 0


def test_failed_batch_leaves_no_trace(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "customers.db", factory=FailingConnection)
    replica = Replica(database)
    replica.apply([RowChange(0, 4, 1001, SALLY)])
    # BEGIN, the positions, two rows, and the failure after the new position.
    database.statements_left = 4
    with pytest.raises(Failure):
        replica.apply([RowChange(0, 5, 1001, MOVED), RowChange(0, 6, 1001, MOVED)])
    database.statements_left = -1
    assert replica.rows() == [(SALLY, 1)]
    assert replica.positions() == {0: 5}
    replica.close()


def test_replayed_changes_are_skipped(open_replica: Callable[[], Replica]) -> None:
    replica = open_replica()
    batch = [RowChange(0, 0, 1001, SALLY), RowChange(0, 1, 1001, MOVED)]
    assert replica.apply(batch) == 2
    assert replica.apply(batch) == 0
    assert replica.apply([*batch, RowChange(0, 2, 1001, SALLY), RowChange(1, 0, 7, None)]) == 2
    assert replica.rows() == [(SALLY, 3)]
    assert replica.positions() == {0: 3, 1: 1}


def test_two_writers_write_each_change_once(
    log: str, open_replica: Callable[[], Replica]
) -> None:
    source = Source(seed=8)
    events = [*source.snapshot(6), *source.change(20)]
    records = send_to(log, as_rows(events))
    writers = [replicate(log, open_replica(), batch_size=3) for _ in range(2)]
    written = [count for pair in itertools.zip_longest(*writers, fillvalue=0) for count in pair]
    assert sum(written) == len(records)
    assert written.count(0) >= len(written) // 2
    assert open_replica().rows() == expected_rows(source, events)


def test_records_of_an_aborted_transaction_are_not_written(
    log: str, open_replica: Callable[[], Replica]
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
    replica = open_replica()
    assert sum(replicate(log, replica)) == 1
    assert replica.rows() == [(SALLY, 1)]


def test_position_that_retention_has_removed_is_an_error(
    log: str, open_replica: Callable[[], Replica]
) -> None:
    replica = open_replica()
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


@pytest.mark.parametrize("master", MASTERS)
def test_application_and_writers_replicate_exactly_once(
    master: str, log: str, tmp_path: Path, open_replica: Callable[[], Replica]
) -> None:
    source = Source(seed=5)
    events = send_to(log, source.snapshot(10))
    config = StreamsConfig(
        application_id="table-replication", log=log, state_dir=str(tmp_path / "state")
    )
    with Streams(build(), config, master=master) as streams:
        streams.run_until_caught_up(120)
        # This writer stops after its first batch.
        assert next(replicate(log, open_replica(), batch_size=4)) > 0
        events += send_to(log, source.change(30))
        streams.run_until_caught_up(120)
        replica = open_replica()
        assert sum(replicate(log, replica, batch_size=4)) > 0
    assert replica.rows() == expected_rows(source, events)
    assert len(source.rows) < len({each.key for each in events})
