"""Clients that read and write columns in C, if `penstock.native.rdkafka` is built.

They have their own handles of the librdkafka that confluent-kafka uses, with the same settings.
Settings that need Python callbacks, and a missing library, leave the Python clients in use.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from penstock import native
from penstock.log.kafka.client.connection import create_client
from penstock.log.kafka.client.consumers import (
    METADATA_S,
    Fetched,
    PartitionConsumer,
    PythonConsumer,
)
from penstock.log.kafka.client.errors import PURGED, UNKNOWN_TOPIC
from penstock.log.kafka.client.retry import Retry
from penstock.log.kafka.client.settings import CLIENT_LOGGER
from penstock.log.kafka.encoding import AT_ZERO, CheckedColumns, read_headers
from penstock.log.types import TopicPartition
from penstock.record import PartitionColumns

if TYPE_CHECKING:
    from penstock.native._rdkafka import Client, RdKafka, Report

T = TypeVar("T")

#: How long to wait for space in the producer's queue before each attempt.
_QUEUE_POLL_MS = 50
#: The value of `Report.base` and `Report.last` without a report.
_NO_OFFSET = -(2**63)
#: Python callbacks refresh its tokens.
_OAUTH = "OAUTHBEARER"
#: The level of syslog for messages that only developers read.
_DEBUG_LEVEL = 7
#: The first names of librdkafka in different systems.
_SYSTEM_LIBRARIES = ("librdkafka.so.1", "librdkafka.1.dylib")


def find_native() -> RdKafka | None:
    """Return the extension with its library, or None."""
    found = native.rdkafka()
    return found if found is not None and _has_library() else None


@functools.cache
def _has_library() -> bool:
    """Load the library, which must have the version of that in confluent-kafka.

    Both exchange group metadata.
    """
    found = native.rdkafka()
    version = confluent_kafka.libversion()[1]
    return found is not None and any(found.load(path) == version for path in _libraries())


def _libraries() -> Iterator[str]:
    package = Path(confluent_kafka.__file__).parent
    for folder in (package.parent / "confluent_kafka.libs", package / ".dylibs"):
        yield from map(str, sorted(folder.glob("librdkafka*")))
    yield from _SYSTEM_LIBRARIES


def native_settings(settings: Mapping[str, Any]) -> dict[str, str] | None:
    """Return settings as strings; None if they need a callback of Python."""
    found = {}
    for name, value in settings.items():
        if name == "logger" and value is CLIENT_LOGGER:
            continue
        if isinstance(value, bool):
            found[name] = str(value).lower()
        elif isinstance(value, str | int | float):
            found[name] = str(value)
        else:
            return None
        if name in {"sasl.mechanism", "sasl.mechanisms"} and found[name].upper() == _OAUTH:
            return None
    return found


class _NativeClient:
    """Translates errors of a client, and passes its log lines on."""

    def __init__(self, extension: RdKafka, client: Client) -> None:
        self._extension = extension
        self._client = client

    def _call(self, call: Callable[..., T], *arguments: Any) -> T:
        try:
            return call(*arguments)
        except self._extension.Error as error:
            raise KafkaException(KafkaError(*error.args)) from None
        finally:
            for level, line in self._client.take_logs():
                CLIENT_LOGGER.log(
                    logging.DEBUG if level >= _DEBUG_LEVEL else logging.INFO, "%s", line
                )

    def close(self) -> None:
        """Close the client."""
        self._client.close()


class NativeConsumer(_NativeClient):
    """A `PartitionConsumer` in C."""

    def __init__(self, extension: RdKafka, settings: dict[str, str]) -> None:
        self._consumer = _create(extension, lambda: extension.Consumer(settings))
        self._topics: set[str] = set()
        super().__init__(extension, self._consumer)

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """See `PartitionConsumer.assign`."""
        self._call(
            self._consumer.assign,
            [(*where, position) for where, position in positions.items()],
        )
        self._find_leaders(positions)

    def replace(self, positions: Mapping[TopicPartition, int]) -> None:
        """See `PartitionConsumer.replace`."""
        self._call(
            self._consumer.replace,
            [(*where, position) for where, position in positions.items()],
        )
        self._find_leaders(positions)

    def _find_leaders(self, partitions: Iterable[TopicPartition]) -> None:
        """Ask for the leaders of new topics, see `METADATA_S`."""
        new = {where.topic for where in partitions} - self._topics
        if new:
            self._topics |= new
            with contextlib.suppress(KafkaException):
                # Of all topics that the consumer has been assigned.
                self._call(self._consumer.ping, _milliseconds(METADATA_S), None)

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """See `PartitionConsumer.unassign`."""
        self._call(self._consumer.unassign, list(partitions))

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """See `PartitionConsumer.pause`."""
        self._call(self._consumer.pause, list(partitions))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """See `PartitionConsumer.resume`."""
        self._call(self._consumer.resume, list(partitions))

    def consume(self, timeout: float, max_records: int) -> list[Fetched]:
        """See `PartitionConsumer.consume`."""
        fetched = self._call(self._consumer.consume, _milliseconds(timeout), max_records)
        return [
            Fetched(
                where := TopicPartition(topic, partition),
                None if columns is None else _to_columns(where, *columns), end,
                None if error is None else KafkaError(*error), offset,
            )
            for topic, partition, columns, end, error, offset in fetched
        ]

    def high_watermark(self, where: TopicPartition) -> int:
        """See `PartitionConsumer.high_watermark`."""
        return self._consumer.high_watermark(*where)

    def is_connected(self, timeout: float) -> bool:
        """See `PartitionConsumer.is_connected`."""
        if self._consumer.is_lost:
            try:
                self._call(self._consumer.ping, _milliseconds(timeout), None)
            except KafkaException:
                return False
        return True

    def wake(self) -> None:
        """See `PartitionConsumer.wake`."""
        self._consumer.wake()


def _to_columns(
    where: TopicPartition, offsets: list[int], timestamps: list[int], keys: list[bytes | None],
    values: list[bytes | None], headers: list[Any] | None,
) -> PartitionColumns:
    return PartitionColumns(
        topic=where.topic, partition=where.partition, offsets=offsets, keys=keys, values=values,
        headers=None if headers is None else read_headers(timestamps, headers),
        timestamps=timestamps,
    )


def create_consumer(settings: Mapping[str, Any]) -> PartitionConsumer:
    """Create a consumer that returns columns, in C if that is possible."""
    extension, plain = find_native(), native_settings(settings)
    if extension is not None and plain is not None:
        return NativeConsumer(extension, plain)
    return PythonConsumer(settings)


class NativeDelivery:
    """The delivery reports of one append, counted in C. See `Delivery`."""

    def __init__(self, producer: NativeProducer) -> None:
        self._producer = producer
        self._report: Report = producer.new_report()

    @property
    def base(self) -> int | None:
        """The offset of the first record."""
        return None if self._report.base == _NO_OFFSET else self._report.base

    @property
    def last(self) -> int | None:
        """The offset of the last record."""
        return None if self._report.last == _NO_OFFSET else self._report.last

    @property
    def timestamp(self) -> int:
        """The time that the log or the producer has set, or -1."""
        return self._report.timestamp

    @property
    def error(self) -> KafkaError | None:
        """The first error; one of a broker rather than that of a purged record."""
        return KafkaError(self._report.code, self._report.reason) if self._report.code else None

    @property
    def rejection(self) -> KafkaError | None:
        """Why a broker rejected a record; None if records were only purged with the others."""
        return None if self._report.code in PURGED else self.error

    @property
    def is_complete(self) -> bool:
        """Whether all reports have arrived."""
        return self._report.reported >= self._report.expected

    def send(
        self, where: tuple[str, int], pieces: Iterable[CheckedColumns], now: int, timeout: float
    ) -> None:
        """Produce records."""
        for columns in pieces:
            self._producer.send(where, columns, now, self._report, timeout)
            if columns.timestamps is None:
                self._report.timestamp = now


class NativeProducer(_NativeClient):
    """A transactional producer in C, with the methods of `confluent_kafka.Producer` for it."""

    def __init__(self, extension: RdKafka, settings: dict[str, str]) -> None:
        self._producer = _create(extension, lambda: extension.Producer(settings))
        super().__init__(extension, self._producer)

    def new_report(self) -> Report:
        """Return the report of an append."""
        return self._extension.Report()

    def send(
        self, where: tuple[str, int], columns: CheckedColumns, now: int, report: Report,
        timeout: float,
    ) -> None:
        """Enqueue records. Waits for space in the queue."""
        at = 0
        retry = Retry(timeout)
        while True:
            at, code = self._call(
                self._producer.produce, *where, columns.keys, columns.values, columns.timestamps,
                columns.headers, now, AT_ZERO, at, report,
            )
            if code == 0:
                return
            error = KafkaError(code)
            if retry.is_over:
                error = KafkaError(
                    KafkaError._TIMED_OUT, f"The producer accepts no records: {error.str()}"
                )
            if code == KafkaError._QUEUE_FULL:
                self._call(self._producer.poll, _QUEUE_POLL_MS)
            elif code in UNKNOWN_TOPIC:
                # The partition exists, but the producer does not know it yet.
                self._call(self._producer.ping, _milliseconds(timeout), where[0])
            if retry.is_over or code not in UNKNOWN_TOPIC | {KafkaError._QUEUE_FULL}:
                raise KafkaException(error)

    def init_transactions(self, timeout: float) -> None:
        """See `confluent_kafka.Producer`."""
        self._call(self._producer.init_transactions, _milliseconds(timeout))

    def begin_transaction(self) -> None:
        """See `confluent_kafka.Producer`."""
        self._call(self._producer.begin_transaction)

    def send_offsets_to_transaction(
        self, offsets: Iterable[KafkaPartition], metadata: bytes, timeout: float
    ) -> None:
        """See `confluent_kafka.Producer`."""
        listed = [(one.topic, one.partition, one.offset, one.metadata or "") for one in offsets]
        self._call(self._producer.send_offsets, listed, metadata, _milliseconds(timeout))

    def commit_transaction(self, timeout: float) -> None:
        """See `confluent_kafka.Producer`."""
        self._call(self._producer.commit_transaction, _milliseconds(timeout))

    def abort_transaction(self, timeout: float) -> None:
        """See `confluent_kafka.Producer`."""
        self._call(self._producer.abort_transaction, _milliseconds(timeout))

    def flush(self, timeout: float) -> int:
        """See `confluent_kafka.Producer`."""
        return self._call(self._producer.flush, _milliseconds(timeout))

    def poll(self, timeout: float) -> int:
        """Serve delivery reports."""
        return self._call(self._producer.poll, _milliseconds(timeout))

    def purge(self) -> None:
        """See `confluent_kafka.Producer`."""
        self._call(self._producer.purge)


def _create(extension: RdKafka, create: Callable[[], T]) -> T:
    """Create a client; `ConfigException` if librdkafka rejects its settings."""

    def translated() -> T:
        try:
            return create()
        except extension.Error as error:
            raise KafkaException(KafkaError(*error.args)) from None

    return create_client(translated)


def _milliseconds(timeout: float) -> int:
    return max(0, round(timeout * 1000))
