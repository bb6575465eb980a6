from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from penstock import Serdes
from penstock.clients import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    TIMESTAMP_CREATE_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    KeyDeserializationError,
    Message,
    TopicPartition,
    ValueDeserializationError,
)
from penstock.log import Log
from penstock.log.types import RecordColumns
from penstock.log.types import TopicPartition as LogPartition

Read = Callable[..., list[Message]]
P0 = TopicPartition("t", 0)


def values(messages: list[Message]) -> list[Any]:
    return [message.value() for message in messages]


def test_message_has_all_fields_of_the_record(clients: Any, log: Log, read: Read) -> None:
    log.create_topic("t", 2)
    with_headers = {"key": "k", "partition": 1, "timestamp": 12_345, "headers": [("h", b"1")]}
    clients.fill("t", "v", **with_headers)
    consumer = clients.consumer(group_id="g")
    consumer.subscribe(["t"])
    (message,) = read(consumer, 1)
    assert (message.topic(), message.partition(), message.offset()) == ("t", 1, 0)
    assert (message.key(), message.value(), message.headers()) == (b"k", b"v", [("h", b"1")])
    assert message.timestamp() == (TIMESTAMP_CREATE_TIME, 12_345)
    assert message.error() is None
    assert len(message) == 1


def test_poll_returns_none_after_the_timeout(clients: Any, log: Log) -> None:
    log.create_topic("t")
    consumer = clients.consumer(group_id="g")
    consumer.subscribe(["t"])
    start = time.monotonic()
    assert consumer.poll(0.05) is None
    assert 0.05 <= time.monotonic() - start < 60
    assert consumer.poll(0) is None


def test_waiting_poll_returns_a_new_record(clients: Any, log: Log) -> None:
    log.create_topic("t")
    consumer = clients.consumer()
    consumer.assign([P0])
    assert consumer.poll(0) is None
    writer = threading.Timer(0.02, clients.fill, ("t", "late"))
    writer.start()
    message = consumer.poll(10)
    writer.join()
    assert message.value() == b"late"


def test_auto_offset_reset_sets_the_initial_position(
    clients: Any, log: Log, read: Read
) -> None:
    log.create_topic("t")
    clients.fill("t", "old")
    latest = clients.consumer(auto_offset_reset="latest")
    latest.assign([P0])
    assert latest.poll(0) is None
    clients.fill("t", "new")
    assert values(read(latest, 1)) == [b"new"]
    earliest = clients.consumer()
    earliest.assign([P0])
    assert values(read(earliest, 2)) == [b"old", b"new"]
    strict = clients.consumer(group_id="g", auto_offset_reset="error")
    strict.assign([P0])
    (message,) = read(strict, 1)
    assert message.error() == KafkaError._AUTO_OFFSET_RESET
    assert strict.poll(0) is None
    strict.seek(TopicPartition("t", 0, 1))
    assert values(read(strict, 1)) == [b"new"]


def test_consumer_resumes_at_the_committed_offset(
    clients: Any, log: Log, read: Read
) -> None:
    log.create_topic("t")
    clients.fill("t", "a", "b", "c")
    first = clients.consumer(group_id="g", enable_auto_commit=False)
    first.subscribe(["t"])
    message = read(first, 2)[-1]
    assert first.commit(message=message, asynchronous=False)[0].offset == 2
    first.close()
    second = clients.consumer(group_id="g")
    second.subscribe(["t"])
    assert values(read(second, 1)) == [b"c"]


def test_commit_accepts_a_message_offsets_or_nothing(
    clients: Any, log: Log, read: Read, until: Callable[..., None]
) -> None:
    log.create_topic("t")
    clients.fill("t", "a", "b", "c")
    callbacks: list[tuple[KafkaError | None, list[int]]] = []
    consumer = clients.consumer(
        group_id="g", enable_auto_commit=False,
        on_commit=lambda error, parts: callbacks.append((error, [part.offset for part in parts])),
    )
    consumer.subscribe(["t"])
    read(consumer, 2)
    assert consumer.committed([P0])[0].offset == OFFSET_INVALID
    assert consumer.commit(asynchronous=False)[0].offset == 2
    consumer.commit(offsets=[TopicPartition("t", 0, 1, "why")], asynchronous=False)
    (committed,) = consumer.committed([P0])
    assert (committed.offset, committed.metadata) == (1, "why")
    assert consumer.commit() is None
    assert consumer.commit(offsets=[TopicPartition("t", 0, 3)]) is None

    def both_called() -> bool:
        consumer.poll(0)
        return len(callbacks) == 2

    until(both_called)
    assert callbacks == [(None, [2]), (None, [3])]
    with pytest.raises(ValueError, match="not both"):
        consumer.commit(message=Message("t", 0, 0), offsets=[P0])


