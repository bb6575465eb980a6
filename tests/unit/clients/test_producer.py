from __future__ import annotations

import gc
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import Serde, Serdes
from penstock.clients import (
    OFFSET_INVALID,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    KafkaException,
    KeySerializationError,
    Message,
    Producer,
    ValueSerializationError,
)
from penstock.errors import SerializationException
from penstock.log import Log
from penstock.partitioning import partition_of


def rows(log: Log, topic: str, partition: int = 0) -> list[tuple[Any, ...]]:
    return [
        (offset, key, value)
        for batch in log.read(topic, partition, 0)
        for offset, key, value in zip(
            batch.columns().offsets, batch.columns().keys, batch.columns().values, strict=True
        )
    ]


def test_flush_writes_produced_records(clients: Any, log: Log) -> None:
    log.create_topic("t")
    producer = clients.producer()
    for n in range(3):
        producer.produce("t", f"v{n}", "k")
    assert producer.flush() == 0
    assert rows(log, "t") == [(0, b"k", b"v0"), (1, b"k", b"v1"), (2, b"k", b"v2")]


def test_delivery_report_has_partition_offset_and_timestamp(clients: Any, log: Log) -> None:
    log.create_topic("t", 3)
    reports: list[tuple[KafkaError | None, Message]] = []
    producer = clients.producer()
    producer.produce("t", "a", "key", on_delivery=lambda *report: reports.append(report))
    producer.produce("t", "b", "key", timestamp=1_700_000_000_000, headers={"h": "1"},
                     callback=lambda *report: reports.append(report))
    producer.flush()
    (error, first), (_, second) = reports
    assert error is None
    assert first.error() is None
    assert (first.topic(), first.partition(), first.offset()) == ("t", partition_of(b"key", 3), 0)
    assert (second.offset(), second.headers()) == (1, [("h", b"1")])
    assert second.timestamp() == (TIMESTAMP_CREATE_TIME, 1_700_000_000_000)
    assert (second.latency() or 0) > 0


def test_delivery_report_has_the_log_append_time(clients: Any, log: Log) -> None:
    log.create_topic("t", config={"message.timestamp.type": "LogAppendTime"})
    message = clients.producer().send("t", "a", timestamp=5).result(10)
    kind, timestamp = message.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert timestamp > 5


def test_callbacks_run_in_poll(clients: Any, log: Log, until: Callable[..., None]) -> None:
    log.create_topic("t")
    threads: list[str] = []
    producer = clients.producer()
    producer.produce(
        "t", "a", on_delivery=lambda *_: threads.append(threading.current_thread().name)
    )
    until(lambda: rows(log, "t"))
    assert threads == []
    assert len(producer) == 1
    assert producer.poll(10) == 1
    assert threads == [threading.current_thread().name]
    assert len(producer) == 0
    assert producer.poll(0) == 0


def test_future_of_send_returns_partition_and_offset(clients: Any, log: Log) -> None:
    log.create_topic("t", 2)
    producer = clients.producer()
    messages = [producer.send("t", str(n), partition=n % 2).result(10) for n in range(4)]
    assert [(message.partition(), message.offset()) for message in messages] == [
        (0, 0), (1, 0), (0, 1), (1, 1),
    ]


def test_configured_callback_applies_to_all_records(clients: Any, log: Log) -> None:
    log.create_topic("t")
    offsets: list[int | None] = []
    producer = clients.producer(on_delivery=lambda _, message: offsets.append(message.offset()))
    producer.produce("t", "a")
    producer.produce("t", "b")
    producer.flush()
    assert offsets == [0, 1]


def test_serializers_are_serdes_names_or_functions(clients: Any, log: Log) -> None:
    log.create_topic("t")
    clients.producer(key_serializer=Serdes.long(), value_serializer=Serdes.json()).send(
        "t", {"a": 1}, 7).result(10)
    clients.producer(
        key_serializer="org.apache.kafka.common.serialization.IntegerSerializer",
        value_serializer=lambda text: text.upper().encode(),
    ).send("t", "shout", 7).result(10)
    assert rows(log, "t") == [
        (0, (7).to_bytes(8, "big"), b'{"a":1}'), (1, (7).to_bytes(4, "big"), b"SHOUT"),
    ]


