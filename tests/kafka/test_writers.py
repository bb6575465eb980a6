"""Writers on Kafka: generations, open transactions, late starts."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from kafka.cluster import clear
from penstock.broker.cluster import ClusterStatus
from penstock.log import Lease, Log, RecordColumns, TopicPartition, open_log
from penstock.log.base import Candidate
from penstock.log.errors import Fenced
from penstock.log.kafka.client.producers import create_delivery
from penstock.log.kafka.encoding import check_columns
from penstock.log.kafka.leases import KafkaLease
from penstock.log.kafka.writers import KafkaWriter

pytestmark = pytest.mark.kafka

P0 = TopicPartition("orders", 0)
TIMEOUT_S = 60.0


@pytest.fixture
def log(penstock_broker: ClusterStatus) -> Iterator[Log]:
    with open_log(clear(penstock_broker.address)) as log:
        log.create_topic("orders")
        yield log


def acquire(candidate: Candidate) -> Lease:
    deadline = time.monotonic() + TIMEOUT_S
    while (lease := candidate.try_acquire()) is None:
        assert time.monotonic() < deadline, "the lease was not acquired"
        time.sleep(0.01)
    return lease


def open_writer(log: Log, lease: Lease) -> KafkaWriter:
    writer = log.open_writer(lease.create_writer(), lease.member_token)
    assert isinstance(writer, KafkaWriter)
    return writer


def begin(writer: KafkaWriter) -> None:
    """Leave a transaction open, as a process that hangs in a commit."""
    producer = writer.producer()
    producer.begin_transaction()
    records = check_columns(RecordColumns([None], [b"open"]))
    create_delivery(producer).send(("orders", 0), [records], 1_000_000, TIMEOUT_S)
    producer.flush(TIMEOUT_S)


def write(writer: KafkaWriter, value: bytes, offset: int) -> None:
    with writer.transaction() as transaction:
        transaction.append("orders", 0, RecordColumns([None], [value]))
        transaction.commit_offsets("app", {P0: offset})


def values(log: Log) -> list[bytes | None]:
    return [value for batch in log.read("orders", 0, 0) for value in batch.columns().values]


def test_open_transaction_of_a_fenced_writer_is_aborted_at_once(log: Log) -> None:
    lease = acquire(log.candidate("app"))
    writer = open_writer(log, lease)
    begin(writer)
    log.append("orders", 0, RecordColumns([None], [b"behind"]))
    assert values(log) == []
    started = time.monotonic()
    lease.fence_writers([writer.grant])
    assert time.monotonic() - started < 5
    # The open transaction held back the readers.
    assert values(log) == [b"behind"]


def test_new_holder_aborts_open_transactions_of_many_writers(
    log: Log, penstock_broker: ClusterStatus
) -> None:
    lease = acquire(log.candidate("app"))
    writers = [open_writer(log, lease) for _ in range(10)]
    for writer in writers:
        begin(writer)
    lease.release()
    started = time.monotonic()
    with open_log(penstock_broker.address) as other:
        taken = other.take_lease("app")
        assert time.monotonic() - started < 10
        assert isinstance(taken, KafkaLease)
        log.append("orders", 0, RecordColumns([None], [b"behind"]))
        assert values(log) == [b"behind"]
        # Their records are deleted: a later holder need not fence them again.
        assert taken._records.writers("app") == {}
        taken.release()


def test_token_of_an_old_generation_is_replaced(
    log: Log, penstock_broker: ClusterStatus
) -> None:
    lease = acquire(log.candidate("app"))
    tokens: list[bytes] = []

    def token() -> bytes:
        tokens.append(lease.member_token())
        return tokens[-1]

    writer = log.open_writer(lease.create_writer(), token)
    assert isinstance(writer, KafkaWriter)
    write(writer, b"1", 1)
    write(writer, b"2", 2)
    assert len(tokens) == 1
    with open_log(penstock_broker.address) as other:
        standby = other.candidate("app")
        stop = threading.Event()

        def wait_for_the_lease() -> None:
            while not stop.wait(0.01):
                standby.try_acquire()

        thread = threading.Thread(target=wait_for_the_lease)
        thread.start()
        deadline = time.monotonic() + TIMEOUT_S
        while len(set(tokens)) < 2:
            assert time.monotonic() < deadline, "the generation never changed"
            write(writer, b"3", 3)
        stop.set()
        thread.join()
    assert values(log)[:3] == [b"1", b"2", b"3"]
    assert log.committed("app", [P0]) == {P0: (3, "")}


def test_writer_with_a_stale_token_is_fenced_after_the_lease_is_lost(log: Log) -> None:
    lease = acquire(log.candidate("app"))
    writer = open_writer(log, lease)
    write(writer, b"1", 1)
    lease.release()
    # The broker rejects the generation. The holder does not hand out another token.
    with pytest.raises(Fenced, match="lease 'app'"):
        write(writer, b"no", 2)
    assert values(log) == [b"1"]
    assert log.committed("app", [P0]) == {P0: (1, "")}
