"""Pooled producers, and delivery reports.

Unlike Java's producer, librdkafka does not split a batch that a broker rejects for its size. So no
producer makes batches larger than the smallest limit of the topics that it writes to.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Message, Producer, libversion

from penstock.log.errors import LogError
from penstock.log.kafka.client.connection import Connection, abandon, create_client
from penstock.log.kafka.client.errors import PURGED, UNKNOWN_TOPIC, error_of, translate
from penstock.log.kafka.client.native_io import (
    NativeDelivery,
    NativeProducer,
    find_native,
    native_settings,
)
from penstock.log.kafka.client.retry import Retry, retry_producer_call
from penstock.log.kafka.encoding import CheckedColumns

#: The largest batch of a producer.
BATCH_BYTES = 1_000_000
#: How long to wait for space in the producer's queue before each attempt.
_QUEUE_POLL_S = 0.05
#: Since version 2.11 librdkafka forgets all brokers when it loses its only connection. Sending
#: offsets then hangs: it waits for a coordinator that it has forgotten (its issue 5511).
KEEP_BROKERS = {"metadata.recovery.strategy": "none"} if libversion()[1] >= 0x020B0000 else {}
#: Kafka's constant for a timestamp that the broker has set.
_LOG_APPEND_TIME = 2


#: A transactional producer.
TransactionClient: TypeAlias = "Producer | NativeProducer"


class Delivery:
    """The delivery reports of one append. The producer's callbacks write it."""

    __slots__ = ("base", "error", "expected", "last", "reported", "timestamp")

    def __init__(self) -> None:
        self.base: int | None = None
        self.last: int | None = None
        self.timestamp = -1
        self.error: KafkaError | None = None
        #: The number of expected reports, and of those that have arrived.
        self.expected = 0
        self.reported = 0

    @property
    def is_complete(self) -> bool:
        """Whether all reports have arrived."""
        return self.reported >= self.expected

    @property
    def rejection(self) -> KafkaError | None:
        """Why a broker rejected a record; None if records were only purged with the others."""
        return None if self.error is None or self.error.code() in PURGED else self.error

    def report(self, error: KafkaError | None, message: Message) -> None:
        """Handle the report of one record."""
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

    def produce(
        self, producer: Producer, where: tuple[str, int], pieces: Iterable[CheckedColumns],
        now: int, *, report_all: bool, timeout: float,
    ) -> None:
        """Produce records. Without `report_all` only the first and the last are reported."""
        topic, partition = where
        is_first = True
        for columns in pieces:
            left = len(columns)
            for key, value, timestamp, headers in columns.each(now):
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
                except (BufferError, KafkaException) as error:
                    _retry_produce(producer, arguments, error, timeout)
            if columns.timestamps is None:
                self.timestamp = now


class PythonDelivery(Delivery):
    """The delivery reports of one append in a transaction."""

    __slots__ = ("_producer",)

    def __init__(self, producer: Producer) -> None:
        super().__init__()
        self._producer = producer

    def send(
        self, where: tuple[str, int], pieces: Iterable[CheckedColumns], now: int, timeout: float
    ) -> None:
        """Produce records. Only the first and the last are reported."""
        self.produce(self._producer, where, pieces, now, report_all=False, timeout=timeout)


AnyDelivery: TypeAlias = Delivery | NativeDelivery


def create_producer(settings: dict[str, Any]) -> TransactionClient:
    """Create a transactional producer, in C if that is possible."""
    extension, plain = find_native(), native_settings(settings)
    if extension is not None and plain is not None:
        return NativeProducer(extension, plain)
    return create_client(lambda: Producer(settings))


def create_delivery(producer: TransactionClient) -> PythonDelivery | NativeDelivery:
    """Return the delivery reports of one append."""
    if isinstance(producer, NativeProducer):
        return NativeDelivery(producer)
    return PythonDelivery(producer)