def test_serde_can_depend_on_the_topic(clients: Any, log: Log) -> None:
    class ByTopic(Serde[str]):
        def __init__(self, prefix: str = "") -> None:
            super().__init__(lambda value: (prefix + value).encode(), bytes.decode)

        def for_topic(self, topic: str, is_key: bool) -> Serde[str]:
            return ByTopic(f"{topic}:{'key' if is_key else 'value'}:")

    for topic in ("a", "b"):
        log.create_topic(topic)
        clients.producer(key_serializer=ByTopic(), value_serializer=ByTopic()).send(
            topic, "v", "k").result(10)
        assert rows(log, topic) == [(0, f"{topic}:key:k".encode(), f"{topic}:value:v".encode())]


def test_produce_raises_for_values_that_cannot_be_serialized(clients: Any, log: Log) -> None:
    log.create_topic("t")
    producer = clients.producer(key_serializer=Serdes.long())
    with pytest.raises(KeySerializationError, match="key for topic 't'") as key_error:
        producer.produce("t", b"v", 2**70)
    assert isinstance(key_error.value.__cause__, SerializationException)
    with pytest.raises(ValueSerializationError, match=r"Set 'key\.serializer'"):
        producer.produce("t", {"a": 1}, 1)
    with pytest.raises(TypeError, match="header"):
        producer.produce("t", b"v", 1, headers={"h": 5})
    with pytest.raises(ValueError, match="negative"):
        producer.produce("t", b"v", 1, timestamp=-1)
    assert len(producer) == 0


def test_null_keys_values_and_headers_stay_null(clients: Any, log: Log) -> None:
    log.create_topic("t")
    clients.producer(value_serializer=Serdes.json()).send(
        "t", None, None, headers=[("a", None), ("a", b"2")]).result(10)
    batch = next(log.read("t", 0, 0)).columns()
    assert (batch.keys, batch.values) == ([None], [None])
    assert batch.headers == [(("a", None), ("a", b"2"))]


def test_produce_raises_for_unknown_topics_and_partitions(clients: Any, log: Log) -> None:
    log.create_topic("t", 2)
    producer = clients.producer()
    with pytest.raises(KafkaException, match=r"Topic 'x' does not exist\. Topics: 't'") as unknown:
        producer.produce("x", "v")
    assert unknown.value.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    with pytest.raises(KafkaException, match="has no partition 2"):
        producer.produce("t", "v", partition=2)


def test_producer_creates_topics_if_allowed(clients: Any, log: Log) -> None:
    clients.producer(allow_auto_create_topics=True).send("new", "v").result(10)
    assert log.topic("new").partitions == 1


def test_produce_raises_for_a_record_that_is_too_large(clients: Any, log: Log) -> None:
    log.create_topic("t", config={"max.message.bytes": 100})
    producer = clients.producer()
    producer.produce("t", b"x" * 100)
    with pytest.raises(KafkaException, match="101 bytes") as raised:
        producer.produce("t", b"x" * 101)
    assert raised.value.error.code() == KafkaError.MSG_SIZE_TOO_LARGE
    with pytest.raises(KafkaException, match="The limit is 10 bytes"):
        clients.producer(message_max_bytes=10).produce("t", b"x" * 11)


def test_invalid_record_does_not_fail_other_records(clients: Any, log: Log) -> None:
    log.create_topic("t", config={"cleanup.policy": "compact"})
    errors: dict[bytes, KafkaError | None] = {}
    producer = clients.producer(
        linger_ms=10_000, on_delivery=lambda error, m: errors.update({m.value(): error})
    )
    for n in range(9):
        producer.produce("t", f"v{n}", None if n in {2, 7} else "k")
    producer.flush()
    bad = {value for value, error in errors.items() if error is not None}
    assert bad == {b"v2", b"v7"}
    assert errors[b"v2"] == KafkaError.INVALID_RECORD
    assert [value for _, _, value in rows(log, "t")] == [
        f"v{n}".encode() for n in range(9) if n not in {2, 7}
    ]


def test_deleted_topic_fails_only_its_records(clients: Any, log: Log) -> None:
    log.create_topic("a")
    log.create_topic("b")
    outcomes: list[tuple[str | None, bool]] = []
    producer = clients.producer(
        linger_ms=10_000,
        on_delivery=lambda error, m: outcomes.append((m.topic(), error is None)),
    )
    for topic in ("a", "b", "a", "b"):
        producer.produce(topic, "v")
    log.delete_topic("a")
    producer.flush()
    assert sorted(outcomes) == [("a", False), ("a", False), ("b", True), ("b", True)]
    with pytest.raises(KafkaException, match="Topic 'a' does not exist"):
        producer.produce("a", "v")


