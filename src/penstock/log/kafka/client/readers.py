"""Consumers that are kept, one partition each.

A `Reader` is at rest, or stands in one partition: `position` is the next offset that it will give.
It reads ahead, so going on from where it stands costs nothing, and going elsewhere costs a fetch.
The end of a partition is known only from an event of librdkafka (`_PARTITION_EOF`), which comes
after a fetch that found nothing; its offset is behind markers and other offsets without a record.

A reader that stands at the end asks the broker again and again. So one that was not used for a
while is put to rest, by a thread that lives only while there is something to put to rest.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from penstock.log.kafka.client.connection import Connection, made
from penstock.log.kafka.client.errors import error_of

#: More are made only while all are in use.
_KEPT = 16
_REST_AFTER_S = 1.0
_POLL_S = 0.25
#: Messages that are fetched by one call.
_TAKE = 2048


class FetchError(Exception):
    """The broker refused a fetch; or said nothing for a while (`error` is None)."""

    def __init__(self, error: KafkaError | None) -> None:
        super().__init__(str(error))
        self.error = error


class Reader:
    """One consumer. Used by one thread at a time."""

    def __init__(self, connection: Connection) -> None:
        settings = connection.settings.reader()
        self._consumer = made(lambda: Consumer(settings))
        self.topic = ""
        self.partition = -1
        self.position = 0
        self.used_at = 0.0
        self._ahead: deque[Message] = deque()

    @property
    def is_resting(self) -> bool:
        """Whether it stands nowhere."""
        return not self.topic

    def stands_at(self, topic: str, partition: int, position: int) -> bool:
        """Whether it can go on from there at once."""
        return (self.topic, self.partition, self.position) == (topic, partition, position)

    def go_to(self, topic: str, partition: int, position: int) -> None:
        """Stand there."""
        if self.stands_at(topic, partition, position):
            return
        self._ahead.clear()
        self._consumer.assign([KafkaPartition(topic, partition, position)])
        self.topic, self.partition, self.position = topic, partition, position

    def take(self, end: int, most: int, patience: float) -> list[Message]:
        """The next messages up to the offset `end`, as many as there are but no more than `most`.

        The position moves behind the last of them; with fewer than `most`, to `end`. Raises
        `FetchError` if a fetch was refused, or if nothing arrived within `patience`.
        """
        taken: list[Message] = []
        waiting_since = time.monotonic()
        while len(taken) < most and self.position < end:
            message = self._next(most - len(taken))
            if message is None:
                if time.monotonic() - waiting_since > patience:
                    raise FetchError(None)
                continue
            waiting_since = time.monotonic()
            error = message.error()
            if error is None:
                offset: int = message.offset()  # type: ignore[assignment]
                if offset >= end:
                    # It belongs to the next range.
                    self._ahead.appendleft(message)
                    self.position = end
                else:
                    taken.append(message)
                    self.position = offset + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                failpoint: int = message.offset()  # type: ignore[assignment]
                self.position = max(self.position, min(failpoint, end))
            else:
                raise FetchError(error)
        return taken

    def _next(self, wanted: int) -> Message | None:
        if not self._ahead:
            try:
                first = self._consumer.poll(_POLL_S)
                if first is None:
                    return None
                self._ahead.append(first)
                if wanted > 1:
                    self._ahead.extend(self._consumer.consume(min(wanted - 1, _TAKE), 0))
            except KafkaException as raised:
                raise FetchError(error_of(raised)) from raised
        return self._ahead.popleft()

    def give_back(self, message: Message) -> None:
        """Take a message that was not wanted after all; it is the next one again."""
        self._ahead.appendleft(message)
        self.position = message.offset()  # type: ignore[assignment]

    def rest(self) -> None:
        """Stand nowhere and ask for nothing."""
        self._ahead.clear()
        self.topic, self.partition = "", -1
        with contextlib.suppress(KafkaException, RuntimeError):
            self._consumer.unassign()

    def close(self) -> None:
        """Let go."""
        with contextlib.suppress(KafkaException, RuntimeError):
            self._consumer.close()


class Readers:
    """The readers of one log in one process. May be used by many threads."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._idle: list[Reader] = []
        self._watched = False
        self._closed = False

    @contextlib.contextmanager
    def at(self, topic: str, partition: int, position: int) -> Iterator[Reader]:
        """A reader that stands there and that nobody else uses meanwhile."""
        reader = self._taken(topic, partition, position)
        try:
            reader.go_to(topic, partition, position)
            yield reader
        except BaseException:
            reader.close()
            raise
        self._give_back(reader)

    def _taken(self, topic: str, partition: int, position: int) -> Reader:
        with self._lock:
            chosen = next(
                (one for one in self._idle if one.stands_at(topic, partition, position)), None
            ) or next((one for one in self._idle if one.is_resting), None)
            if chosen is None and len(self._idle) >= _KEPT:
                chosen = min(self._idle, key=lambda one: one.used_at)
            if chosen is not None:
                self._idle.remove(chosen)
        return chosen or Reader(self._connection)

    def _give_back(self, reader: Reader) -> None:
        reader.used_at = time.monotonic()
        with self._lock:
            if not self._closed and len(self._idle) < _KEPT:
                self._idle.append(reader)
                if not self._watched:
                    self._watched = True
                    threading.Thread(
                        target=self._put_to_rest, name="penstock-kafka-readers", daemon=True
                    ).start()
                return
        reader.close()

    def _put_to_rest(self) -> None:
        while True:
            time.sleep(_REST_AFTER_S / 2)
            with self._lock:
                standing = [one for one in self._idle if not one.is_resting]
                if not standing or self._closed:
                    self._watched = False
                    return
                before = time.monotonic() - _REST_AFTER_S
                for reader in standing:
                    if reader.used_at < before:
                        reader.rest()

    def let_go_of(self, topic: str) -> None:
        """Close those that stand in a topic."""
        with self._lock:
            gone = [one for one in self._idle if one.topic == topic]
            self._idle = [one for one in self._idle if one.topic != topic]
        for reader in gone:
            reader.close()

    def close(self) -> None:
        """Close all."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for reader in idle:
            reader.close()