def _retry_produce(
    producer: Producer, arguments: Any, error: Exception, timeout: float
) -> None:
    """Produce a record again after the queue was full or the partition unknown."""
    retry = Retry(timeout)
    while True:
        if isinstance(error, KafkaException):
            if error_of(error).code() not in UNKNOWN_TOPIC:
                raise error
            # The partition exists, but the producer does not know it yet.
            producer.list_topics(arguments[0], timeout=timeout)
        else:
            producer.poll(_QUEUE_POLL_S)
        try:
            producer.produce(*arguments)
        except (BufferError, KafkaException) as again:
            error = again
        else:
            return
        if retry.is_over:
            raise KafkaException(
                KafkaError(KafkaError._TIMED_OUT, f"The producer accepts no records: {error}")
            ) from error


def init_transactions(
    connection: Connection, producer: TransactionClient, transactional_id: str
) -> None:
    """Fence older producers of the id, and wait until their last transaction is over."""
    what = f"Initializing transactions of '{transactional_id}' failed"
    try:
        retry_producer_call(producer.init_transactions, connection.timeout)
    except KafkaException as raised:
        error = error_of(raised)
        if error.code() == KafkaError._TIMED_OUT:
            raise connection.unavailable(what) from raised
        raise translate(error, what) from raised


class TransactionalProducer:
    """A producer with a transactional id, kept between transactions.

    Used by one thread at a time. `producer` creates one on demand, which fences older ones of the
    same id. A fatal error discards the producer.
    """

    def __init__(
        self, connection: Connection, transactional_id: str,
        on_init: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_init` runs after a producer is initialized, and may reject it by raising."""
        self._connection = connection
        self.transactional_id = transactional_id
        self._on_init = on_init
        self._producer: TransactionClient | None = None
        self._batch_bytes = BATCH_BYTES

    def producer(self, max_batch_bytes: int = BATCH_BYTES) -> TransactionClient:
        """Return the producer. Its batches stay within the limit."""
        if self._producer is not None and max_batch_bytes < self._batch_bytes:
            self.discard()
        if self._producer is None:
            self._batch_bytes = min(max_batch_bytes, self._batch_bytes)
            settings = KEEP_BROKERS | self._connection.settings.producer(
                self._batch_bytes, self.transactional_id
            )
            producer = create_producer(settings)
            init_transactions(self._connection, producer, self.transactional_id)
            self._on_init()
            self._producer = producer
        return self._producer

    def discard(self) -> None:
        """Give up the producer. The next one fences its unfinished transaction."""
        producer, self._producer = self._producer, None
        if producer is not None:
            # Not closed: closing would try to abort the transaction and log that it failed.
            with contextlib.suppress(KafkaException):
                producer.purge()

    def abandon(self) -> None:
        """Give up a producer with a hanging call. The next one fences it."""
        producer, self._producer = self._producer, None
        if producer is not None:
            abandon(producer)

    def close(self) -> None:
        """Discard the producer."""
        self.discard()


class Producers:
    """The producers of one log in one process that belong to no lease."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        #: Largest batch in bytes -> producer.
        self._idempotent: dict[int, Producer] = {}
        self._idle: list[TransactionalProducer] = []

    def idempotent(self, max_batch_bytes: int) -> Producer:
        """Return an idempotent producer with batches within the limit. Threads share it."""
        batch_bytes = min(max_batch_bytes, BATCH_BYTES)
        with self._lock:
            if batch_bytes not in self._idempotent:
                settings = self._connection.settings.producer(batch_bytes)
                self._idempotent[batch_bytes] = create_client(lambda: Producer(settings))
            return self._idempotent[batch_bytes]

    @contextlib.contextmanager
    def transactional(self) -> Iterator[TransactionalProducer]:
        """Borrow a transactional producer."""
        with self._lock:
            producer = self._idle.pop() if self._idle else None
        if producer is None:
            producer = TransactionalProducer(self._connection, f"penstock-{uuid.uuid4().hex}")
        try:
            yield producer
        except LogError:
            self._give_back(producer)
            raise
        except BaseException:
            producer.discard()
            raise
        self._give_back(producer)

    def _give_back(self, producer: TransactionalProducer) -> None:
        with self._lock:
            self._idle.append(producer)

    def discard_all(self) -> None:
        """Give up all idle producers. New ones are created on demand."""
        with self._lock:
            idempotent, self._idempotent = self._idempotent, {}
            idle, self._idle = self._idle, []
        for producer in idempotent.values():
            producer.flush(1)
        for transactional in idle:
            transactional.close()

    def close(self) -> None:
        """Give up all idle producers."""
        self.discard_all()