def test_busy_log_is_retried_without_duplicates(clients: Any, log: Log) -> None:
    log.create_topic("t")
    producer = clients.producer(linger_ms=0, retry_backoff_ms=1, **{"log.busy.timeout.ms": 1})
    with clients.busy():
        futures = [producer.send("t", str(n)) for n in range(5)]
        assert producer.flush(0.05) == 5
        assert not any(future.done() for future in futures)
    assert [future.result(10).offset() for future in futures] == [0, 1, 2, 3, 4]
    assert len(rows(log, "t")) == 5


@pytest.mark.parametrize("limit", [{"retries": 0}, {"delivery_timeout_ms": 20}])
def test_retries_and_delivery_timeout_limit_retries(
    clients: Any, log: Log, limit: dict[str, int]
) -> None:
    log.create_topic("t")
    producer = clients.producer(
        linger_ms=0, retry_backoff_ms=2, **limit, **{"log.busy.timeout.ms": 1}
    )
    with clients.busy(), pytest.raises(KafkaException) as late:
        producer.send("t", "v").result(10)
    assert late.value.error.retriable()
    assert producer.send("t", "w").result(10).offset() == 0


def test_report_without_acks_has_no_offset_and_no_error(clients: Any, log: Log) -> None:
    log.create_topic("t")
    reports: list[tuple[KafkaError | None, int | None]] = []
    producer = clients.producer(
        acks=0, linger_ms=0, on_delivery=lambda e, m: reports.append((e, m.offset())),
        **{"log.busy.timeout.ms": 1},
    )
    producer.produce("t", "a")
    producer.flush()
    with clients.busy():
        producer.produce("t", "lost")
        producer.flush()
    assert reports == [(None, OFFSET_INVALID)] * 2
    assert [value for _, _, value in rows(log, "t")] == [b"a"]


def test_batch_is_sent_when_it_has_enough_records(
    clients: Any, log: Log, until: Callable[..., None]
) -> None:
    log.create_topic("t")
    producer = clients.producer(linger_ms=60_000, batch_num_messages=3)
    producer.produce("t", "a")
    producer.produce("t", "b")
    assert rows(log, "t") == []
    producer.produce("t", "c")
    until(lambda: len(rows(log, "t")) == 3)


def test_batch_is_sent_when_it_has_enough_bytes(
    clients: Any, log: Log, until: Callable[..., None]
) -> None:
    log.create_topic("t")
    producer = clients.producer(linger_ms=60_000, batch_size=2_000)
    producer.produce("t", b"x" * 500)
    producer.produce("t", b"x" * 1_500)
    until(lambda: len(rows(log, "t")) == 2)


def test_batch_is_sent_after_linger(clients: Any, log: Log, until: Callable[..., None]) -> None:
    log.create_topic("t")
    clients.producer(linger_ms=1).produce("t", "a")
    until(lambda: rows(log, "t"))


def test_full_buffer_raises_after_max_block_ms(clients: Any, log: Log) -> None:
    log.create_topic("t")
    producer = clients.producer(
        buffer_memory=1_000, max_block_ms=30, linger_ms=0, retry_backoff_ms=1,
        **{"log.busy.timeout.ms": 1},
    )
    with clients.busy():
        producer.produce("t", b"x" * 600)
        with pytest.raises(BufferError, match=r"buffer\.memory is 1000"):
            producer.produce("t", b"x" * 600)
    assert producer.flush() == 0
    producer.produce("t", b"x" * 600)
    producer.flush()
    assert len(rows(log, "t")) == 2


def test_full_buffer_waits_for_the_sender(clients: Any, log: Log) -> None:
    log.create_topic("t")
    producer = clients.producer(buffer_memory=2_000, linger_ms=60_000, batch_size=10**6)
    for _ in range(50):
        producer.produce("t", b"x" * 500)
    producer.flush()
    assert len(rows(log, "t")) == 50


def test_produce_runs_callbacks_if_they_fill_the_buffer(clients: Any, log: Log) -> None:
    log.create_topic("t")
    offsets: list[int] = []
    producer = clients.producer(queue_buffering_max_messages=10, linger_ms=0)
    for _ in range(100):
        producer.produce("t", "v", on_delivery=lambda _, m: offsets.append(m.offset()))
    producer.flush()
    assert offsets == list(range(100))


