"""Asking brokers where partitions begin and end.

A consumer asks, not the admin client: after the leader of a partition has died, a request of the
admin client for offsets has no timeout, and keeps two threads busy for as long as it waits.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from penstock.log.kafka.client.connection import Connection, made
from penstock.log.kafka.client.errors import BUSY, UNKNOWN, error_of, translated
from penstock.log.kafka.client.topic_metadata import TopicMetadataCache
from penstock.log.types import TopicPartition

#: Kafka's timestamps for the two ends of a partition.
EARLIEST, LATEST = -2, -1
_TRY_S = 1.0
_PAUSE_S = 0.02
_LATER = BUSY | {
    KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN,
    KafkaError.REQUEST_TIMED_OUT, KafkaError._PARTIAL,
}


class OffsetLister:
    """Answers offsets, of committed records only. May be used by many threads."""

    def __init__(self, connection: Connection, topics: TopicMetadataCache) -> None:
        self._connection = connection
        self._topics = topics
        settings = connection.settings.reader()
        self._consumer = made(lambda: Consumer(settings))

    def offsets(
        self, partitions: Sequence[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, int]:
        """The offset for a time in each partition, -1 if there is none; or one of its ends.

        `UnknownTopic` if one of them is not there; asked again while leaders move.
        """
        if not partitions:
            return {}
        for topic, partition in partitions:
            if partition < 0:
                self._topics.find_partition(topic, partition)
        deadline = time.monotonic() + self._connection.timeout
        while True:
            error = None
            try:
                found: Any = self._consumer.offsets_for_times(
                    [KafkaPartition(*where, timestamp) for where in partitions], timeout=_TRY_S
                )
            except KafkaException as raised:
                error = error_of(raised)
            else:
                error = next((one.error for one in found if one.error is not None), None)
                if error is None:
                    return {TopicPartition(one.topic, one.partition): one.offset for one in found}
            self._explain(error, partitions, deadline)

    def _explain(
        self, error: KafkaError, partitions: Sequence[TopicPartition], deadline: float
    ) -> None:
        """Raise why there is no answer; if there may be one, wait a moment and return."""
        topics = sorted({topic for topic, _ in partitions})
        what = f"Offsets were asked for of {', '.join(topics)}"
        if error.code() in UNKNOWN:
            for topic, partition in partitions:
                self._topics.forget(topic)
                self._topics.find_partition(topic, partition)
        elif error.code() not in _LATER:
            raise translated(error, what, topics[0])
        if time.monotonic() > deadline:
            raise self._connection.unavailable(f"{what}: {error.str()}")
        time.sleep(_PAUSE_S)
        # A client that follows no topics hears only in this way who leads by now.
        with contextlib.suppress(KafkaException):
            self._consumer.list_topics(timeout=self._connection.request_timeout)

    def close(self) -> None:
        """Let go."""
        with contextlib.suppress(KafkaException, RuntimeError):
            self._consumer.close()

