"""Limits on the records of a topic.

A log rejects an invalid record together with the whole batch. A task therefore checks each record
first, and the production handler decides about invalid ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from penstock.errors import NotSentException
from penstock.record import Headers

_FIRST, _LAST = -(2**63), 2**63 - 1
#: (topic, key, value, timestamp, headers) of a record.
Sent: TypeAlias = "tuple[str, bytes | None, bytes | None, int, Headers]"


@dataclass(frozen=True, slots=True)
class RecordLimits:
    """The limits of one topic during a batch."""

    #: Maximum size of key, value and headers together.
    max_bytes: int
    #: True for a compacted topic.
    needs_key: bool = False
    #: Valid timestamps in epoch milliseconds, both inclusive.
    earliest: int = _FIRST
    latest: int = _LAST

    def check(self, record: Sent) -> None:
        """Raise `NotSentException` for a record that the topic rejects."""
        topic, key, value, timestamp, headers = record
        size = len(key or b"") + len(value or b"")
        size += sum(len(name.encode()) + len(content or b"") for name, content in headers)
        if size > self.max_bytes:
            raise NotSentException(
                f"A record for topic {topic} has {size} bytes; the topic accepts at most "
                f"{self.max_bytes} (max.message.bytes)."
            )
        if key is None and self.needs_key:
            raise NotSentException(
                f"Topic {topic} is compacted and rejects records without a key."
            )
        if not self.earliest <= timestamp <= self.latest:
            setting = "before" if timestamp < self.earliest else "after"
            raise NotSentException(
                f"The timestamp {timestamp} is too far from the clock for topic {topic} "
                f"(message.timestamp.{setting}.max.ms)."
            )


def no_limits(topic: str) -> None:
    """Return None: no topic has limits."""
