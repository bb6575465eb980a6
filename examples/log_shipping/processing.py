"""A consumer of a group that commits the offset behind the last record of each partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from log_shipping.shipper import LogLine
from penstock.clients import Consumer, TopicPartition

GROUP = "simple-logs-processing"
#: The most records of one poll.
MAX_RECORDS = 5

_json = msgspec.json.Decoder(LogLine)


def open_consumer(log: str, name: str, topic: str) -> Consumer:
    """Join the group. Offsets are committed by hand."""
    consumer = Consumer({
        "log": log, "group.id": GROUP, "client.id": name, "auto.offset.reset": "earliest",
        "enable.auto.commit": False, "session.timeout.ms": 6000,
    })
    consumer.subscribe([topic])
    return consumer


def process_some(consumer: Consumer, name: str, out: Callable[[str], object]) -> int:
    """Process the records of one poll, then commit. Returns how many there were."""
    behind: dict[tuple[str, int], int] = {}
    messages = consumer.consume(MAX_RECORDS, timeout=0.5)
    for message in messages:
        line = _json.decode(message.value())
        out(
            f"ConsumerId:{name}-Topic:{message.topic()} => Partition={message.partition()}, "
            f"Offset={message.offset()}, EventTime={message.timestamp()[1]}, Val={line.message}"
        )
        behind[message.topic(), message.partition()] = message.offset() + 1
    if behind:
        consumer.commit(offsets=list(_positions(behind)), asynchronous=False)
    return len(messages)


def _positions(behind: dict[tuple[str, int], int]) -> Iterator[TopicPartition]:
    for (topic, partition), offset in behind.items():
        yield TopicPartition(topic, partition, offset)
