"""One consumer that follows many partitions, and fetches small ranges of them.

A consumer per worker and partition, each polling the broker a hundred times a second for the end of
its partition, would keep a broker busy. One consumer sends one request for all partitions.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from confluent_kafka import KafkaException

from penstock.log.kafka.client.column_buffer import ColumnBuffer
from penstock.log.kafka.client.connection import Connection
from penstock.log.kafka.client.consumers import Fetched, PartitionConsumer
from penstock.log.kafka.client.native_io import create_consumer
from penstock.log.types import TopicPartition
from penstock.record import PartitionColumns

#: The consumer is unassigned after this time without use.
_IDLE_S = 1.0
#: The most records that one call of the consumer returns.
_CONSUME_RECORDS = 4096
#: Fetch nothing more while messages wait to be taken. Fetching each trickle of new records takes
#: about 400 requests per second (measured).
_FETCH_SETTINGS = {"queued.min.messages": 1, "fetch.queue.backoff.ms": 2}

Ranges = Mapping[TopicPartition, tuple[int, int]]


class _PartitionBuffer:
    """The position of the consumer in a partition, and the records from there on."""

    __slots__ = ("fetched_to", "position", "records")

    def __init__(self, position: int) -> None:
        #: The next offset to be returned, and the offset behind everything fetched.
        self.position = self.fetched_to = position
        self.records = ColumnBuffer()

    def is_complete_to(self, end: int) -> bool:
        """Return whether everything below the offset is fetched."""
        return self.fetched_to >= end

    def add(self, fetched: Fetched) -> None:
        """Add the fetched records behind those that are buffered."""
        records = fetched.records
        if records is not None and self.records.add(records, self.fetched_to):
            self.fetched_to = records.offsets[-1] + 1
        self.fetched_to = max(self.fetched_to, fetched.end)

    def take(self, end: int) -> PartitionColumns | None:
        """Remove and return the records below the offset."""
        taken = self.records.take(len(self.records), end)
        self.position = end
        self.fetched_to = max(self.fetched_to, end)
        return taken


class Prefetcher:
    """The consumer and its buffers. A thread unassigns it when it is not used."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._consumer: PartitionConsumer | None = None
        self._buffers: dict[TopicPartition, _PartitionBuffer] = {}
        self._used_at = 0.0
        self._is_watched = False
        self._closed = False
        connection.close_later(self)

    def take(
        self, ranges: Ranges, timeout_s: float
    ) -> dict[TopicPartition, PartitionColumns | None]:
        """Return the records of the ranges that are complete in time; None for an empty one."""
        with self._lock:
            if self._closed:
                return {}
            try:
                self._seek(ranges)
                self._fetch(ranges, timeout_s)
            except KafkaException:
                self._unassign()
                return {}
            finally:
                self._used_at = time.monotonic()
            return {
                where: self._buffers[where].take(end)
                for where, (_, end) in ranges.items()
                if where in self._buffers and self._buffers[where].is_complete_to(end)
            }

    def _seek(self, ranges: Ranges) -> None:
        """Move to the starts of the ranges. Positions in other partitions stay."""
        if all(
            where in self._buffers and self._buffers[where].position == start
            for where, (start, _) in ranges.items()
        ):
            return
        self._buffers = {
            where: _PartitionBuffer(buffer.position) for where, buffer in self._buffers.items()
        } | {where: _PartitionBuffer(start) for where, (start, _) in ranges.items()}
        if self._consumer is None:
            settings = {**self._connection.settings.reader(), **_FETCH_SETTINGS}
            self._consumer = create_consumer(settings)
        self._consumer.replace({
            where: buffer.position for where, buffer in self._buffers.items()
        })
        if not self._is_watched:
            self._is_watched = True
            threading.Thread(
                target=self._unassign_idle, name="penstock-kafka-prefetch", daemon=True
            ).start()

    def _fetch(self, ranges: Ranges, timeout_s: float) -> None:
        assert self._consumer is not None
        missing = {where for where in ranges if not self._is_complete(where, ranges)}
        deadline = time.monotonic() + timeout_s
        while missing and (left := deadline - time.monotonic()) > 0:
            parts = self._consumer.consume(left, _CONSUME_RECORDS)
            if not parts:
                return
            for fetched in parts:
                if fetched.error is not None:
                    raise KafkaException(fetched.error)
                if fetched.where in self._buffers:
                    self._buffers[fetched.where].add(fetched)
            missing = {where for where in missing if not self._is_complete(where, ranges)}

    def _is_complete(self, where: TopicPartition, ranges: Ranges) -> bool:
        return self._buffers[where].is_complete_to(ranges[where][1])

    def _unassign_idle(self) -> None:
        while True:
            time.sleep(_IDLE_S / 2)
            with self._lock:
                if self._closed or time.monotonic() - self._used_at > _IDLE_S:
                    self._is_watched = False
                    self._unassign()
                    return

    def _unassign(self) -> None:
        """Give up all positions and stop fetching."""
        self._buffers.clear()
        if self._consumer is not None:
            try:
                self._consumer.replace({})
            except (KafkaException, RuntimeError):
                self._consumer = None

    def close(self) -> None:
        """Close the consumer."""
        with self._lock:
            self._closed = True
            self._buffers.clear()
            consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()
