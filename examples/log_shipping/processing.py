"""A consumer of a group that commits the offset behind the last record of each partition."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from log_shipping.shipper import LogLine
from penstock.clients import Consumer, KafkaError, KafkaException, Message, TopicPartition

GROUP = "simple-logs-processing"


def open_consumer(
    log: str, name: str, topic: str, *, group: str = GROUP, start: int | None = None,
    session_ms: int = 6000,
) -> Consumer:
    """Join the group. With `start`, begin at this offset of each partition, not at the commits."""
    consumer = Consumer({
        "log": log, "group.id": group, "client.id": name, "auto.offset.reset": "earliest",
        "enable.auto.commit": False, "max.poll.records": 5, "session.timeout.ms": session_ms,
        # A consumer keeps its partitions when another one joins or leaves.
        "partition.assignment.strategy": "cooperative-sticky",
    })

    def seek(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            consumer.seek(TopicPartition(each.topic, each.partition, start))

    consumer.subscribe([topic], **({} if start is None else {"on_assign": seek}))
    return consumer


def process_some(consumer: Consumer, name: str, out: Callable[[str], object]) -> list[Message]:
    """Process the records of one poll. Returns them; `commit` is the second step."""
    messages = consumer.consume(timeout=0.1)
    for message in messages:
        line = msgspec.json.decode(message.value(), type=LogLine)
        out(
            f"ConsumerId:{name}-Topic:{message.topic()} => Partition={message.partition()}, "
            f"Offset={message.offset()}, EventTime={message.timestamp()[1]}, Val={line.message}"
        )
    return messages


def commit(consumer: Consumer, messages: list[Message]) -> None:
    """Commit the offset behind the last record of each partition.

    A commit during a rebalance is rejected. A later commit includes these records, or another
    consumer gets their partition and processes them again.
    """
    behind = {
        (message.topic(), message.partition()): message.offset() + 1 for message in messages
    }
    if behind:
        positions = [TopicPartition(*partition, offset) for partition, offset in behind.items()]
        try:
            consumer.commit(offsets=positions, asynchronous=False)
        except KafkaException as error:
            if error.error.code() != KafkaError.ILLEGAL_GENERATION:
                raise
