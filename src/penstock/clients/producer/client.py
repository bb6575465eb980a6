"""`Producer`: appends records to topics, from a buffer and a thread of its own.

    producer = Producer({"log": "orders.db", "value.serializer": Serdes.json()})
    producer.produce("orders", {"amount": 27.0}, key="store_1234", on_delivery=report)
    producer.flush()

Three ways to send:
- fire and forget: `produce`, and `flush` before the program ends;
- asynchronous: `produce(..., on_delivery=f)` and now and then `poll(0)`, which calls `f(error,
  message)`; or `send`, which answers a future;
- synchronous: `send(...).result()`, or `flush` after every `produce`.

Callbacks are called by `poll`, `flush` and `commit_transaction`, in the thread that calls them,
and by a `produce` that would otherwise wait for room that only they can make.

Settings, with their defaults (librdkafka's other names are taken too):

    key.serializer, value.serializer   bytes as they are, texts as UTF-8
    partitioner           murmur2_random: Kafka's for keys, in turn without
    linger.ms             5: how long a record may wait for others
    batch.size            1000000 bytes, and
    batch.num.messages    10000: so many do not wait any longer
    buffer.memory         33554432: how much may wait at all, and
    queue.buffering.max.messages       0: no limit in records
    max.block.ms          60000: how long `produce` waits for room before `BufferError`
    acks                  all: a report tells the offset, once the record is in the log.
                          0: reports do not wait and know no offset; nothing is tried again
    retries               2147483647, every retry.backoff.ms (100) to retry.backoff.max.ms (1000),
    delivery.timeout.ms   120000: for so long; only while other processes hold the log
    enable.idempotence    true: nothing is ever doubled by a retry
    transactional.id      none: with one, records are sent in transactions
    message.max.bytes     the topic's max.message.bytes
    allow.auto.create.topics           false
    topic.metadata.refresh.interval.ms 5000: when added partitions are seen
    on_delivery           a callback for records that have none of their own
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

from penstock.clients.errors import (
    KafkaError,
    KeySerializationError,
    ValueSerializationError,
    failure,
)
from penstock.clients.producer.buffer import DeliveryCallback, Outbox, OutboxLimits, Pending
from penstock.clients.producer.partitioners import Chooser
from penstock.clients.producer.sender import Sender, SendRules, failed
from penstock.clients.producer.transactions import Transactions
from penstock.clients.serialization import Converter
from penstock.clients.settings import UNLIMITED, Settings, merged, seconds
from penstock.clients.topic_cache import KnownTopics
from penstock.clients.types import (
    ClusterMetadata,
    ConsumerGroupMetadata,
    HeadersLike,
    Message,
    TopicPartition,
    cluster_metadata,
    header_pairs,
)
from penstock.clock import wall_clock_ms
from penstock.errors import ConfigException
from penstock.log.base import Log
from penstock.log.types import record_size

logger = logging.getLogger(__name__)

#: What a record costs in the buffer beyond its bytes.
_OVERHEAD = 100


class Producer:
    """Appends records to topics. May be used by many threads."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        read = Settings(merged(config, settings), "Producer")
        self._keys = Converter(
            "key.serializer", read.raw("key.serializer"), is_key=True, reads=False
        )
        self._values = Converter(
            "value.serializer", read.raw("value.serializer"), is_key=False, reads=False
        )
        self._chooser = Chooser(read)
        self._on_delivery: DeliveryCallback | None = read.callback("on_delivery")
        self._max_bytes = read.number("message.max.bytes", 0)
        rules = _send_rules(read)
        limits = _limits(read)
        transactional_id = read.text("transactional.id")
        refresh_ms = read.number("topic.metadata.refresh.interval.ms", 5_000, -1)
        create = read.flag("allow.auto.create.topics", False)
        read.check_names()
        self._log: Log = read.open_log()
        self._topics = KnownTopics(self._log, refresh_ms, create=create)
        self._outbox = Outbox(limits)
        self._sender = Sender(self._log, self._outbox, rules, self._topics.forget)
        self._transactions: Transactions | None = None
        if transactional_id:
            self._transactions = Transactions(self._log, transactional_id, limits.batch_bytes)
        self._starting = threading.Lock()
        self._started = False
        self._closed = False
        self._finalizer = weakref.finalize(self, _let_go, self._outbox)

    def produce(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int = -1,
        on_delivery: DeliveryCallback | None = None,
        timestamp: int = 0,
        headers: HeadersLike | None = None,
        *,
        callback: DeliveryCallback | None = None,
    ) -> None:
        """Give a record to be sent. `callback` is another name of `on_delivery`.

        A timestamp of 0 is now. What can be refused at once is refused here: an unknown topic, a
        record that is too large, a value that the serializer does not take.
        """
        report = on_delivery or callback or self._on_delivery
        self._take(
            self._pending(topic, value, key, partition, timestamp, headers, callback=report)
        )

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int = -1,
        timestamp: int = 0,
        headers: HeadersLike | None = None,
    ) -> Future[Message]:
        """Give a record to be sent; the future answers the report, or raises `KafkaException`.

        It needs no `poll`. In a transaction it is ready after the commit.
        """
        future: Future[Message] = Future()
        self._take(
            self._pending(topic, value, key, partition, timestamp, headers, future=future)
        )
        return future

    def _pending(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int,
        timestamp: int,
        headers: HeadersLike | None,
        *,
        callback: DeliveryCallback | None = None,
        future: Future[Message] | None = None,
    ) -> Pending:
        known = self._topics.find(topic)
        key_bytes = value_bytes = None
        if key is not None:
            try:
                key_bytes = self._keys.function(topic)(key)  # type: ignore[misc]
            except Exception as error:
                raise KeySerializationError(
                    KafkaError(KafkaError._KEY_SERIALIZATION, _why(topic, "key", error))
                ) from error
        if value is not None:
            try:
                value_bytes = self._values.function(topic)(value)  # type: ignore[misc]
            except Exception as error:
                raise ValueSerializationError(
                    KafkaError(KafkaError._VALUE_SERIALIZATION, _why(topic, "value", error))
                ) from error
        if partition == -1:
            partition = self._chooser.choose(topic, key, value, key_bytes, known.partitions)
        elif not 0 <= partition < known.partitions:
            raise failure(
                KafkaError._UNKNOWN_PARTITION,
                f"Topic '{topic}' has no partition {partition}. It has {known.partitions}, "
                "numbered from 0.",
            )
        if timestamp < 0:
            raise ValueError(f"A record's timestamp must not be negative: {timestamp}.")
        pairs = header_pairs(headers)
        size = record_size(key_bytes, value_bytes, pairs)
        limit = min(self._max_bytes or known.max_bytes, known.max_bytes)
        if size > limit:
            raise failure(
                KafkaError.MSG_SIZE_TOO_LARGE,
                f"A record of {size} bytes is too large for topic '{topic}': "
                f"no more than {limit} are allowed.",
            )
        return Pending(
            topic, partition, key_bytes, value_bytes, timestamp or wall_clock_ms(),
            pairs, size + _OVERHEAD, time.monotonic(), callback, future,
        )

    def _take(self, pending: Pending) -> None:
        if self._closed:
            raise RuntimeError("The producer is closed.")
        if self._transactions is not None:
            self._transactions.add(pending)
            return
        if not self._started:
            self._start()
        self._outbox.put(pending)

    def _start(self) -> None:
        with self._starting:
            if not self._started:
                self._sender.start()
                self._started = True

    def poll(self, timeout: float | None = -1) -> int:
        """Call the callbacks that are due; answers how many. Waits for the first one."""
        return self._outbox.serve(seconds(timeout))

    def flush(self, timeout: float | None = -1) -> int:
        """Send everything now and wait for it; answers how many records are left.

        In a transaction records are handed to the transaction; their reports come with the commit.
        """
        if self._transactions is not None:
            self._transactions.flush()
        return self._outbox.flush(seconds(timeout))

    def purge(
        self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True
    ) -> None:
        """Give up records that are not being sent yet; their reports carry an error."""
        if in_queue:
            error = KafkaError(KafkaError._PURGE_QUEUE, "The record was purged.")
            self._outbox.sent(failed(self._outbox.purge(), error))

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """The topics of the log, or one."""
        return cluster_metadata(self._log, topic)

    # Transactions

    def init_transactions(self, timeout: float = -1) -> None:
        """Become the one producer with this `transactional.id`; an older one is fenced."""
        self._transactional().init(seconds(timeout))

    def begin_transaction(self) -> None:
        """Start a transaction: what is produced from now on appears with its commit."""
        self._transactional().begin()

    def send_offsets_to_transaction(
        self,
        positions: list[TopicPartition],
        group_metadata: ConsumerGroupMetadata,
        timeout: float = -1,
    ) -> None:
        """Commit a consumer's offsets with the transaction, or not at all."""
        self._transactional().send_offsets(positions, group_metadata)

    def commit_transaction(self, timeout: float = -1) -> None:
        """Let everything of the transaction appear at once; then call the callbacks."""
        _report(self._transactional().commit())

    def abort_transaction(self, timeout: float = -1) -> None:
        """Forget everything of the transaction; its records are reported as purged."""
        _report(self._transactional().abort())

    def _transactional(self) -> Transactions:
        if self._transactions is None:
            raise failure(
                KafkaError._NOT_CONFIGURED,
                "The producer has no transactions. Set 'transactional.id'.",
            )
        return self._transactions

    def close(self, timeout: float | None = -1) -> None:
        """Send what waits, give up an open transaction, let go of the log."""
        if self._closed:
            return
        self._closed = True
        if self._transactions is not None:
            _report(self._transactions.close())
        if self._started:
            left = self._outbox.flush(seconds(timeout))
            if left:
                self._sender.give_up()
                logger.warning("%d records were not sent before the producer was closed", left)
            self._outbox.close()
            self._sender.join(None if timeout is None or timeout < 0 else max(timeout, 1))
        self._finalizer.detach()
        self._log.close()

    def __len__(self) -> int:
        return len(self._outbox) + (len(self._transactions) if self._transactions else 0)

    # An empty producer is a producer.
    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _why(topic: str, what: str, error: Exception) -> str:
    return f"The {what} for topic '{topic}' cannot be written. {error}"


