"""Ranges of records, where partitions stand, and offsets for times."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError

from penstock.log.base import RangeReader
from penstock.log.errors import OffsetOutOfRange, UnknownTopic
from penstock.log.kafka.client.change_poller import ChangePoller
from penstock.log.kafka.client.errors import UNKNOWN, translated
from penstock.log.kafka.client.list_offsets import EARLIEST, LATEST, OffsetLister
from penstock.log.kafka.client.prefetch import Prefetcher
from penstock.log.kafka.client.readers import FetchError
from penstock.log.kafka.core import Core
from penstock.log.kafka.encoding import as_batch, message_size
from penstock.log.types import LogBatch, OffsetAndTimestamp, PartitionOffsets, TopicPartition

_STEP_RECORDS = 4096
_STEP_BYTES = 2 * 1024 * 1024
#: A fetch that says nothing for so long makes the reader look whether the topic is still there.
_SILENCE_S = 1.0


class KafkaRangeReader(RangeReader):
    """A range of one partition. Between the steps its reader may be used by others."""

    def __init__(
        self, ranges: Ranges, where: TopicPartition, bounds: tuple[int, int],
        limits: tuple[int | None, int | None],
    ) -> None:
        self._ranges = ranges
        self._where = where
        self.position, self._end = bounds
        self._records_left, self._bytes_left = limits
        self._some = False

    def __next__(self) -> LogBatch:
        while self.position < self._end and not self._at_limit():
            messages = self._step()
            if messages:
                self._some = True
                return LogBatch(*self._where, as_batch(messages), self.position, 0)
        raise StopIteration

    def _at_limit(self) -> bool:
        return self._some and (self._records_left == 0 or self._bytes_left == 0)

    def _most(self) -> int:
        if self._records_left is None:
            return _STEP_RECORDS
        return min(_STEP_RECORDS, max(self._records_left, 0 if self._some else 1))

    def _step(self) -> list[Any]:
        """Messages of one step; `position` moves behind them."""
        deadline = time.monotonic() + self._ranges.timeout
        while True:
            try:
                return self._taken()
            except FetchError as trouble:
                self._ranges.explain(trouble, self._where, self.position, deadline)

    def _taken(self) -> list[Any]:
        with self._ranges.readers.at(*self._where, self.position) as reader:
            messages: list[Any] = []
            size = 0
            most = self._most()
            while len(messages) < most and reader.position < self._end and size < _STEP_BYTES:
                # In pieces, because nobody knows how large the records are.
                piece = reader.take(self._end, min(most - len(messages), 512), _SILENCE_S)
                if self._bytes_left is None:
                    messages += piece
                    size += sum(map(len, piece))
                    continue
                count = self._fitting(piece, size, is_first=not messages)
                messages += piece[:count]
                size += sum(map(message_size, piece[:count]))
                if count < len(piece):
                    for unwanted in reversed(piece[count:]):
                        reader.give_back(unwanted)
                    self._bytes_left = size = 0
                    break
            if self._bytes_left is not None:
                self._bytes_left = max(0, self._bytes_left - size)
            if self._records_left is not None:
                self._records_left = max(0, self._records_left - len(messages))
            self.position = reader.position
            return messages

    def _fitting(self, piece: list[Any], size: int, *, is_first: bool) -> int:
        """How many of the messages the bytes that are left are enough for."""
        assert self._bytes_left is not None
        for at, message in enumerate(piece):
            size += message_size(message)
            if size > self._bytes_left and not (is_first and at == 0 and not self._some):
                return at
        return len(piece)


class Ranges(Core):
    """The part of the log that reads."""

    @property
    def asker(self) -> OffsetLister:
        """Who asks brokers for offsets."""
        return self._connection.part(
            "asker", lambda: OffsetLister(self._connection, self.topic_book)
        )

    @property
    def watch(self) -> ChangePoller:
        """What this handle waits for."""
        return self._connection.part(
            "watch", lambda: ChangePoller(self._connection, self.topic_book, self.ends)
        )

    def read(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int | None = None,
        *,
        max_records: int | None = None,
        max_bytes: int | None = None,
    ) -> RangeReader:
        """See `Log.read`."""
        where = TopicPartition(topic, partition)
        bounds = self.offsets([where])[where]
        if not bounds.start <= start <= bounds.end:
            raise OffsetOutOfRange(topic, partition, start, bounds[:2])
        until = bounds.end if end is None else min(end, bounds.end)
        return KafkaRangeReader(self, where, (start, max(until, start)), (max_records, max_bytes))

    def prefetch(
        self, ranges: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, LogBatch]:
        """See `Log.prefetch`."""
        ahead = self._connection.part("ahead", lambda: Prefetcher(self._connection))
        return {
            where: LogBatch(*where, as_batch(messages), ranges[where][1], 0)
            for where, messages in ahead.take(ranges).items()
        }

    def explain(
        self, trouble: FetchError, where: TopicPartition, position: int, deadline: float
    ) -> None:
        """Raise what stopped a reading; if it may be over, wait a moment and return."""
        topic, partition = where
        error = trouble.error
        code = None if error is None else error.code()
        if code is not None and code not in UNKNOWN | {
            KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE
        }:
            assert error is not None
            if error.fatal() or not error.retriable():
                raise translated(error, f"'{topic}' [{partition}] cannot be read", topic)
        self.topic_book.forget(topic)
        self.topic_book.find_partition(topic, partition)
        bounds = self.offsets([where])[where]
        if not bounds.start <= position <= bounds.end:
            raise OffsetOutOfRange(topic, partition, position, bounds[:2])
        if time.monotonic() > deadline:
            raise self._connection.unavailable(
                f"'{topic}' [{partition}] was to be read at offset {position}"
            )

    def offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, PartitionOffsets]:
        """See `Log.offsets`. Kafka does not tell which tombstones it has removed."""
        wanted = [TopicPartition(*where) for where in partitions]
        self.watch.follow(wanted)
        starts = self.asker.offsets(wanted, EARLIEST)
        ends = self.asker.offsets(wanted, LATEST)
        return {where: PartitionOffsets(starts[where], ends[where]) for where in wanted}

    def bounds_of(self, topic: str, partition: int) -> tuple[int, int]:
        """Start and end of one partition."""
        where = TopicPartition(topic, partition)
        return self.offsets([where])[where][:2]

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where partitions end; those that are not there are left out."""
        wanted = list(partitions)
        try:
            return self.asker.offsets(wanted, LATEST)
        except UnknownTopic:
            answer: dict[TopicPartition, int] = {}
            for where in wanted:
                with contextlib.suppress(UnknownTopic):
                    answer |= self.asker.offsets([where], LATEST)
            return answer

    def offset_for_time(
        self, topic: str, partition: int, timestamp: int
    ) -> OffsetAndTimestamp | None:
        """See `Log.offset_for_time`."""
        where = TopicPartition(topic, partition)
        while True:
            offset = self.asker.offsets([where], timestamp)[where]
            if offset < 0:
                return None
            # Only the record itself tells its time.
            for batch in self.read(topic, partition, offset, max_records=1):
                rows = batch.columns()
                return OffsetAndTimestamp(rows.offsets[0], rows.timestamps[0])
            if offset >= self.bounds_of(topic, partition)[1]:
                return None
