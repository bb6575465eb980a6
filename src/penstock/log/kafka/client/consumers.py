"""Consumers that read partitions as columns.

`PythonConsumer` uses the API of confluent-kafka, whose consumers cannot be woken, so it waits in
short slices. `native_io` has the one in C.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from penstock.log.kafka.client.connection import create_client
from penstock.log.kafka.client.errors import error_of
from penstock.log.kafka.encoding import to_columns
from penstock.log.types import TopicPartition
from penstock.record import PartitionColumns

#: How long a wait cannot be interrupted.
_SLICE_S = 0.02
#: The most messages that one call of the consumer returns. Larger lists are slower.
_CONSUME_MESSAGES = 1000
_UNKNOWN_OFFSET = -1
#: How long to wait for the leaders of new topics. librdkafka itself looks for them once a second,
#: and fetches nothing before. Without a response it does so nevertheless.
METADATA_S = 1.0


class Fetched(NamedTuple):
    """The fetched part of one partition, in this order: records, the end, an error."""

    where: TopicPartition
    records: PartitionColumns | None
    #: The end of the partition, if no record follows; otherwise -1.
    end: int
    error: KafkaError | None
    #: The offset that the error is about, or -1.
    error_offset: int = _UNKNOWN_OFFSET


class PartitionConsumer(Protocol):
    """Reads partitions. One thread uses it; any thread may call `wake`."""

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read more partitions."""

    def replace(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions and no others."""

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading partitions."""

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching partitions."""

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch partitions again, from the last returned record on."""

    def consume(self, timeout: float, max_records: int) -> list[Fetched]:
        """Return the fetched parts. Waits for the first event, at most `timeout` seconds."""

    def high_watermark(self, where: TopicPartition) -> int:
        """Return the end of a partition when it was last fetched; negative if unknown."""

    def is_connected(self, timeout: float) -> bool:
        """Return whether the brokers respond. Sends no request unless connections were lost."""

    def wake(self) -> None:
        """Make the current or the next `consume` return at once."""

    def close(self) -> None:
        """Close the consumer."""


class PythonConsumer:
    """A `PartitionConsumer` with the API of confluent-kafka."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        all_settings: dict[str, Any] = {**settings, "error_cb": self._on_error}
        self._consumer = create_client(lambda: Consumer(all_settings))
        #: Whether all connections were lost. Written by the callback of the consumer.
        self._is_lost = False
        #: Written by any thread.
        self._is_woken = False
        self._topics: set[str] = set()

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._is_lost = True

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """See `PartitionConsumer.assign`."""
        self._find_leaders(positions)
        self._consumer.incremental_assign([
            KafkaPartition(*where, position) for where, position in positions.items()
        ])

    def replace(self, positions: Mapping[TopicPartition, int]) -> None:
        """See `PartitionConsumer.replace`."""
        self._find_leaders(positions)
        self._consumer.assign([
            KafkaPartition(*where, position) for where, position in positions.items()
        ])

    def _find_leaders(self, partitions: Iterable[TopicPartition]) -> None:
        """Ask for the leaders of new topics, see `METADATA_S`."""
        new = {where.topic for where in partitions} - self._topics
        self._topics |= new
        with contextlib.suppress(KafkaException):
            for topic in new:
                self._consumer.list_topics(topic, timeout=METADATA_S)

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """See `PartitionConsumer.unassign`."""
        self._consumer.incremental_unassign([KafkaPartition(*where) for where in partitions])

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """See `PartitionConsumer.pause`."""
        self._consumer.pause([KafkaPartition(*where) for where in partitions])

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """See `PartitionConsumer.resume`."""
        self._consumer.resume([KafkaPartition(*where) for where in partitions])

    def consume(self, timeout: float, max_records: int) -> list[Fetched]:
        """See `PartitionConsumer.consume`."""
        messages = self._take(timeout, max_records)
        # Most often one partition follows another, so few groups are made.
        groups: dict[tuple[Any, Any], list[Message]] = {}
        for message in messages:
            group = groups.get(where := (message.topic(), message.partition()))
            if group is None:
                groups[where] = [message]
            else:
                group.append(message)
        return [_to_fetched(TopicPartition(*where), group) for where, group in groups.items()]

    def _take(self, timeout: float, max_records: int) -> list[Message]:
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            first = self._consumer.poll(max(0.0, min(left, _SLICE_S)))
            if first is not None:
                break
            if self._is_woken or left <= _SLICE_S:
                self._is_woken = False
                return []
        self._is_woken = False
        messages = [first]
        while len(messages) < max_records:
            wanted = min(max_records - len(messages), _CONSUME_MESSAGES)
            more = self._consumer.consume(wanted, 0)
            messages += more
            if len(more) < wanted:
                break
        return messages

    def high_watermark(self, where: TopicPartition) -> int:
        """See `PartitionConsumer.high_watermark`."""
        found: Any = self._consumer.get_watermark_offsets(KafkaPartition(*where), cached=True)
        return int(found[1])

    def is_connected(self, timeout: float) -> bool:
        """See `PartitionConsumer.is_connected`."""
        if self._is_lost:
            try:
                self._consumer.list_topics("", timeout=timeout)
            except KafkaException as raised:
                return error_of(raised).code() not in {
                    KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN
                }
            self._is_lost = False
        return True

    def wake(self) -> None:
        """See `PartitionConsumer.wake`."""
        self._is_woken = True

    def close(self) -> None:
        """See `PartitionConsumer.close`."""
        with contextlib.suppress(KafkaException, RuntimeError):
            self._consumer.close()


def _to_fetched(where: TopicPartition, messages: list[Message]) -> Fetched:
    """Convert the messages and events of one partition."""
    end = error_offset = _UNKNOWN_OFFSET
    failed: KafkaError | None = None
    records = messages
    if any(message.error() is not None for message in messages):
        records = []
        for message in messages:
            error, offset = message.error(), message.offset()
            if error is None:
                records.append(message)
                end = _UNKNOWN_OFFSET
            elif error.code() == KafkaError._PARTITION_EOF:
                end = _UNKNOWN_OFFSET if offset is None else offset
            elif failed is None:
                failed = error
                error_offset = _UNKNOWN_OFFSET if offset is None else offset
    columns = to_columns(where, records) if records else None
    return Fetched(where, columns, end, failed, error_offset)