def test_commit_without_offset_or_group_fails(clients: Any, log: Log) -> None:
    log.create_topic("t")
    consumer = clients.consumer(group_id="g")
    with pytest.raises(KafkaException, match="no offset") as nothing:
        consumer.commit(asynchronous=False)
    assert nothing.value.error.code() == KafkaError._NO_OFFSET
    with pytest.raises(KafkaException, match=r"group\.id"):
        clients.consumer().commit(offsets=[TopicPartition("t", 0, 1)])
    with pytest.raises(KafkaException, match=r"group\.id"):
        clients.consumer().subscribe(["t"])


def test_auto_commit_commits_records_of_earlier_polls(
    clients: Any, log: Log, read: Read, until: Callable[..., None]
) -> None:
    log.create_topic("t")
    clients.fill("t", "a", "b")
    consumer = clients.consumer(group_id="g", auto_commit_interval_ms=0)
    consumer.subscribe(["t"])
    read(consumer, 1)
    assert log.committed("g") == {}
    read(consumer, 1)
    until(lambda: log.committed("g").get(LogPartition("t", 0), (0,))[0] == 1)
    consumer.close()
    assert log.committed("g")[LogPartition("t", 0)].offset == 2


def test_without_auto_commit_close_commits_nothing(clients: Any, log: Log, read: Read) -> None:
    log.create_topic("t")
    clients.fill("t", "a")
    consumer = clients.consumer(group_id="g", enable_auto_commit=False)
    consumer.subscribe(["t"])
    read(consumer, 1)
    consumer.close()
    assert log.committed("g") == {}


def test_failed_with_block_does_not_commit(
    clients: Any, log: Log, read: Read
) -> None:
    log.create_topic("t")
    clients.fill("t", "a")

    def run(error: BaseException) -> None:
        with clients.consumer(group_id="g") as consumer:
            consumer.subscribe(["t"])
            read(consumer, 1)
            raise error

    with pytest.raises(ZeroDivisionError):
        run(ZeroDivisionError())
    assert log.committed("g") == {}
    assert log.group("g").members == ()
    with pytest.raises(KeyboardInterrupt):
        run(KeyboardInterrupt())
    assert log.committed("g")[LogPartition("t", 0)].offset == 1


def test_only_stored_offsets_are_committed_without_auto_offset_store(
    clients: Any, log: Log, read: Read
) -> None:
    log.create_topic("t")
    clients.fill("t", "a", "b", "c")
    consumer = clients.consumer(group_id="g", enable_auto_offset_store=False)
    consumer.subscribe(["t"])
    messages = read(consumer, 3)
    consumer.store_offsets(messages[0])
    consumer.close()
    assert log.committed("g")[LogPartition("t", 0)].offset == 1
    with pytest.raises(KafkaException, match=r"enable\.auto\.offset\.store"):
        clients.consumer(group_id="g").store_offsets(messages[0])


def test_consume_returns_up_to_the_requested_number(clients: Any, log: Log) -> None:
    log.create_topic("t")
    clients.fill("t", *map(str, range(25)))
    consumer = clients.consumer()
    consumer.assign([P0])
    assert [len(consumer.consume(10, 0.05)) for _ in range(4)] == [10, 10, 5, 0]


def test_max_poll_records_limits_consume(clients: Any, log: Log) -> None:
    log.create_topic("t")
    clients.fill("t", *map(str, range(12)))
    consumer = clients.consumer(max_poll_records=5)
    consumer.assign([P0])
    assert [len(consumer.consume(timeout=30)) for _ in range(3)] == [5, 5, 2]
    consumer.seek_to_beginning()
    assert len(consumer.consume(100, 1)) == 5


def test_partitions_are_read_in_turn(clients: Any, log: Log) -> None:
    log.create_topic("t", 3)
    for partition in range(3):
        clients.fill("t", *["x"] * 10, partition=partition)
    consumer = clients.consumer(max_partition_fetch_bytes=5)
    consumer.assign([TopicPartition("t", partition) for partition in range(3)])
    order = [consumer.poll(1).partition() for _ in range(30)]
    assert sorted(order) == sorted([0, 1, 2] * 10)
    assert set(order[:15]) == {0, 1, 2}


