"""The topic in which holders of leases are recorded.

A record has the name of the lease as its key, and its holder as a JSON object; a tombstone records
the release of a lease that was taken directly. The offset of a holder's record, plus one, is the
epoch of its lease.

A holder records its writers in one more record per epoch, with the key `<name>/writers/<epoch>`:
the highest serial, and the serials that are fenced. A later holder fences the others and then
deletes the record.
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
from penstock.log.types import TopicPartition, WriterGrant
from penstock.record import RecordColumns

LEASES = "__penstock_leases"
#: A lease that was taken directly belongs to its holder for this time, unless it is released.
DIRECT_LEASE_MS = 60_000
#: Between the name of a lease and the epoch, in the key of a record of writers.
_WRITERS = "/writers/"


class _HolderRecord(NamedTuple):
    #: Empty if the lease was released.
    holder: dict[str, Any]
    timestamp: int


class WriterRecord(NamedTuple):
    """The writers of one epoch: those with serials from 1 to `serials`."""

    serials: int
    #: The writers that must not start any more.
    fenced: frozenset[int] = frozenset()
    #: The fenced writers whose fence is known to be complete.
    ended: frozenset[int] = frozenset()

    def active(self) -> list[int]:
        """Return the serials that may have an open transaction."""
        return [serial for serial in range(1, self.serials + 1) if serial not in self.ended]


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
        return self._append(name, holder)

    def _append(self, key: str, value: dict[str, Any] | None) -> int:
        data = None if value is None else json.dumps(value).encode()
        record = RecordColumns([key.encode()], [data])
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

    # Writers

    def write_writers(self, name: str, epoch: int, writers: WriterRecord | None) -> None:
        """Record the writers of an epoch; None deletes the record."""
        value = None
        if writers is not None:
            value = {
                "serials": writers.serials, "fenced": sorted(writers.fenced),
                "ended": sorted(writers.ended),
            }
        self._append(f"{name}{_WRITERS}{epoch}", value)

    def writers(self, name: str) -> dict[int, WriterRecord]:
        """Return the recorded writers of a lease: epoch -> writers."""
        prefix = f"{name}{_WRITERS}".encode()
        found: dict[int, WriterRecord] = {}
        for key, value, _ in self._read_all(0, self.end()):
            epoch = key.removeprefix(prefix)
            if not key.startswith(prefix) or not epoch.isdigit():
                continue
            found.pop(int(epoch), None)
            if value is not None:
                record = json.loads(value)
                found[int(epoch)] = WriterRecord(
                    record["serials"], frozenset(record["fenced"]), frozenset(record["ended"])
                )
        return found

    def is_fenced(self, grant: WriterGrant) -> bool:
        """Return whether the lease has a later holder, or its holder has fenced the writer."""
        if self.has_record(grant.lease, grant.epoch, self.end()):
            return True
        writers = self.writers(grant.lease).get(grant.epoch)
        return writers is None or grant.serial in writers.fenced

    # Reads

    def _read(self, name: str, start: int, end: int) -> Iterator[_HolderRecord]:
        for key, value, timestamp in self._read_all(start, end):
            if key == name.encode():
                yield _HolderRecord({} if value is None else json.loads(value), timestamp)

    def _read_all(self, start: int, end: int) -> Iterator[tuple[bytes, bytes | None, int]]:
        if end <= 0:
            return
        start = max(start, self._ranges.bounds(LEASES, 0)[0])
        if start >= end:
            return
        for batch in self._ranges.read(TopicPartition(LEASES, 0), start, end, (None, None)):
            columns = batch.columns()
            for key, value, timestamp in zip(
                columns.keys, columns.values, columns.timestamps, strict=True
            ):
                yield key or b"", value, timestamp
