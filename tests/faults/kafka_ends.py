"""The ends of partitions behind transactions that are not visible yet."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from penstock.log.types import TopicPartition

REQUEST_TIMEOUT_S = 10.0


@functools.cache
def _consumer(servers: str) -> Consumer:
    # No client logs: the broker may have been killed. Not an AdminClient: its list_offsets() does
    # not look for a new leader after one of three brokers was killed.
    return Consumer({
        "bootstrap.servers": servers, "group.id": "ends-of-partitions", "log_level": 0,
        "isolation.level": "read_uncommitted", "enable.auto.commit": False,
    })


def all_visible(address: str, ends: Mapping[TopicPartition, int]) -> bool:
    """Whether the partitions contain nothing behind these ends, also no open transaction.

    The partitions of a committed transaction become visible one by one.
    """
    consumer = _consumer(address.removeprefix("kafka://"))
    try:
        return all(_end(consumer, at) == end for at, end in ends.items())
    except KafkaException:
        # After a restart of the broker, a client may keep an old leader epoch.
        _consumer.cache_clear()
        return False


def _end(consumer: Consumer, at: TopicPartition) -> int:
    _, end = consumer.get_watermark_offsets(KafkaPartition(*at), timeout=REQUEST_TIMEOUT_S)
    return end
