"""The ends of partitions behind transactions that are not visible yet."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from penstock.log.types import TopicPartition

REQUEST_TIMEOUT_S = 30.0


@functools.cache
def _admin(servers: str) -> AdminClient:
    # No client logs: the broker may have been killed.
    return AdminClient({"bootstrap.servers": servers, "log_level": 0})


def all_visible(address: str, ends: Mapping[TopicPartition, int]) -> bool:
    """Whether the partitions contain nothing behind these ends, also no open transaction.

    The partitions of a committed transaction become visible one by one.
    """
    admin = _admin(address.removeprefix("kafka://"))
    futures: Any = admin.list_offsets(
        {KafkaPartition(*at): OffsetSpec.latest() for at in ends},
        isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=REQUEST_TIMEOUT_S,
    )
    try:
        found = {
            TopicPartition(at.topic, at.partition): future.result().offset
            for at, future in futures.items()
        }
    except KafkaException:
        # After a restart of the broker, a client may keep an old leader epoch.
        _admin.cache_clear()
        return False
    return found == ends
