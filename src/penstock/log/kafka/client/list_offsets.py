"""Asks brokers for the offsets of partitions.

Uses a consumer, not the admin client: after the leader of a partition has died, an offset request
of the admin client has no timeout and keeps two threads busy.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from penstock.log.kafka.client.connection import Connection, create_client
from penstock.log.kafka.client.errors import RETRIABLE, UNKNOWN_TOPIC, error_of, translate
from penstock.log.kafka.client.retry import Retry
from penstock.log.kafka.client.topic_metadata import TopicMetadataCache
from penstock.log.types import TopicPartition

#: Kafka's timestamps for the two ends of a partition.
EARLIEST, LATEST = -2, -1
_REQUEST_S = 1.0
_PAUSE_S = 0.02


class OffsetLister:
    """Returns offsets of partitions: of committed records, by default. Thread-safe."""

    def __init__(
        self, connection: Connection, topics: TopicMetadataCache, *,
        isolation: str = "read_committed",
    ) -> None:
        self._connection = connection
        self._topics = topics
        settings = {**connection.settings.reader(), "isolation.level": isolation}
        self._consumer = create_client(lambda: Consumer(settings))

    def offsets(
        self, partitions: Sequence[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, int]:
        """Return for each partition the offset for a timestamp, or one of its ends.

        The offset is -1 if no record is that late. `UnknownTopic` if a partition does not exist.
        """
        if not partitions:
            return {}
        for topic, partition in partitions:
            if partition < 0:
                self._topics.find_partition(topic, partition)
        retry = Retry(self._connection.timeout, _PAUSE_S)
        while True:
            error = None
            try:
                found: Any = self._consumer.offsets_for_times(
                    [KafkaPartition(*where, timestamp) for where in partitions], timeout=_REQUEST_S
                )
            except KafkaException as raised:
                error = error_of(raised)
            else:
                error = next((one.error for one in found if one.error is not None), None)
                if error is None:
                    return {TopicPartition(one.topic, one.partition): one.offset for one in found}
            self._wait_or_raise(retry, error, partitions)

    def _wait_or_raise(
        self, retry: Retry, error: KafkaError, partitions: Sequence[TopicPartition]
    ) -> None:
        topics = sorted({topic for topic, _ in partitions})
        what = f"Listing the offsets of {', '.join(topics)} failed"
        if error.code() in UNKNOWN_TOPIC:
            for topic, partition in partitions:
                self._topics.invalidate(topic)
                self._topics.find_partition(topic, partition)
        elif error.code() not in RETRIABLE and error.code() != KafkaError._PARTIAL:
            raise translate(error, what, topics[0])
        if retry.is_over:
            raise self._connection.unavailable(f"{what}: {error.str()}")
        retry.wait()
        # A client that follows no topics learns of new leaders only from this request.
        with contextlib.suppress(KafkaException):
            self._consumer.list_topics(timeout=self._connection.request_timeout)

    def close(self) -> None:
        """Close the consumer."""
        with contextlib.suppress(KafkaException, RuntimeError):
            self._consumer.close()
