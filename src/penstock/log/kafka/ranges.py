"""Reads of ranges, partition offsets, and offsets for timestamps."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

from confluent_kafka import KafkaError

from penstock.log.base import RangeReader
from penstock.log.errors import LogBusy, LogDamaged, OffsetOutOfRange, UnknownTopic
from penstock.log.kafka.client.change_poller import ChangePoller
from penstock.log.kafka.client.column_buffer import concatenate, slice_columns
from penstock.log.kafka.client.connection import Connection
from penstock.log.kafka.client.errors import UNKNOWN_TOPIC, translate
from penstock.log.kafka.client.list_offsets import EARLIEST, LATEST
from penstock.log.kafka.client.pool import ClientPool
from penstock.log.kafka.client.readers import FetchError
from penstock.log.kafka.client.retry import Retry
from penstock.log.kafka.encoding import columns_size, to_batch
from penstock.log.types import (
    LogBatch,
    OffsetAndTimestamp,
    PartitionOffsets,
    TopicPartition,
    record_size,
)
from penstock.record import NO_HEADERS, PartitionColumns

#: A step takes records until it has this much, in pieces: the size of a record is not known before
#: it is fetched.
_STEP_RECORDS = 4096
_STEP_BYTES = 2 * 1024 * 1024
_PIECE_RECORDS = 512
#: After a fetch without a response for this time, check that the topic still exists.
_FETCH_S = 1.0
#: Between two attempts to find partitions without an open transaction.
_SETTLE_PAUSE_S = 0.005


class KafkaRangeReader(RangeReader):
    """Reads a range of one partition. Between steps its consumer is back in the pool."""

    def __init__(
        self, ranges: KafkaRanges, where: TopicPartition, bounds: tuple[int, int],
        limits: tuple[int | None, int | None],
    ) -> None:
        self._ranges = ranges
        self._where = where
        self.position, self._end = bounds
        self._records_left, self._bytes_left = limits
        #: Whether a record was returned. The limits allow the first record of any size.
        self._has_returned = False

    def __next__(self) -> LogBatch:
        while self.position < self._end and not self._at_limit():
            pieces = self._step()
            if pieces:
                self._has_returned = True
                return LogBatch(*self._where, to_batch(concatenate(pieces)), self.position, 0)
        raise StopIteration

    def _at_limit(self) -> bool:
        return self._has_returned and (self._records_left == 0 or self._bytes_left == 0)

    def _max_records(self) -> int:
        if self._records_left is None:
            return _STEP_RECORDS
        return min(_STEP_RECORDS, max(self._records_left, 0 if self._has_returned else 1))

    def _step(self) -> list[PartitionColumns]:
        """Return the records of one step, in pieces. The position moves behind them."""
        retry = self._ranges.retry()
        while True:
            try:
                return self._take()
            except FetchError as error:
                self._ranges.check_fetch_error(error, self._where, self.position, retry)

    def _take(self) -> list[PartitionColumns]:
        with self._ranges.clients.readers.at(*self._where, self.position) as reader:
            taken: list[PartitionColumns] = []
            size = 0
            left = self._max_records()
            while left > 0 and reader.position < self._end and size < _STEP_BYTES:
                pieces = reader.take(self._end, min(left, _PIECE_RECORDS), _FETCH_S)
                if not pieces:
                    continue
                piece = concatenate(pieces)
                left -= len(piece)
                count = len(piece)
                if self._bytes_left is not None:
                    count = self._fit_bytes(piece, size, is_first=not taken)
                if count < len(piece):
                    reader.push_back(slice_columns(piece, count, len(piece)))
                    self._bytes_left = left = 0
                if count:
                    taken.append(slice_columns(piece, 0, count))
                    size += columns_size(taken[-1])
            if self._bytes_left is not None:
                self._bytes_left = max(0, self._bytes_left - size)
            if self._records_left is not None:
                self._records_left = max(0, self._records_left - sum(map(len, taken)))
            self.position = reader.position
            return taken

    def _fit_bytes(self, piece: PartitionColumns, size: int, *, is_first: bool) -> int:
        """Return how many of the records fit into the remaining bytes."""
        assert self._bytes_left is not None
        headers = piece.headers if piece.headers is not None else [NO_HEADERS] * len(piece)
        sizes = map(record_size, piece.keys, piece.values, headers)
        for at, record_bytes in enumerate(sizes):
            size += record_bytes
            if size > self._bytes_left and not (is_first and at == 0 and not self._has_returned):
                return at
        return len(piece)


class KafkaRanges:
    """Reads records and partition offsets, and waits for new records."""

    def __init__(self, connection: Connection, clients: ClientPool) -> None:
        self._connection = connection
        self.clients = clients

    @property
    def _change_poller(self) -> ChangePoller:
        return self._connection.shared(
            "change_poller",
            lambda: ChangePoller(self._connection, self.clients.topics, self.ends),
        )

    def read(
        self, where: TopicPartition, start: int, end: int | None,
        limits: tuple[int | None, int | None],
    ) -> KafkaRangeReader:
        """Return a reader of a range; `limits` are the most records and the most bytes."""
        bounds = self.offsets([where])[where]
        if not bounds.start <= start <= bounds.end:
            raise OffsetOutOfRange(*where, start, bounds[:2])
        until = bounds.end if end is None else min(end, bounds.end)
        return KafkaRangeReader(self, where, (start, max(until, start)), limits)

    def prefetch(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], timeout_s: float
    ) -> dict[TopicPartition, LogBatch]:
        """Return the ranges that one consumer of all partitions can fetch in time."""
        return {
            where: LogBatch(*where, to_batch(columns), ranges[where][1], 0)
            for where, columns in self.clients.prefetcher.take(ranges, timeout_s).items()
        }

    def retry(self) -> Retry:
        """Return the deadline for one step of a reader."""
        return Retry(self._connection.timeout)

    def check_fetch_error(
        self, failure: FetchError, where: TopicPartition, position: int, retry: Retry
    ) -> None:
        """Return if the fetch may be repeated, otherwise raise the contract's error."""
        topic, partition = where
        error = failure.error
        code = None if error is None else error.code()
        if code is not None and code not in UNKNOWN_TOPIC | {
            KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE
        }:
            assert error is not None
            if code == KafkaError._BAD_MSG:
                damaged = position if failure.offset is None else max(position, failure.offset)
                raise LogDamaged(
                    f"The records of '{topic}' [{partition}] at offset {damaged} are damaged: "
                    f"{error.str()}.\n"
                    "Let the brokers copy the partition from an intact replica, or delete the "
                    "records up to the damage.",
                    topic=topic, partition=partition, offsets=(damaged, damaged),
                )
            if error.fatal() or not error.retriable():
                raise translate(error, f"Reading '{topic}' [{partition}] failed", topic)
        self.clients.topics.invalidate(topic)
        self.clients.topics.find_partition(topic, partition)
        bounds = self.offsets([where])[where]
        if not bounds.start <= position <= bounds.end:
            raise OffsetOutOfRange(topic, partition, position, bounds[:2])
        if retry.is_over:
            raise self._connection.unavailable(
                f"Reading '{topic}' [{partition}] at offset {position} failed"
            )

    def offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, PartitionOffsets]:
        """Return the offsets of partitions. Kafka does not report removed tombstones."""
        wanted = [TopicPartition(*where) for where in partitions]
        self._change_poller.watch(wanted)
        starts = self.clients.offset_lister.offsets(wanted, EARLIEST)
        ends = self.clients.offset_lister.offsets(wanted, LATEST)
        return {where: PartitionOffsets(starts[where], ends[where]) for where in wanted}

    def settled_offsets(
        self, partitions: Iterable[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, PartitionOffsets]:
        """Return the offsets of partitions at a moment without an open transaction in them.

        The ends of all records are read after those of the committed ones. If they are equal,
        nothing was appended in between, so at that moment no partition had a record of an open
        transaction. A transaction writes to all of its partitions before it commits in the first
        one. Therefore it was visible in all of them, or had not begun.
        """
        wanted = [TopicPartition(*where) for where in partitions]
        retry = Retry(timeout_s, _SETTLE_PAUSE_S)
        while True:
            offsets = self.offsets(wanted)
            ends = self.clients.high_watermark_lister.offsets(wanted, LATEST)
            if all(ends[where] == offsets[where].end for where in wanted):
                return offsets
            if retry.is_over:
                topics = sorted({where.topic for where in wanted})
                raise LogBusy(
                    f"The partitions of {', '.join(topics)} had open transactions for "
                    f"{timeout_s:.0f} s. Try again when fewer records are written."
                )
            retry.wait()

    def is_readable(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Whether readers see everything before these offsets.

        An end behind all records is of a partition that was created again since.
        """
        readable = self.ends(ends)
        hidden = [at for at, end in readable.items() if end < ends[at]]
        written = self.clients.high_watermark_lister.offsets(hidden, LATEST)
        return all(written[at] < ends[at] for at in hidden)

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """Return the start and the end of one partition."""
        where = TopicPartition(topic, partition)
        return self.offsets([where])[where][:2]

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the ends of the partitions that exist."""
        wanted = list(partitions)
        try:
            return self.clients.offset_lister.offsets(wanted, LATEST)
        except UnknownTopic:
            ends: dict[TopicPartition, int] = {}
            for where in wanted:
                with contextlib.suppress(UnknownTopic):
                    ends |= self.clients.offset_lister.offsets([where], LATEST)
            return ends

    def offset_for_time(
        self, topic: str, partition: int, timestamp: int
    ) -> OffsetAndTimestamp | None:
        """Return the first record with this timestamp or a later one, or None."""
        where = TopicPartition(topic, partition)
        while True:
            offset = self.clients.offset_lister.offsets([where], timestamp)[where]
            if offset < 0:
                return None
            # The broker returns the offset only. The timestamp is in the record.
            for batch in self.read(where, offset, None, (1, None)):
                columns = batch.columns()
                return OffsetAndTimestamp(columns.offsets[0], columns.timestamps[0])
            if offset >= self.bounds(topic, partition)[1]:
                return None

    def wait_for_change(self, timeout: float) -> bool:
        """See `Log.wait_for_change`."""
        return self._change_poller.wait(timeout)