def test_seek_changes_the_position(
    clients: Any, log: Log, read: Read
) -> None:
    log.create_topic("t")
    clients.fill("t", "a", "b", "c")
    consumer = clients.consumer()
    consumer.assign([P0])
    assert consumer.position([P0])[0].offset == OFFSET_INVALID
    assert values(read(consumer, 3)) == [b"a", b"b", b"c"]
    assert consumer.position([P0])[0].offset == 3
    consumer.seek(TopicPartition("t", 0, 1))
    assert consumer.position([P0])[0].offset == 1
    assert values(read(consumer, 1)) == [b"b"]
    consumer.seek_to_end()
    assert consumer.poll(0) is None
    consumer.seek_to_beginning([P0])
    assert values(read(consumer, 1)) == [b"a"]
    with pytest.raises(KafkaException, match="not assigned"):
        consumer.seek(TopicPartition("x", 0, 1))


def test_assign_accepts_numeric_and_logical_offsets(clients: Any, log: Log, read: Read) -> None:
    log.create_topic("t")
    clients.fill("t", "a", "b", "c")
    consumer = clients.consumer()
    consumer.assign([TopicPartition("t", 0, 2)])
    assert values(read(consumer, 1)) == [b"c"]
    consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
    assert values(read(consumer, 1)) == [b"a"]
    consumer.assign([TopicPartition("t", 0, OFFSET_END)])
    assert consumer.poll(0) is None
    assert consumer.assignment() == [P0]
    consumer.unassign()
    assert consumer.assignment() == []


def test_offset_beginning_is_the_first_existing_record(clients: Any, log: Log, read: Read) -> None:
    log.create_topic("t")
    clients.fill("t", "a", "b", "c")
    log.delete_records("t", 0, 2)
    consumer = clients.consumer()
    consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
    assert read(consumer, 1)[0].offset() == 2
    assert consumer.get_watermark_offsets(P0) == (2, 3)


def test_committed_offset_deleted_by_retention_is_reset_with_a_warning(
    clients: Any, log: Log, read: Read, caplog: pytest.LogCaptureFixture
) -> None:
    log.create_topic("t")
    clients.fill("t", "a", "b", "c")
    log.commit_offsets("g", {LogPartition("t", 0): 0})
    log.delete_records("t", 0, 2)
    consumer = clients.consumer(group_id="g")
    consumer.subscribe(["t"])
    assert values(read(consumer, 1)) == [b"c"]
    assert "from offset 0 to 2 were deleted by retention" in caplog.text


def test_paused_partition_returns_its_records_after_resume(
    clients: Any, log: Log, read: Read
) -> None:
    log.create_topic("t", 2)
    clients.fill("t", "a0", "a1", partition=0)
    clients.fill("t", "b0", "b1", partition=1)
    consumer = clients.consumer()
    consumer.assign([P0, TopicPartition("t", 1)])
    first = read(consumer, 1)
    consumer.pause([P0])
    rest = read(consumer, 2)
    assert {message.partition() for message in rest} <= {1}
    assert consumer.poll(0) is None
    consumer.resume([P0])
    assert sorted(values(first + rest + read(consumer, 1))) == [b"a0", b"a1", b"b0", b"b1"]


def test_deserializers_are_applied_to_keys_and_values(clients: Any, log: Log, read: Read) -> None:
    log.create_topic("t")
    log.append("t", 0, RecordColumns([b"k", None], [b'{"a":1}', None]))
    consumer = clients.consumer(key_deserializer=Serdes.string(), value_deserializer="json")
    consumer.assign([P0])
    first, second = read(consumer, 2)
    assert (first.key(), first.value()) == ("k", {"a": 1})
    assert (second.key(), second.value()) == (None, None)


def test_deserialization_error_is_raised_once_and_skipped(
    clients: Any, log: Log
) -> None:
    log.create_topic("t")
    clients.fill("t", "1", "2", "bad", "4")
    consumer = clients.consumer(value_deserializer=int)
    consumer.assign([P0])
    assert values(consumer.consume(10, 1)) == [1, 2]
    with pytest.raises(ValueDeserializationError, match=r"'t' \[0\] at offset 2") as bad:
        consumer.poll(1)
    assert bad.value.kafka_message.value() == b"bad"
    assert isinstance(bad.value.__cause__, ValueError)
    assert values(consumer.consume(10, 0)) == [4]
    keys = clients.consumer(key_deserializer=Serdes.long())
    clients.fill("t", "v", key="short")
    keys.assign([TopicPartition("t", 0, 4)])
    with pytest.raises(KeyDeserializationError):
        keys.poll(1)


