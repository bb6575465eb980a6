"""One consumer that follows many partitions, and fetches small ranges of them.

A consumer per worker and partition, each polling the broker a hundred times a second for the end of
its partition, would keep a broker busy. One consumer sends one request for all partitions.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from penstock.log.kafka.client.connection import Connection, create_client
from penstock.log.types import TopicPartition

#: The consumer is unassigned after this time without use.
_IDLE_S = 1.0
#: The most messages that one call of the consumer returns.
_CONSUME_MESSAGES = 2048
#: Fetch nothing more while messages wait to be taken. Fetching each trickle of new records takes
#: about 400 requests per second (measured).
_FETCH_SETTINGS = {"queued.min.messages": 1, "fetch.queue.backoff.ms": 2}

Ranges = Mapping[TopicPartition, tuple[int, int]]


class _PartitionBuffer:
    """The position of the consumer in a partition, and the messages from there on."""

    __slots__ = ("fetched_to", "messages", "position")

    def __init__(self, position: int) -> None:
        #: The next offset to be returned, and the offset behind everything fetched.
        self.position = self.fetched_to = position
        self.messages: deque[Message] = deque()

    def is_complete_to(self, end: int) -> bool:
        """Return whether everything below the offset is fetched."""
        return self.fetched_to >= end

    def take(self, end: int) -> list[Message]:
        """Remove and return the messages below the offset."""
        taken = []
        while self.messages and (self.messages[0].offset() or 0) < end:
            taken.append(self.messages.popleft())
        self.position = end
        self.fetched_to = max(self.fetched_to, end)
        return taken


class Prefetcher:
    """The consumer and its buffers. A thread unassigns it when it is not used."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._consumer: Consumer | None = None
        self._buffers: dict[TopicPartition, _PartitionBuffer] = {}
        self._used_at = 0.0
        self._is_watched = False
        self._closed = False
        connection.close_later(self)

    def take(self, ranges: Ranges, timeout_s: float) -> dict[TopicPartition, list[Message]]:
        """Return the messages of the ranges that are complete in time, nothing of the others."""
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
            self._consumer = create_client(lambda: Consumer(settings))
        self._consumer.assign([
            KafkaPartition(*where, buffer.position) for where, buffer in self._buffers.items()
        ])
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
            first = self._consumer.poll(left)
            if first is None:
                return
            for message in (first, *self._consumer.consume(_CONSUME_MESSAGES, 0)):
                self._buffer(message)
            missing = {where for where in missing if not self._is_complete(where, ranges)}

    def _is_complete(self, where: TopicPartition, ranges: Ranges) -> bool:
        return self._buffers[where].is_complete_to(ranges[where][1])

    def _buffer(self, message: Message) -> None:
        error = message.error()
        offset = message.offset()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        where = TopicPartition(message.topic() or "", message.partition() or 0)
        buffer = self._buffers.get(where)
        if buffer is None or offset is None or offset < buffer.fetched_to:
            # It was fetched for an earlier position.
            return
        if error is None:
            buffer.messages.append(message)
            buffer.fetched_to = offset + 1
        else:
            buffer.fetched_to = max(buffer.fetched_to, offset)

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
                self._consumer.unassign()
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
