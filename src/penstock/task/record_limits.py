"""What a topic takes. A log would refuse the rest, and with it the whole batch: so a task looks
first, and the production handler decides about each such record."""

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
    """The limits of one topic while a batch runs."""

    #: Of key, value and headers together.
    max_bytes: int
    #: As a compacted topic does.
    needs_key: bool = False
    #: Timestamps in epoch milliseconds, both of them taken.
    earliest: int = _FIRST
    latest: int = _LAST

    def check(self, record: Sent) -> None:
        """Raise `NotSentException` for a record that the topic does not take."""
        topic, key, value, timestamp, headers = record
        size = len(key or b"") + len(value or b"")
        size += sum(len(name.encode()) + len(content or b"") for name, content in headers)
        if size > self.max_bytes:
            raise NotSentException(
                f"A record for topic {topic} has {size} bytes; the topic takes at most "
                f"{self.max_bytes} (max.message.bytes)."
            )
        if key is None and self.needs_key:
            raise NotSentException(
                f"Topic {topic} is compacted: it takes no records without a key."
            )
        if not self.earliest <= timestamp <= self.latest:
            setting = "before" if timestamp < self.earliest else "after"
            raise NotSentException(
                f"The timestamp {timestamp} is too far from the clock for topic {topic} "
                f"(message.timestamp.{setting}.max.ms)."
            )


def no_limits(topic: str) -> None:
    """Every topic takes every record."""
