"""One consumer that follows several partitions, for whoever hands small ranges on.

A reader in every worker and for every partition, each of which asks the broker a hundred times a
second for the end of its partition, keeps a broker busy. One that stands in all partitions asks
once for all of them.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from penstock.log.kafka.client.connection import Connection, made
from penstock.log.types import TopicPartition

#: Whoever waits longer than this for a fetch had better let the workers read.
_PATIENCE_S = 0.05
_REST_AFTER_S = 1.0
_TAKE = 2048
#: While something waits to be taken nothing more is fetched: records trickle in all the time, and
#: to fetch each trickle of them is four hundred requests a second (measured).
_UNHURRIED = {"queued.min.messages": 1, "fetch.queue.backoff.ms": 2}


class _Place:
    """Where the consumer stands in a partition."""

    __slots__ = ("ahead", "position", "seen")

    def __init__(self, position: int) -> None:
        #: The next offset that will be given, and the one behind all that was fetched.
        self.position = self.seen = position
        self.ahead: deque[Message] = deque()

    def is_known_to(self, end: int) -> bool:
        """Whether everything before that offset was fetched."""
        return self.seen >= end

    def take(self, end: int) -> list[Message]:
        """The messages before that offset."""
        taken = []
        while self.ahead and (self.ahead[0].offset() or 0) < end:
            taken.append(self.ahead.popleft())
        self.position = end
        self.seen = max(self.seen, end)
        return taken


class Prefetcher:
    """The consumer. Used by one thread at a time; a thread of its own puts it to rest."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._consumer: Consumer | None = None
        self._places: dict[TopicPartition, _Place] = {}
        self._used_at = 0.0
        self._watched = False
        self._closed = False
        connection.opened(self)

    def take(
        self, ranges: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, list[Message]]:
        """The messages of those ranges that are there at once; of others there is nothing."""
        with self._lock:
            if self._closed:
                return {}
            try:
                self._stand(ranges)
                self._fetch(ranges)
            except KafkaException:
                self._rest()
                return {}
            finally:
                self._used_at = time.monotonic()
            return {
                where: self._places[where].take(end)
                for where, (_, end) in ranges.items()
                if where in self._places and self._places[where].is_known_to(end)
            }

    def _stand(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Stand at the starts of these ranges, and where it stood in other partitions."""
        if all(
            where in self._places and self._places[where].position == start
            for where, (start, _) in ranges.items()
        ):
            return
        self._places = {
            where: _Place(place.position) for where, place in self._places.items()
        } | {where: _Place(start) for where, (start, _) in ranges.items()}
        if self._consumer is None:
            settings = {**self._connection.settings.reader(), **_UNHURRIED}
            self._consumer = made(lambda: Consumer(settings))
        self._consumer.assign([
            KafkaPartition(*where, place.position) for where, place in self._places.items()
        ])
        if not self._watched:
            self._watched = True
            threading.Thread(
                target=self._watch, name="penstock-kafka-ahead", daemon=True
            ).start()

    def _fetch(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> None:
        assert self._consumer is not None
        missing = {where for where in ranges if not self._is_known(where, ranges)}
        deadline = time.monotonic() + _PATIENCE_S
        while missing and (left := deadline - time.monotonic()) > 0:
            first = self._consumer.poll(left)
            if first is None:
                return
            for message in (first, *self._consumer.consume(_TAKE, 0)):
                self._note(message)
            missing = {where for where in missing if not self._is_known(where, ranges)}

    def _is_known(
        self, where: TopicPartition, ranges: Mapping[TopicPartition, tuple[int, int]]
    ) -> bool:
        return self._places[where].is_known_to(ranges[where][1])

    def _note(self, message: Message) -> None:
        error = message.error()
        offset = message.offset()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        place = self._places.get(TopicPartition(message.topic() or "", message.partition() or 0))
        if place is None or offset is None or offset < place.seen:
            # Of a partition, or a place in it, that it has left.
            return
        if error is None:
            place.ahead.append(message)
            place.seen = offset + 1
        else:
            place.seen = max(place.seen, offset)

    def _watch(self) -> None:
        while True:
            time.sleep(_REST_AFTER_S / 2)
            with self._lock:
                if self._closed or time.monotonic() - self._used_at > _REST_AFTER_S:
                    self._watched = False
                    self._rest()
                    return

    def _rest(self) -> None:
        """Stand nowhere and ask for nothing."""
        self._places.clear()
        if self._consumer is not None:
            try:
                self._consumer.unassign()
            except (KafkaException, RuntimeError):
                self._consumer = None

    def close(self) -> None:
        """Let go."""
        with self._lock:
            self._closed = True
            self._places.clear()
            consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()
