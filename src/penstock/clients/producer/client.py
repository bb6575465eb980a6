"""`Producer`: appends records to topics through a buffer and a sender thread.

    producer = Producer({"log": "orders.db", "value.serializer": Serdes.json()})
    producer.produce("orders", {"amount": 27.0}, key="store_1234", on_delivery=report)
    producer.flush()

Three ways to send:
- fire and forget: `produce`, and `flush` before the program ends;
- asynchronous: `produce(..., on_delivery=f)` with regular calls of `poll(0)`, which calls
  `f(error, message)`; or `send`, which returns a future;
- synchronous: `send(...).result()`, or `flush` after every `produce`.

Callbacks run in `poll`, `flush` and `commit_transaction`, in the calling thread. They also run in a
`produce` that waits for room in the buffer which only callbacks can free.

`settings.py` lists the settings and their defaults.
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
    kafka_exception,
)
from penstock.clients.producer.buffer import (
    DeliveryCallback,
    DeliveryReport,
    PendingRecord,
    RecordBuffer,
)
from penstock.clients.producer.sender import Sender, failure_reports
from penstock.clients.producer.settings import ProducerSettings
from penstock.clients.producer.transactions import ProducerTransactions
from penstock.clients.settings import ConfigReader, merge_config, to_timeout
from penstock.clients.topic_cache import TopicCache
from penstock.clients.types import (
    ClusterMetadata,
    ConsumerGroupMetadata,
    HeadersLike,
    Message,
    TopicPartition,
    describe_cluster,
    to_header_pairs,
)
from penstock.clock import wall_clock_ms
from penstock.log.base import Log
from penstock.log.types import record_size

logger = logging.getLogger(__name__)

#: Estimated memory of a buffered record beyond its bytes.
_RECORD_OVERHEAD = 100


class Producer:
    """Appends records to topics. Thread-safe.

    Args:
        config: Settings under the names of confluent-kafka; `log` selects the log.
        settings: The same as keyword arguments, with underscores; they win.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from penstock.clients import AdminClient, NewTopic
        >>> with TemporaryDirectory() as directory:
        ...     log = f"{directory}/orders.db"
        ...     with AdminClient(log=log) as admin:
        ...         _ = admin.create_topics([NewTopic("orders")])["orders"].result()
        ...     with Producer(log=log) as producer:
        ...         producer.produce("orders", key="ann", value="3")
        ...         producer.flush()
        0
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        reader = ConfigReader(merge_config(config, settings), "Producer")
        options = ProducerSettings.read(reader)
        self._key_serde = options.key_serde
        self._value_serde = options.value_serde
        self._partitioner = options.partitioner
        self._on_delivery = options.on_delivery
        self._max_bytes = options.max_bytes
        self._log: Log = reader.open_log()
        self._topics = TopicCache(
            self._log, options.metadata_refresh_ms, create=options.create_topics
        )
        self._buffer = RecordBuffer(options.buffer)
        self._sender = Sender(self._log, self._buffer, options.send, self._topics.invalidate)
        self._transactions: ProducerTransactions | None = None
        if options.transactional_id:
            self._transactions = ProducerTransactions(
                self._log, options.transactional_id, options.buffer.batch_bytes
            )
        self._start_lock = threading.Lock()
        self._started = False
        self._closed = False
        self._finalizer = weakref.finalize(self, _close_forgotten, self._buffer)

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
        """Add a record to the buffer. `callback` is an alias of `on_delivery`.

        A timestamp of 0 means the current time. Unknown topics, records that are too large and
        values that cannot be serialized raise here.

        Args:
            topic: The topic.
            value: The value.
            key: The key.
            partition: The partition; -1 for the partition of the key.
            on_delivery: Called with an error or None, and the message.
            timestamp: The timestamp, in milliseconds since the epoch.
            headers: The headers: pairs of a name and bytes or None.
            callback: The same as `on_delivery`.
        """
        report = on_delivery or callback or self._on_delivery
        self._enqueue(
            self._create_record(topic, value, key, partition, timestamp, headers, callback=report)
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
        """Add a record to the buffer and return a future of its delivery report.

        The future raises `KafkaException` if the delivery fails. It does not depend on `poll`. In a
        transaction, the commit resolves it.

        Args:
            topic: The topic.
            value: The value.
            key: The key.
            partition: The partition; -1 for the partition of the key.
            timestamp: The timestamp, in milliseconds since the epoch.
            headers: The headers: pairs of a name and bytes or None.

        Returns:
            A future of the delivery report.
        """
        future: Future[Message] = Future()
        self._enqueue(
            self._create_record(topic, value, key, partition, timestamp, headers, future=future)
        )
        return future

    def _create_record(
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
    ) -> PendingRecord:
        metadata = self._topics.get(topic)
        header_pairs = to_header_pairs(headers)
        key_bytes = value_bytes = None
        if key is not None:
            try:
                key_bytes, header_pairs = self._key_serde.serialize(topic, key, header_pairs)
            except Exception as error:
                raise KeySerializationError(
                    KafkaError(
                        KafkaError._KEY_SERIALIZATION, _serialization_reason(topic, "key", error)
                    )
                ) from error
        if value is not None:
            try:
                value_bytes, header_pairs = self._value_serde.serialize(
                    topic, value, header_pairs
                )
            except Exception as error:
                raise ValueSerializationError(
                    KafkaError(
                        KafkaError._VALUE_SERIALIZATION,
                        _serialization_reason(topic, "value", error),
                    )
                ) from error
        if partition == -1:
            partition = self._partitioner.choose(
                topic, key, value, key_bytes, metadata.partitions
            )
        elif not 0 <= partition < metadata.partitions:
            raise kafka_exception(
                KafkaError._UNKNOWN_PARTITION,
                f"Topic '{topic}' has no partition {partition}. It has {metadata.partitions}, "
                "numbered from 0.",
            )
        if timestamp < 0:
            raise ValueError(f"The timestamp of a record must not be negative: {timestamp}.")
        size = record_size(key_bytes, value_bytes, header_pairs)
        limit = min(self._max_bytes or metadata.max_bytes, metadata.max_bytes)
        if size > limit:
            raise kafka_exception(
                KafkaError.MSG_SIZE_TOO_LARGE,
                f"A record of {size} bytes is too large for topic '{topic}'. The limit is {limit} "
                "bytes.",
            )
        return PendingRecord(
            topic, partition, key_bytes, value_bytes, timestamp or wall_clock_ms(),
            header_pairs, size + _RECORD_OVERHEAD, time.monotonic(), callback, future,
        )

    def _enqueue(self, record: PendingRecord) -> None:
        if self._closed:
            raise RuntimeError("The producer is closed.")
        if self._transactions is not None:
            self._transactions.add(record)
            return
        if not self._started:
            self._start_sender()
        self._buffer.append(record)

    def _start_sender(self) -> None:
        with self._start_lock:
            if not self._started:
                self._sender.start()
                self._started = True

    def poll(self, timeout: float | None = -1) -> int:
        """Run the delivery callbacks and return their number. Waits for the first one.

        Args:
            timeout: How long to wait, in seconds; -1 or None waits without a limit.

        Returns:
            The number of callbacks that ran.
        """
        return self._buffer.run_callbacks(to_timeout(timeout))

    def flush(self, timeout: float | None = -1) -> int:
        """Send all records, wait for them, and return the number of remaining ones.

        In a transaction, the reports of the records come with the commit.

        Args:
            timeout: How long to wait, in seconds; -1 or None waits without a limit.

        Returns:
            The number of records that are not sent.
        """
        if self._transactions is not None:
            self._transactions.flush()
        return self._buffer.flush(to_timeout(timeout))

    def purge(
        self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True
    ) -> None:
        """Remove the records that are not being sent. Their reports have an error.

        Args:
            in_queue: Drop messages that wait.
            in_flight: Drop messages that were sent but not acknowledged.
            blocking: Wait until they are dropped.
        """
        if in_queue:
            error = KafkaError(KafkaError._PURGE_QUEUE, "The record was purged.")
            self._buffer.complete(failure_reports(self._buffer.purge(), error))

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return the metadata of all topics, or of one.

        Args:
            topic: The topic; None for all.
            timeout: How long to wait, in seconds; -1 or None waits without a limit.
        """
        return describe_cluster(self._log, topic)

    # Transactions

    def init_transactions(self, timeout: float = -1) -> None:
        """Acquire the `transactional.id` and fence older producers that have it.

        Args:
            timeout: How long to wait, in seconds; -1 or None waits without a limit.
        """
        self._require_transactions().init(to_timeout(timeout))

    def begin_transaction(self) -> None:
        """Begin a transaction."""
        self._require_transactions().begin()

    def send_offsets_to_transaction(
        self,
        positions: list[TopicPartition],
        group_metadata: ConsumerGroupMetadata,
        timeout: float = -1,
    ) -> None:
        """Commit the offsets of a consumer atomically with the transaction.

        Args:
            positions: The partitions with their next offsets.
            group_metadata: The result of `Consumer.consumer_group_metadata()`.
            timeout: How long to wait, in seconds; -1 or None waits without a limit.
        """
        self._require_transactions().send_offsets(positions, group_metadata)

    def commit_transaction(self, timeout: float = -1) -> None:
        """Make all records of the transaction visible at once, then run the callbacks.

        Args:
            timeout: How long to wait, in seconds; -1 or None waits without a limit.
        """
        _run_callbacks(self._require_transactions().commit())

    def abort_transaction(self, timeout: float = -1) -> None:
        """Discard the records of the transaction. They are reported as purged.

        Args:
            timeout: How long to wait, in seconds; -1 or None waits without a limit.
        """
        _run_callbacks(self._require_transactions().abort())

    def _require_transactions(self) -> ProducerTransactions:
        if self._transactions is None:
            raise kafka_exception(
                KafkaError._NOT_CONFIGURED,
                "The producer is not transactional. Set 'transactional.id'.",
            )
        return self._transactions

    def close(self, timeout: float | None = -1) -> None:
        """Send the buffered records, abort an open transaction, and close the log.

        Args:
            timeout: How long to wait, in seconds; -1 or None waits without a limit.
        """
        if self._closed:
            return
        self._closed = True
        if self._transactions is not None:
            _run_callbacks(self._transactions.close())
        if self._started:
            remaining = self._buffer.flush(to_timeout(timeout))
            if remaining:
                self._sender.stop_retries()
                logger.warning(
                    "%d records were not sent before the producer was closed", remaining
                )
            self._buffer.close()
            self._sender.join(None if timeout is None or timeout < 0 else max(timeout, 1))
        self._finalizer.detach()
        self._log.close()

    def __len__(self) -> int:
        return len(self._buffer) + (len(self._transactions) if self._transactions else 0)

    # `__len__` returns 0 for an empty buffer; the producer must not be false.
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


def _serialization_reason(topic: str, part: str, error: Exception) -> str:
    return f"The {part} for topic '{topic}' cannot be serialized. {error}"


def _run_callbacks(reports: list[DeliveryReport]) -> None:
    for record, error, message in reports:
        if record.callback is not None and message is not None:
            record.callback(error, message)


def _close_forgotten(buffer: RecordBuffer) -> None:
    """Close the buffer of a producer that was garbage collected, so that its thread ends."""
    if len(buffer):
        logger.warning(
            "A producer was not flushed or closed: %d records may not be sent", len(buffer)
        )
    buffer.close()
