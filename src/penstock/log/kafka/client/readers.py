"""Pooled consumers, one partition each.

A `Reader` is idle, or positioned in one partition. It prefetches, so continuing at its position
costs nothing, and any other position costs a fetch. The end of a partition is known only from an
event of librdkafka (`_PARTITION_EOF`), which follows a fetch without records; its offset is behind
transaction markers and other offsets without a record.

A reader at the end of its partition polls the broker continuously. Therefore a thread unassigns
readers that were not used for a while. The thread runs only while there are such readers.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from penstock.log.kafka.client.connection import Connection, create_client
from penstock.log.kafka.client.errors import error_of

#: The size of the pool. More readers are created only while all are in use.
_POOL_SIZE = 16
#: A reader is unassigned after this time without use.
_IDLE_S = 1.0
_POLL_S = 0.25
#: The most messages that one call of the consumer returns.
_CONSUME_MESSAGES = 2048


class FetchError(Exception):
    """A broker rejected a fetch, or did not respond for a while (`error` is None)."""

    def __init__(self, error: KafkaError | None, offset: int | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        #: The offset of the batch that could not be read, if the error is about one.
        self.offset = offset


class Reader:
    """One consumer. Used by one thread at a time."""

    def __init__(self, connection: Connection) -> None:
        settings = connection.settings.reader()
        self._consumer = create_client(lambda: Consumer(settings))
        self.topic = ""
        self.partition = -1
        #: The next offset to be returned.
        self.position = 0
        self.used_at = 0.0
        self._fetched: deque[Message] = deque()

    @property
    def is_unassigned(self) -> bool:
        """Whether it has no position."""
        return not self.topic

    def is_at(self, topic: str, partition: int, position: int) -> bool:
        """Return whether it can continue at this position without a new fetch."""
        return (self.topic, self.partition, self.position) == (topic, partition, position)

    def seek(self, topic: str, partition: int, position: int) -> None:
        """Move to a position."""
        if self.is_at(topic, partition, position):
            return
        self._fetched.clear()
        self._consumer.assign([KafkaPartition(topic, partition, position)])
        self.topic, self.partition, self.position = topic, partition, position

    def take(self, end: int, max_messages: int, timeout: float) -> list[Message]:
        """Return the next messages below the offset `end`, at most `max_messages`.

        The position moves behind the last message; if there are fewer than `max_messages`, to
        `end`. Raises `FetchError` if a fetch was rejected or nothing arrived within the timeout.
        """
        taken: list[Message] = []
        waiting_since = time.monotonic()
        while len(taken) < max_messages and self.position < end:
            message = self._next(max_messages - len(taken))
            if message is None:
                if time.monotonic() - waiting_since > timeout:
                    raise FetchError(None)
                continue
            waiting_since = time.monotonic()
            error = message.error()
            if error is None:
                offset: int = message.offset()  # type: ignore[assignment]
                if offset >= end:
                    # The message belongs to the next range.
                    self._fetched.appendleft(message)
                    self.position = end
                else:
                    taken.append(message)
                    self.position = offset + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                partition_end: int = message.offset()  # type: ignore[assignment]
                self.position = max(self.position, min(partition_end, end))
            else:
                raise FetchError(error, message.offset())
        return taken

    def _next(self, wanted: int) -> Message | None:
        if not self._fetched:
            try:
                first = self._consumer.poll(_POLL_S)
                if first is None:
                    return None
                self._fetched.append(first)
                if wanted > 1:
                    self._fetched.extend(
                        self._consumer.consume(min(wanted - 1, _CONSUME_MESSAGES), 0)
                    )
            except KafkaException as raised:
                raise FetchError(error_of(raised)) from raised
        return self._fetched.popleft()

    def push_back(self, message: Message) -> None:
        """Return a message that was taken; it is the next one again."""
        self._fetched.appendleft(message)
        self.position = message.offset()  # type: ignore[assignment]

    def unassign(self) -> None:
        """Give up the position and stop fetching."""
        self._fetched.clear()
        self.topic, self.partition = "", -1
        with contextlib.suppress(KafkaException, RuntimeError):
            self._consumer.unassign()

    def close(self) -> None:
        """Close the consumer."""
        with contextlib.suppress(KafkaException, RuntimeError):
            self._consumer.close()


class Readers:
    """The pool of readers of one log in one process. Thread-safe."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._idle: list[Reader] = []
        #: Whether the thread that unassigns idle readers runs.
        self._is_watched = False
        self._closed = False

    @contextlib.contextmanager
    def at(self, topic: str, partition: int, position: int) -> Iterator[Reader]:
        """Borrow a reader at a position."""
        reader = self._borrow(topic, partition, position)
        try:
            reader.seek(topic, partition, position)
            yield reader
        except BaseException:
            reader.close()
            raise
        self._give_back(reader)

    def _borrow(self, topic: str, partition: int, position: int) -> Reader:
        with self._lock:
            chosen = next(
                (one for one in self._idle if one.is_at(topic, partition, position)), None
            ) or next((one for one in self._idle if one.is_unassigned), None)
            if chosen is None and len(self._idle) >= _POOL_SIZE:
                chosen = min(self._idle, key=lambda one: one.used_at)
            if chosen is not None:
                self._idle.remove(chosen)
        return chosen or Reader(self._connection)

    def _give_back(self, reader: Reader) -> None:
        reader.used_at = time.monotonic()
        with self._lock:
            if not self._closed and len(self._idle) < _POOL_SIZE:
                self._idle.append(reader)
                if not self._is_watched:
                    self._is_watched = True
                    threading.Thread(
                        target=self._unassign_idle, name="penstock-kafka-readers", daemon=True
                    ).start()
                return
        reader.close()

    def _unassign_idle(self) -> None:
        while True:
            time.sleep(_IDLE_S / 2)
            with self._lock:
                assigned = [one for one in self._idle if not one.is_unassigned]
                if not assigned or self._closed:
                    self._is_watched = False
                    return
                before = time.monotonic() - _IDLE_S
                for reader in assigned:
                    if reader.used_at < before:
                        reader.unassign()

    def close_topic(self, topic: str) -> None:
        """Close the idle readers of a topic."""
        with self._lock:
            gone = [one for one in self._idle if one.topic == topic]
            self._idle = [one for one in self._idle if one.topic != topic]
        for reader in gone:
            reader.close()

    def close(self) -> None:
        """Close all idle readers."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for reader in idle:
            reader.close()