def _report(outcomes: list[tuple[Pending, KafkaError | None, Message | None]]) -> None:
    for pending, error, message in outcomes:
        if pending.callback is not None and message is not None:
            pending.callback(error, message)


def _let_go(outbox: Outbox) -> None:
    """Of a producer that nobody has closed: its thread ends once it has sent what waits."""
    if len(outbox):
        logger.warning(
            "A producer was not flushed or closed: %d records may not be sent", len(outbox)
        )
    outbox.close()


def _send_rules(read: Settings) -> SendRules:
    acks = read.choice("acks", "all", {"all": "all", "-1": "all", "1": "1", "0": "0"})
    idempotent = read.flag("enable.idempotence", acks == "all")
    if (idempotent or read.text("transactional.id")) and acks != "all":
        raise ConfigException(
            f"acks must be 'all' for an idempotent or transactional producer, not '{acks}'."
        )
    return SendRules(
        acks != "0",
        read.number("retries", UNLIMITED),
        read.number("retry.backoff.ms", 100, 1),
        read.number("retry.backoff.max.ms", 1_000, 1),
        read.number("delivery.timeout.ms", 120_000),
    )


def _limits(read: Settings) -> OutboxLimits:
    kilobytes = read.number("queue.buffering.max.kbytes", 32 * 1024, 1)
    return OutboxLimits(
        linger_ms=read.number("linger.ms", 5),
        batch_bytes=read.number("batch.size", 1_000_000),
        batch_records=read.number("batch.num.messages", 10_000, 1),
        buffer_bytes=read.number("buffer.memory", kilobytes * 1024, 1),
        buffer_records=read.number("queue.buffering.max.messages", 0),
        max_block_ms=read.number("max.block.ms", 60_000),
    )