def test_partition_eof_is_reported_once_per_end(clients: Any, log: Log, read: Read) -> None:
    log.create_topic("t")
    clients.fill("t", "a")
    consumer = clients.consumer(enable_partition_eof=True)
    consumer.assign([P0])
    record, end = read(consumer, 2)
    assert record.value() == b"a"
    assert end.error() == KafkaError._PARTITION_EOF
    assert end.offset() == 1
    assert consumer.poll(0) is None
    clients.fill("t", "b")
    assert [message.error() and message.error().name() for message in read(consumer, 2)] == [
        None, "_PARTITION_EOF",
    ]


def test_fetch_waits_for_min_bytes_until_the_maximum_wait(clients: Any, log: Log) -> None:
    log.create_topic("t")
    clients.fill("t", "a")
    patient = clients.consumer(fetch_min_bytes=100_000, fetch_wait_max_ms=60_000)
    patient.assign([P0])
    assert patient.poll(0.05) is None
    clients.fill("t", "x" * 100_000)
    assert len(patient.consume(2, 10)) == 2
    hasty = clients.consumer(fetch_min_bytes=10**6, fetch_wait_max_ms=30)
    hasty.assign([P0])
    assert hasty.poll(0) is None
    assert hasty.poll(10).value() == b"a"


def test_offsets_for_times_returns_the_first_record_at_or_after_a_time(
    clients: Any, log: Log
) -> None:
    log.create_topic("t", 2)
    for timestamp in (100, 200, 300):
        clients.fill("t", "v", partition=0, timestamp=timestamp)
    consumer = clients.consumer()
    found = consumer.offsets_for_times([
        TopicPartition("t", 0, 150), TopicPartition("t", 0, 301), TopicPartition("x", 0, 1),
    ])
    assert [part.offset for part in found] == [1, OFFSET_END, OFFSET_END]
    assert found[2].error == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_unknown_topic_is_reported_once_and_read_when_created(
    clients: Any, log: Log, read: Read
) -> None:
    consumer = clients.consumer(group_id="g")
    consumer.subscribe(["later"])
    (message,) = read(consumer, 1)
    assert message.error() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert consumer.poll(0) is None
    log.create_topic("later")
    clients.fill("later", "a")
    assert values(read(consumer, 1)) == [b"a"]


def test_consumer_creates_topics_if_allowed(clients: Any, log: Log) -> None:
    consumer = clients.consumer(group_id="g", allow_auto_create_topics=True)
    consumer.subscribe(["new"])
    assert consumer.poll(0) is None
    assert log.topic("new").partitions == 1


def test_deleted_topic_is_reported_and_other_topics_continue(
    clients: Any, log: Log, read: Read
) -> None:
    for topic in ("a", "b"):
        log.create_topic(topic)
    consumer = clients.consumer()
    consumer.assign([TopicPartition("a", 0), TopicPartition("b", 0)])
    assert consumer.poll(0) is None
    log.delete_topic("a")
    clients.fill("b", "v")
    messages = read(consumer, 2)
    assert sorted(str(message.error() and message.error().name()) for message in messages) == [
        "None", "UNKNOWN_TOPIC_OR_PART",
    ]
    assert consumer.poll(0) is None


def test_compacted_offsets_are_skipped(clients: Any, log: Log, read: Read) -> None:
    log.create_topic("t", config={"cleanup.policy": "compact"})
    for n in range(6):
        clients.fill("t", str(n), key=f"k{n % 2}")
    log.clean(force=True)
    consumer = clients.consumer()
    consumer.assign([P0])
    messages = read(consumer, log.read("t", 0, 0).__next__().records.num_rows)
    assert [message.offset() for message in messages][-1] == 5
    assert consumer.poll(0) is None
    assert consumer.position([P0])[0].offset == 6


def test_closed_consumer_raises(clients: Any, log: Log) -> None:
    consumer: Consumer = clients.consumer(group_id="g")
    consumer.close()
    consumer.close()
    for call in (consumer.poll, consumer.assignment, lambda: consumer.subscribe(["t"])):
        with pytest.raises(RuntimeError, match="closed"):
            call()


def test_subscribe_rejects_a_string(clients: Any) -> None:
    with pytest.raises(TypeError, match="a list of names"):
        clients.consumer(group_id="g").subscribe("orders")
