"""Producers that are kept, and what became of what was sent.

librdkafka does not divide a batch that a broker refuses for its size, as Java's producer does. So
no producer makes batches that are larger than the smallest limit of the topics it writes to.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer, libversion

from penstock.log.errors import LogError
from penstock.log.kafka.client.connection import Connection, leave_behind, made
from penstock.log.kafka.client.errors import UNKNOWN, error_of, translated
from penstock.log.kafka.encoding import CheckedColumns

_BATCH_BYTES = 1_000_000
_ROOM_S = 0.05
#: Since version 2.11 librdkafka forgets all brokers when it has lost its only connection, and then
#: hangs when offsets are sent: it waits for a coordinator that it has forgotten (its issue 5511).
_REMEMBERS = {"metadata.recovery.strategy": "none"} if libversion()[1] >= 0x020B0000 else {}
#: What becomes of records that wait while their transaction is aborted.
_GIVEN_UP = frozenset((KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT))
#: Kafka's constant for a timestamp that the broker has given.
_LOG_APPEND_TIME = 2


class Delivery:
    """What became of one append. Written by the callbacks of the producer."""

    __slots__ = ("base", "error", "expected", "last", "reported", "timestamp")

    def __init__(self) -> None:
        self.base: int | None = None
        self.last: int | None = None
        self.timestamp = -1
        self.error: KafkaError | None = None
        #: How many reports will come, and how many have.
        self.expected = 0
        self.reported = 0

    @property
    def is_reported(self) -> bool:
        """Whether all is known."""
        return self.reported >= self.expected

    @property
    def refusal(self) -> KafkaError | None:
        """Why a broker did not take a record; None if it was merely given up with the others."""
        return None if self.error is None or self.error.code() in _GIVEN_UP else self.error

    def report(self, error: KafkaError | None, message: Message) -> None:
        """One record was delivered, or was not."""
        self.reported += 1
        if error is not None:
            self.error = self.error or error
            return
        offset: Any = message.offset()
        if self.base is None:
            self.base = offset
            kind, timestamp = message.timestamp()
            if kind == _LOG_APPEND_TIME:
                self.timestamp = timestamp
        self.last = offset

    def send(
        self, producer: Producer, where: tuple[str, int], pieces: Iterable[CheckedColumns],
        now: int, *, report_all: bool, patience: float,
    ) -> None:
        """Hand records to a producer; without `report_all` only the first and last are reported."""
        topic, partition = where
        is_first = True
        for rows in pieces:
            left = len(rows)
            for key, value, timestamp, headers in rows.each(now):
                left -= 1
                callback = None
                if report_all or is_first or not left:
                    callback = self.report
                    self.expected += 1
                    is_first = False
                arguments: Any = (topic, value, key, partition, callback, None, timestamp)
                if headers:
                    arguments = (*arguments, headers)
                try:
                    producer.produce(*arguments)
                except (BufferError, KafkaException) as refused:
                    _send_patiently(producer, arguments, refused, patience)
            if rows.timestamps is None:
                self.timestamp = now


def _send_patiently(
    producer: Producer, arguments: Any, refused: Exception, patience: float
) -> None:
    """Send a record that was refused at first: there was no room, or a partition is new."""
    deadline = time.monotonic() + patience
    while True:
        if isinstance(refused, KafkaException):
            if error_of(refused).code() not in UNKNOWN:
                raise refused
            # That the partition is there was looked up before; the producer has to hear of it.
            producer.list_topics(arguments[0], timeout=patience)
        else:
            producer.poll(_ROOM_S)
        try:
            producer.produce(*arguments)
        except (BufferError, KafkaException) as again:
            refused = again
        else:
            return
        if time.monotonic() > deadline:
            raise KafkaException(
                KafkaError(KafkaError._TIMED_OUT, f"The producer takes no more: {refused}")
            ) from refused


class TransactionalProducer:
    """A producer with a transactional id, kept from transaction to transaction.

    Used by one thread at a time. `producer` is made, and older ones with its id are fenced, when
    it is asked for and there is none; an error that a producer does not survive lets go of it.
    """

    def __init__(
        self, connection: Connection, transactional_id: str,
        on_begin: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_begin` is called when a producer was made, and may refuse it by raising."""
        self._connection = connection
        self.transactional_id = transactional_id
        self._on_begin = on_begin
        self._producer: Producer | None = None
        self._batch_bytes = _BATCH_BYTES

    def producer(self, limit: int = _BATCH_BYTES) -> Producer:
        """The producer, making batches within the limit."""
        if self._producer is not None and limit < self._batch_bytes:
            self.let_go()
        if self._producer is None:
            self._batch_bytes = min(limit, self._batch_bytes)
            settings = _REMEMBERS | self._connection.settings.producer(
                self._batch_bytes, self.transactional_id
            )
            producer = made(lambda: Producer(settings))
            self._init(producer)
            self._on_begin()
            self._producer = producer
        return self._producer

    def _init(self, producer: Producer) -> None:
        deadline = time.monotonic() + self._connection.timeout
        what = f"Transactions of '{self.transactional_id}' were to begin"
        while True:
            left = max(0.1, deadline - time.monotonic())
            try:
                producer.init_transactions(left)
            except KafkaException as raised:
                error = error_of(raised)
                if error.retriable() and time.monotonic() < deadline:
                    continue
                if error.code() == KafkaError._TIMED_OUT:
                    raise self._connection.unavailable(what) from raised
                raise translated(error, what) from raised
            else:
                return

    def let_go(self) -> None:
        """Give the producer up; a new one fences what may be left of it."""
        producer, self._producer = self._producer, None
        if producer is not None:
            # Not closed: that would try to abort, and complain that it cannot.
            with contextlib.suppress(KafkaException):
                producer.purge()

    def abandon(self) -> None:
        """Give up a producer in which a call hangs; a new one fences it."""
        producer, self._producer = self._producer, None
        if producer is not None:
            leave_behind(producer)

    def close(self) -> None:
        """Let go, for good."""
        self.let_go()


class Producers:
    """The producers of one log in one process that belong to no lease."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._plain: dict[int, Producer] = {}
        self._idle: list[TransactionalProducer] = []

    def plain(self, limit: int) -> Producer:
        """An idempotent producer, making batches within the limit. For many threads."""
        batch_bytes = min(limit, _BATCH_BYTES)
        with self._lock:
            if batch_bytes not in self._plain:
                settings = self._connection.settings.producer(batch_bytes)
                self._plain[batch_bytes] = made(lambda: Producer(settings))
            return self._plain[batch_bytes]

    @contextlib.contextmanager
    def transactional(self) -> Iterator[TransactionalProducer]:
        """A producer of transactions that nobody else uses meanwhile."""
        with self._lock:
            kept = self._idle.pop() if self._idle else None
        if kept is None:
            kept = TransactionalProducer(self._connection, f"penstock-{uuid.uuid4().hex}")
        try:
            yield kept
        except LogError:
            self._give_back(kept)
            raise
        except BaseException:
            kept.let_go()
            raise
        self._give_back(kept)

    def _give_back(self, kept: TransactionalProducer) -> None:
        with self._lock:
            self._idle.append(kept)

    def let_go(self) -> None:
        """Close all; those that are needed are made again."""
        with self._lock:
            plain, self._plain = self._plain, {}
            idle, self._idle = self._idle, []
        for producer in plain.values():
            producer.flush(1)
        for kept in idle:
            kept.close()

    def close(self) -> None:
        """Let go, for good."""
        self.let_go()
