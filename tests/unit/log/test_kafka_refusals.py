"""What a broker that dies does to a question that is on its way."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from penstock.log.errors import LogBusy
from penstock.log.kafka.client.connection import Connection
from penstock.log.kafka.client.errors import translated
from penstock.log.kafka.client.list_offsets import LATEST, OffsetLister
from penstock.log.kafka.client.settings import ClientSettings, KafkaOptions
from penstock.log.kafka.client.topic_metadata import TopicMetadataCache
from penstock.log.types import TopicPartition

#: The client has forgotten a broker that has died, with the requests that waited for it.
FORGOTTEN = KafkaError(KafkaError._DESTROY_BROKER)


class ForgetfulConsumer:
    """Forgets the broker of its first question."""

    def __init__(self) -> None:
        self.asked = 0

    def offsets_for_times(
        self, partitions: list[KafkaPartition], timeout: float
    ) -> list[KafkaPartition]:
        self.asked += 1
        if self.asked == 1:
            raise KafkaException(FORGOTTEN)
        return [KafkaPartition(one.topic, one.partition, 7) for one in partitions]

    def list_topics(self, timeout: float) -> None:
        """There is nothing to tell."""

    def close(self) -> None:
        """There is nothing to close."""


def test_a_question_to_a_broker_that_has_died_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer: Any = ForgetfulConsumer()
    monkeypatch.setattr(
        "penstock.log.kafka.client.list_offsets.Consumer", lambda settings: consumer
    )
    connection = Connection(ClientSettings("127.0.0.1:1", KafkaOptions()))
    asker = OffsetLister(connection, TopicMetadataCache(connection))
    assert asker.offsets([TopicPartition("orders", 0)], LATEST) == {("orders", 0): 7}
    assert consumer.asked == 2


def test_what_a_forgotten_broker_has_not_answered_may_be_tried_again() -> None:
    assert isinstance(translated(FORGOTTEN, "The transaction was refused"), LogBusy)
