from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.clients import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from penstock.log import Log
from penstock.log.types import TopicPartition as LogPartition


def count(log: Log, topic: str) -> int:
    partitions = [LogPartition(topic, n) for n in range(log.topic(topic).partitions)]
    return sum(offsets.end for offsets in log.offsets(partitions).values())


@pytest.fixture
def producer(clients: Any, log: Log) -> Producer:
    log.create_topic("a", 2)
    log.create_topic("b")
    producer: Producer = clients.producer(transactional_id="tx")
    producer.init_transactions()
    return producer


def test_records_become_visible_with_the_commit(producer: Producer, log: Log) -> None:
    reports: list[tuple[KafkaError | None, str | None, int | None]] = []
    producer.begin_transaction()
    for n in range(4):
        producer.produce("a", str(n), partition=n % 2, on_delivery=lambda error, m: reports.append(
            (error, m.topic(), m.offset())))
    future = producer.send("b", "v")
    assert producer.flush() == 0
    assert (count(log, "a"), count(log, "b"), reports) == (0, 0, [])
    producer.commit_transaction()
    assert (count(log, "a"), count(log, "b")) == (4, 1)
    assert sorted(reports, key=str) == sorted(
        [(None, "a", 0), (None, "a", 1), (None, "a", 0), (None, "a", 1)], key=str)
    assert future.result(0).offset() == 0


def test_aborted_records_are_never_visible(producer: Producer, log: Log) -> None:
    errors: list[str | None] = []
    producer.begin_transaction()
    producer.produce("a", "x", on_delivery=lambda error, _: errors.append(error and error.name()))
    future = producer.send("b", "y")
    producer.flush()
    producer.abort_transaction()
    assert (count(log, "a"), count(log, "b"), errors) == (0, 0, ["_PURGE_QUEUE"])
    assert isinstance(future.exception(0), KafkaException)
    producer.begin_transaction()
    producer.produce("a", "z")
    producer.commit_transaction()
    assert count(log, "a") == 1


def test_large_transaction_is_appended_in_batches(clients: Any, log: Log) -> None:
    log.create_topic("a", 3)
    producer = clients.producer(transactional_id="tx", batch_size=1_000)
    producer.init_transactions()
    producer.begin_transaction()
    offsets: list[int | None] = []
    for n in range(300):
        producer.produce("a", str(n), partition=n % 3, on_delivery=lambda _, m: offsets.append(
            m.offset()))
    assert len(producer) < 300
    producer.commit_transaction()
    assert sorted(offsets, key=int) == sorted(list(range(100)) * 3)
    for partition in range(3):
        values = [
            int(value) for batch in log.read("a", partition, 0) for value in batch.columns().values
        ]
        assert values == list(range(partition, 300, 3))


def test_offsets_are_committed_with_the_transaction(
    clients: Any, producer: Producer, log: Log, read: Callable[..., list[Message]]
) -> None:
    clients.fill("b", "1", "2", "3")
    consumer: Consumer = clients.consumer(group_id="g", enable_auto_commit=False)
    consumer.subscribe(["b"])
    for end in ("abort_transaction", "commit_transaction"):
        producer.begin_transaction()
        for message in read(consumer, 3):
            producer.produce("a", message.value(), partition=0)
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
        )
        assert log.committed("g") == {}
        getattr(producer, end)()
        consumer.seek_to_beginning()
    assert log.committed("g")[LogPartition("b", 0)].offset == 3
    assert count(log, "a") == 3


