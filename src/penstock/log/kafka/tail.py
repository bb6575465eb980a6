"""Follows partitions with one long-lived consumer, which fetches ahead.

Records that were fetched but not returned are held per partition: those of paused partitions, and
those beyond `max_records`. A pause stops the fetches of the consumer only when much is held,
because librdkafka then drops its queue of the partition.

Invariants of a followed partition:
- `position` <= `fetched_to`; everything fetched in between is held, in order.
- `fetched_to` counts offsets without a record only when the consumer reports the end.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from penstock.log.base import TailReader
from penstock.log.errors import LogUnavailable
from penstock.log.kafka.client.column_buffer import ColumnBuffer
from penstock.log.kafka.client.connection import Connection
from penstock.log.kafka.client.consumers import Fetched, PartitionConsumer
from penstock.log.kafka.client.errors import translate
from penstock.log.kafka.client.native_io import create_consumer
from penstock.log.kafka.client.pool import ClientPool
from penstock.log.kafka.client.readers import FetchError
from penstock.log.kafka.client.retry import Retry
from penstock.log.kafka.ranges import KafkaRanges
from penstock.log.types import TopicPartition
from penstock.record import PartitionColumns

#: A paused partition is not fetched while more of its records are held.
_MOST_HELD = 20_000
#: Or more bytes: its share of this, or the least share if many partitions are followed.
_MOST_HELD_BYTES, _LEAST_HELD_BYTES = 64 << 20, 4 << 20
#: A partition that is not at its end and sent nothing for this time is checked.
_SILENCE_S = 2.0
#: How long one request may take that checks whether the brokers respond.
_CHECK_S = 0.1


class _Followed:
    """The state of one partition."""

    __slots__ = (
        "at_end", "fetched_at", "fetched_to", "held", "is_fetch_paused", "is_paused", "position",
        "retry",
    )

    def __init__(self, position: int) -> None:
        self.position = self.fetched_to = position
        self.held = ColumnBuffer()
        #: Whether the consumer has reported the end behind everything fetched.
        self.at_end = False
        self.is_paused = False
        #: Whether the consumer does not fetch it.
        self.is_fetch_paused = False
        #: When something was last fetched or checked.
        self.fetched_at = time.monotonic()
        #: The deadline since the first of consecutive errors.
        self.retry: Retry | None = None

    def hold(self, columns: PartitionColumns) -> None:
        """Add fetched records."""
        if self.held.add(columns, self.fetched_to):
            self.fetched_to = columns.offsets[-1] + 1
            self.at_end = False

    def take(self, max_records: int) -> PartitionColumns:
        """Remove and return held records. There are some."""
        taken = self.held.take(max_records)
        assert taken is not None
        self.position = taken.offsets[-1] + 1 if self.held else self.fetched_to
        return taken


class KafkaTailReader(TailReader):
    """The followed partitions and their consumer."""

    def __init__(self, connection: Connection, clients: ClientPool, ranges: KafkaRanges) -> None:
        self._connection = connection
        self._clients = clients
        self._ranges = ranges
        self._consumer: PartitionConsumer = create_consumer(connection.settings.tail())
        self._followed: dict[TopicPartition, _Followed] = {}
        self._closed = False
        #: Written by any thread.
        self._is_woken = False
        #: The deadline since the brokers stopped to respond.
        self._outage: Retry | None = None
        connection.close_later(self)

    # Partitions

    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        """See `TailReader.add`."""
        self._check_open()
        wanted = {TopicPartition(*where): position for where, position in positions.items()}
        for where in wanted:
            self._clients.topics.find_partition(*where)
        self.remove(wanted)
        if wanted:
            self._consumer.assign(wanted)
        for where, position in wanted.items():
            self._followed[where] = _Followed(position)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """See `TailReader.remove`."""
        self._check_open()
        removed = [TopicPartition(*where) for where in partitions if where in self._followed]
        if removed:
            self._consumer.unassign(removed)
        for where in removed:
            del self._followed[where]

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """See `TailReader.pause`."""
        self._check_open()
        for where in partitions:
            if where in self._followed:
                self._followed[where].is_paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """See `TailReader.resume`."""
        self._check_open()
        for where in partitions:
            followed = self._followed.get(where)
            if followed is not None:
                followed.is_paused = False
                followed.fetched_at = time.monotonic()
                self._resume_fetch(TopicPartition(*where), followed)

    def position(self, partition: TopicPartition) -> int:
        """See `TailReader.position`."""
        return self._followed[partition].position

    def is_at_end(self, partition: TopicPartition) -> bool:
        """See `TailReader.is_at_end`."""
        followed = self._followed.get(partition)
        if followed is None or followed.held:
            return False
        # The consumer reports the end only after another fetch. Without transaction markers
        # behind the last record, the end is known earlier.
        return followed.at_end or (
            0 <= self._consumer.high_watermark(TopicPartition(*partition)) <= followed.fetched_to
        )

    def end(self, partition: TopicPartition) -> int:
        """See `TailReader.end`."""
        followed = self._followed[partition]
        if self.is_at_end(partition):
            return followed.position
        known = self._consumer.high_watermark(TopicPartition(*partition))
        return max(known, followed.fetched_to)

    def _check_open(self) -> None:
        if self._closed:
            raise LogUnavailable("The reader is closed. Open another one.")

    # Records

    def poll(self, timeout: float, max_records: int) -> list[PartitionColumns]:
        """See `TailReader.poll`."""
        self._check_open()
        deadline = time.monotonic() + timeout
        taken = self._take_held(max_records)
        while not taken:
            left = deadline - time.monotonic()
            has_ended = False
            if self._is_woken:
                left = 0.0
            for fetched in self._consumer.consume(max(0.0, left), max_records):
                has_ended |= self._hold(fetched)
            taken = self._take_held(max_records)
            if taken or has_ended or self._is_woken or time.monotonic() >= deadline:
                break
        self._is_woken = False
        if not taken:
            self._check_silence()
        return taken

    def _take_held(self, max_records: int) -> list[PartitionColumns]:
        taken = []
        left = max_records
        for where, followed in self._followed.items():
            if followed.held and not followed.is_paused and left > 0:
                taken.append(followed.take(left))
                left -= len(taken[-1])
                self._resume_fetch(where, followed)
        return taken

    def _hold(self, fetched: Fetched) -> bool:
        """Hold what was fetched. Returns whether a partition that is not paused is at its end."""
        followed = self._followed.get(fetched.where)
        if followed is None:
            if fetched.error is not None and fetched.error.fatal():
                raise translate(fetched.error, "Reading failed")
            return False
        followed.fetched_at = time.monotonic()
        if fetched.records is not None:
            followed.hold(fetched.records)
        if fetched.end >= followed.fetched_to:
            followed.fetched_to = fetched.end
            followed.at_end = True
            if not followed.held:
                followed.position = fetched.end
        if fetched.error is not None:
            self._on_error(fetched, followed)
        else:
            followed.retry = None
        if followed.is_paused and self._fills(followed, 1.0):
            self._pause_fetch(fetched.where, followed)
        return followed.at_end and not followed.is_paused

    def _fills(self, followed: _Followed, part: float) -> bool:
        """Whether more is held of a partition than this part of its limits."""
        most_bytes = max(_LEAST_HELD_BYTES, _MOST_HELD_BYTES / len(self._followed))
        held = followed.held
        return len(held) > part * _MOST_HELD or held.size > part * most_bytes

    def _pause_fetch(self, where: TopicPartition, followed: _Followed) -> None:
        if not followed.is_fetch_paused:
            followed.is_fetch_paused = True
            self._consumer.pause([where])

    def _resume_fetch(self, where: TopicPartition, followed: _Followed) -> None:
        """Fetch a partition again, once little is held of it."""
        if followed.is_fetch_paused and not self._fills(followed, 0.5):
            followed.is_fetch_paused = False
            self._consumer.resume([where])

    # Failures

    def _on_error(self, fetched: Fetched, followed: _Followed) -> None:
        """Raise the error of a partition, or fetch it again."""
        where = fetched.where
        followed.retry = followed.retry or Retry(self._connection.timeout)
        offset = None if fetched.error_offset < 0 else fetched.error_offset
        failure = FetchError(fetched.error, offset)
        self._ranges.check_fetch_error(failure, where, followed.fetched_to, followed.retry)
        self._consumer.unassign([where])
        self._consumer.assign({where: followed.fetched_to})
        if followed.is_fetch_paused:
            self._consumer.pause([where])

    def _check_silence(self) -> None:
        """Raise if the brokers do not respond, or if a silent partition cannot be read."""
        if not self._followed:
            return
        if not self._consumer.is_connected(_CHECK_S):
            self._outage = self._outage or Retry(self._connection.timeout)
            if self._outage.is_over:
                raise self._connection.unavailable("Reading failed")
            return
        self._outage = None
        now = time.monotonic()
        for where, followed in self._followed.items():
            if followed.at_end or followed.is_paused or now - followed.fetched_at < _SILENCE_S:
                continue
            followed.fetched_at = now
            followed.retry = followed.retry or Retry(self._connection.timeout)
            self._ranges.check_fetch_error(
                FetchError(None), where, followed.fetched_to, followed.retry
            )

    def wake(self) -> None:
        """See `TailReader.wake`."""
        self._is_woken = True
        self._consumer.wake()

    def close(self) -> None:
        """See `TailReader.close`."""
        if self._closed:
            return
        self._closed = True
        self._followed.clear()
        self._connection.forget(self)
        self._consumer.close()
