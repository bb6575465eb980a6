"""Retries of requests to Kafka, without a broker."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from penstock.log.errors import LogBusy, LogUnavailable
from penstock.log.kafka.client import retry
from penstock.log.kafka.client.connection import Connection
from penstock.log.kafka.client.errors import translate
from penstock.log.kafka.client.list_offsets import LATEST, OffsetLister
from penstock.log.kafka.client.retry import Retry, retry_producer_call
from penstock.log.kafka.client.settings import ClientSettings, KafkaOptions
from penstock.log.kafka.client.topic_metadata import TopicMetadataCache
from penstock.log.types import TopicPartition

#: The client has removed a dead broker together with its pending requests.
BROKER_REMOVED = KafkaError(KafkaError._DESTROY_BROKER)


class ForgetfulConsumer:
    """Loses the broker of its first request."""

    def __init__(self) -> None:
        self.requests = 0

    def offsets_for_times(
        self, partitions: list[KafkaPartition], timeout: float
    ) -> list[KafkaPartition]:
        self.requests += 1
        if self.requests == 1:
            raise KafkaException(BROKER_REMOVED)
        return [KafkaPartition(one.topic, one.partition, 7) for one in partitions]

    def list_topics(self, timeout: float) -> None:
        """Has no metadata."""

    def close(self) -> None:
        """Has nothing to close."""


class Clock:
    """Time that passes only in `sleep`."""

    def __init__(self) -> None:
        self.now = 100.0
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(retry, "time", clock)
    return clock


def test_request_to_a_dead_broker_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer: Any = ForgetfulConsumer()
    monkeypatch.setattr(
        "penstock.log.kafka.client.list_offsets.Consumer", lambda settings: consumer
    )
    connection = Connection(ClientSettings("127.0.0.1:1", KafkaOptions()))
    lister = OffsetLister(connection, TopicMetadataCache(connection))
    assert lister.offsets([TopicPartition("orders", 0)], LATEST) == {("orders", 0): 7}
    assert consumer.requests == 2


def test_error_of_a_removed_broker_is_temporary() -> None:
    assert isinstance(translate(BROKER_REMOVED, "The transaction was rejected"), LogBusy)


def test_pauses_double_up_to_the_longest(clock: Clock) -> None:
    growing = Retry(timeout_s=10, pause_s=0.5, longest_pause_s=3)
    for _ in range(5):
        growing.wait()
    assert clock.pauses == [0.5, 1, 2, 3, 3]
    clock.pauses.clear()
    constant = Retry(timeout_s=10, pause_s=0.5)
    for _ in range(3):
        constant.wait()
    assert clock.pauses == [0.5, 0.5, 0.5]


def test_error_is_raised_after_the_deadline(clock: Clock) -> None:
    attempts = Retry(timeout_s=1, pause_s=0.4)
    failure = LogUnavailable("no response")
    for _ in range(3):
        attempts.wait_or_raise(failure)
    assert attempts.is_over
    assert attempts.call_timeout() == 0.1
    with pytest.raises(LogUnavailable, match="no response"):
        attempts.wait_or_raise(failure)


@pytest.mark.parametrize(("error", "calls"), [
    (KafkaError(KafkaError._TIMED_OUT, "later", False, True), 2),
    (KafkaError(KafkaError._FAIL, "never"), 1),
    (KafkaError(KafkaError._TIMED_OUT, "abort", False, True, True), 1),
])
def test_only_retriable_producer_calls_are_repeated(error: KafkaError, calls: int) -> None:
    timeouts: list[float] = []

    def call(timeout: float) -> None:
        timeouts.append(timeout)
        if len(timeouts) == 1:
            raise KafkaException(error)

    if calls == 1:
        with pytest.raises(KafkaException):
            retry_producer_call(call, 5)
    else:
        retry_producer_call(call, 5)
    assert len(timeouts) == calls