def test_offsets_of_a_former_group_member_fail_the_transaction(
    clients: Any, producer: Producer, log: Log, read: Callable[..., list[Message]]
) -> None:
    clients.fill("b", "1")
    consumer: Consumer = clients.consumer(group_id="g", enable_auto_commit=False)
    consumer.subscribe(["b"])
    read(consumer, 1)
    group = consumer.consumer_group_metadata()
    consumer.unsubscribe()
    producer.begin_transaction()
    producer.produce("a", "x")
    producer.send_offsets_to_transaction([TopicPartition("b", 0, 1)], group)
    with pytest.raises(KafkaException) as raised:
        producer.commit_transaction()
    assert raised.value.error.txn_requires_abort()
    assert not raised.value.error.fatal()
    producer.abort_transaction()
    assert (count(log, "a"), log.committed("g")) == (0, {})
    producer.begin_transaction()
    producer.produce("a", "y")
    producer.commit_transaction()
    assert count(log, "a") == 1


def test_newer_producer_fences_the_older_one(clients: Any, producer: Producer, log: Log) -> None:
    producer.begin_transaction()
    producer.produce("a", "zombie")
    newer = clients.producer(transactional_id="tx")
    newer.init_transactions()
    with pytest.raises(KafkaException) as fenced:
        producer.commit_transaction()
    assert fenced.value.error.code() == KafkaError._FENCED
    assert fenced.value.error.fatal()
    for call in (producer.begin_transaction, producer.init_transactions):
        with pytest.raises(KafkaException, match=r"transactional\.id 'tx'"):
            call()
    newer.begin_transaction()
    newer.produce("a", "alive")
    newer.commit_transaction()
    assert count(log, "a") == 1
    other = clients.producer(transactional_id="another")
    other.init_transactions()


def test_invalid_record_fails_the_transaction_until_abort(
    producer: Producer, log: Log
) -> None:
    log.create_topic("compacted", config={"cleanup.policy": "compact"})
    producer.begin_transaction()
    producer.produce("a", "fine")
    producer.produce("compacted", "no key")
    with pytest.raises(KafkaException) as raised:
        producer.commit_transaction()
    assert raised.value.error.code() == KafkaError.INVALID_RECORD
    assert raised.value.error.txn_requires_abort()
    with pytest.raises(KafkaException, match="must be aborted"):
        producer.produce("a", "more")
    producer.abort_transaction()
    assert count(log, "a") == 0
    producer.begin_transaction()
    producer.commit_transaction()


def test_transaction_calls_out_of_order_raise(clients: Any, log: Log) -> None:
    log.create_topic("a")
    producer = clients.producer(transactional_id="tx")
    with pytest.raises(KafkaException, match="init_transactions was not called"):
        producer.begin_transaction()
    producer.init_transactions()
    for call in (
        producer.commit_transaction, producer.abort_transaction,
        lambda: producer.produce("a", "v"),
    ):
        with pytest.raises(KafkaException, match="begin_transaction was not called") as raised:
            call()
        assert raised.value.error.code() == KafkaError._STATE
    producer.begin_transaction()
    with pytest.raises(KafkaException, match="a transaction is open"):
        producer.begin_transaction()
    with pytest.raises(TypeError, match="consumer_group_metadata"):
        producer.send_offsets_to_transaction([], "group")
    with pytest.raises(KafkaException, match=r"Set 'transactional\.id'"):
        clients.producer().begin_transaction()


def test_close_aborts_an_open_transaction(producer: Producer, log: Log) -> None:
    errors: list[KafkaError | None] = []
    producer.begin_transaction()
    producer.produce("a", "v", on_delivery=lambda error, _: errors.append(error))
    producer.close()
    assert count(log, "a") == 0
    assert len(errors) == 1


def test_consumer_never_reads_a_part_of_a_transaction(
    clients: Any, producer: Producer, log: Log
) -> None:
    consumer = clients.consumer(isolation_level="read_uncommitted")
    consumer.assign([TopicPartition("a", 0), TopicPartition("a", 1)])
    producer.begin_transaction()
    for n in range(10):
        producer.produce("a", str(n), partition=n % 2)
    producer.flush()
    assert consumer.consume(10, 0.02) == []
    producer.commit_transaction()
    assert len(consumer.consume(10, 10)) == 10