def test_record_larger_than_the_buffer_is_sent(clients: Any, log: Log) -> None:
    log.create_topic("t")
    assert clients.producer(buffer_memory=10).send("t", b"x" * 100).result(10).offset() == 0


def test_purged_records_are_reported_and_not_sent(clients: Any, log: Log) -> None:
    log.create_topic("t")
    errors: list[KafkaError | None] = []
    producer = clients.producer(linger_ms=60_000, on_delivery=lambda e, _: errors.append(e))
    producer.produce("t", "a")
    producer.purge()
    assert producer.flush() == 0
    assert [error and error.name() for error in errors] == ["_PURGE_QUEUE"]
    assert rows(log, "t") == []


def test_added_partitions_are_used_after_a_metadata_refresh(clients: Any, log: Log) -> None:
    log.create_topic("t")
    producer = clients.producer(topic_metadata_refresh_interval_ms=0)
    producer.produce("t", "a", partition=0)
    log.add_partitions("t", 2)
    assert producer.send("t", "b", partition=1).result(10).partition() == 1


def test_records_of_each_thread_keep_their_order(clients: Any, log: Log) -> None:
    log.create_topic("t", 2)
    producer = clients.producer()

    def work(name: str) -> None:
        for n in range(500):
            producer.produce("t", str(n), name)

    threads = [threading.Thread(target=work, args=(f"thread-{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    producer.flush()
    found = rows(log, "t", 0) + rows(log, "t", 1)
    assert len(found) == 2000
    for n in range(4):
        mine = [int(value) for _, key, value in found if key == f"thread-{n}".encode()]
        assert mine == list(range(500))


def test_close_sends_buffered_records(clients: Any, log: Log) -> None:
    log.create_topic("t")
    producer = clients.producer(linger_ms=60_000)
    producer.produce("t", "a")
    producer.close()
    producer.close()
    assert len(rows(log, "t")) == 1
    with pytest.raises(RuntimeError, match="closed"):
        producer.produce("t", "b")


def test_close_fails_unsent_records_after_the_timeout(
    clients: Any, log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    log.create_topic("t")
    producer = clients.producer(retry_backoff_ms=1, **{"log.busy.timeout.ms": 1})
    with clients.busy():
        future = producer.send("t", "a")
        producer.close(0.02)
        assert isinstance(future.exception(10), KafkaException)
    assert "1 records were not sent" in caplog.text


def test_unclosed_producer_logs_a_warning_and_its_thread_ends(
    path: Path, log: Log, caplog: pytest.LogCaptureFixture, until: Callable[..., None]
) -> None:
    log.create_topic("t")
    producer = Producer({"log": path, "linger.ms": 60_000})
    producer.produce("t", "a")
    thread = producer._sender
    del producer
    gc.collect()
    assert "1 records may not be sent" in caplog.text
    until(lambda: not thread.is_alive())
    assert len(rows(log, "t")) == 1
    # The log of an unclosed producer stays open; Python 3.13 would warn about it later.
    thread._log.close()


def test_list_topics_returns_partitions_and_reports_unknown_topics(clients: Any, log: Log) -> None:
    log.create_topic("t", 2)
    producer = clients.producer()
    assert sorted(producer.list_topics().topics["t"].partitions) == [0, 1]
    missing = producer.list_topics("x").topics["x"]
    assert missing.error == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_error_without_a_callback_is_logged(
    clients: Any, log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    log.create_topic("t")
    tomorrow = time.time_ns() // 1_000_000 + 86_400_000
    reported: list[KafkaError | None] = []
    with clients.producer() as producer:
        for _ in range(3):
            producer.produce("t", "late", timestamp=tomorrow)
        producer.produce("t", "told", timestamp=tomorrow,
                         on_delivery=lambda error, message: reported.append(error))
        producer.produce("t", "now")
    assert [value for _, _, value in rows(log, "t")] == [b"now"]
    # One line for each batch of the sender.
    counts = [
        re.fullmatch(
            r"Not delivered to topic 't': (\d) records?\. .+ Pass on_delivery .+",
            record.getMessage(),
        )
        for record in caplog.records
    ]
    assert sum(int(found[1]) for found in counts if found) == 3
    assert None not in counts
    assert len(reported) == 1
    assert reported[0] is not None
