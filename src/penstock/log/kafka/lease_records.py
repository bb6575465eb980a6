"""The topic in which holders of leases are recorded.

A record has the name of the lease as its key, and its holder as a JSON object; a tombstone records
the release of a lease that was taken directly. The offset of a holder's record, plus one, is the
epoch of its lease.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from penstock.clock import wall_clock_ms
from penstock.log.errors import TopicExists, UnknownTopic
from penstock.log.kafka.appends import KafkaAppender
from penstock.log.kafka.client.connection import Connection
from penstock.log.kafka.ranges import KafkaRanges
from penstock.log.kafka.topics import KafkaTopics
from penstock.log.types import TopicPartition
from penstock.record import RecordColumns

LEASES = "__penstock_leases"
#: A lease that was taken directly belongs to its holder for this time, unless it is released.
DIRECT_LEASE_MS = 60_000


class _HolderRecord(NamedTuple):
    #: Empty if the lease was released.
    holder: dict[str, Any]
    timestamp: int


class LeaseRecords:
    """Reads and writes the records of holders."""

    def __init__(
        self, connection: Connection, ranges: KafkaRanges, topics: KafkaTopics,
        appends: KafkaAppender,
    ) -> None:
        self._connection = connection
        self._ranges = ranges
        self._topics = topics
        self._appends = appends

    def ensure_topic(self) -> None:
        """Create the topic, once per process."""
        def create() -> bool:
            with contextlib.suppress(TopicExists):
                self._topics.create(LEASES, 1, {"cleanup.policy": "compact"})
            return True

        self._connection.shared("leases_topic", create)

    def write(self, name: str, holder: dict[str, Any] | None) -> int:
        """Record the holder of a lease; None records its release. Returns the offset."""
        value = None if holder is None else json.dumps(holder).encode()
        record = RecordColumns([name.encode()], [value])
        try:
            appended = self._appends.append(LEASES, 0, record)
        except UnknownTopic:
            self.ensure_topic()
            appended = self._appends.append(LEASES, 0, record)
        return int(appended.base_offset)

    def end(self) -> int:
        """Return the end of the records."""
        where = TopicPartition(LEASES, 0)
        return self._ranges.ends([where]).get(where, 0)

    def has_record(self, name: str, start: int, end: int) -> bool:
        """Return whether a range has a record of the lease."""
        return any(True for _ in self._read(name, start, end))

    def last_holder(self, name: str, start: int, end: int) -> str | None:
        """Return the description of the last holder in a range, or None."""
        holders = [
            record.holder["holder"] for record in self._read(name, start, end) if record.holder
        ]
        return holders[-1] if holders else None

    def is_taken_directly(self, name: str) -> bool:
        """Return whether the last holder took the lease directly, and recently."""
        records = list(self._read(name, 0, self.end()))
        if not records or not records[-1].holder.get("at_once"):
            return False
        return wall_clock_ms() - records[-1].timestamp < DIRECT_LEASE_MS

    def _read(self, name: str, start: int, end: int) -> Iterator[_HolderRecord]:
        start = max(start, self._ranges.bounds(LEASES, 0)[0])
        if start >= end:
            return
        for batch in self._ranges.read(TopicPartition(LEASES, 0), start, end, (None, None)):
            columns = batch.columns()
            for key, value, timestamp in zip(
                columns.keys, columns.values, columns.timestamps, strict=True
            ):
                if key == name.encode():
                    yield _HolderRecord({} if value is None else json.loads(value), timestamp)
