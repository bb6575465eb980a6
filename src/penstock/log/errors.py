"""What a log refuses, and why.

    LogError
    ├── UnknownTopic
    │   └── UnknownPartition
    ├── TopicExists
    ├── InvalidTopic          a name, a number of partitions or a setting that cannot be
    ├── InvalidRecord
    │   └── RecordTooLarge
    ├── OffsetOutOfRange      also: retention has overtaken a committed offset
    ├── Fenced                somebody else holds the lease, or the partition, now
    ├── GroupNotEmpty
    ├── StagedRecordsGone              what was put aside has been swept
    └── LogUnavailable
        ├── LogBusy           others held the log for longer than the limit
        ├── LogReadOnly
        ├── LogFull
        ├── LogDamaged
        ├── NotALog
        ├── NewerFormat
        └── OutcomeUnknown    the connection was lost at the wrong moment

Whatever is raised by an append, a transaction or a commit of offsets: nothing of it has happened.
The one exception is `OutcomeUnknown`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.errors import StreamsException


class LogError(StreamsException):
    """The root of what a log raises."""

    def __reduce__(self) -> tuple[Any, ...]:
        # They come from workers, and most are not made of their message alone.
        return _made_again, (type(self), self.args, self.__dict__)


class UnknownTopic(LogError):
    """No topic of that name."""

    def __init__(self, topic: str, known: Iterable[str] = ()) -> None:
        names = sorted(known)
        listed = ", ".join(f"'{name}'" for name in names[:20]) + (", ..." if names[20:] else "")
        super().__init__(f"No topic '{topic}'. Topics: {listed or 'none'}.")
        self.topic = topic


class UnknownPartition(UnknownTopic):
    """The topic is there, but has no such partition."""

    def __init__(self, topic: str, partition: int, partitions: int) -> None:
        LogError.__init__(
            self, f"No partition {partition} in topic '{topic}'. It has {partitions}, from 0."
        )
        self.topic = topic
        self.partition = partition


class TopicExists(LogError):
    """A topic of that name is there already."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"Topic '{topic}' exists already.")
        self.topic = topic


class InvalidTopic(LogError):
    """A name, a number of partitions or a setting that a topic cannot have."""


class InvalidRecord(LogError):
    """A record that the topic does not take. None of those it came with was appended."""


class RecordTooLarge(InvalidRecord):
    """A record is larger than its topic's `max.message.bytes`."""

    def __init__(self, topic: str, size: int, limit: int) -> None:
        super().__init__(
            f"A record of {size} bytes is too large for topic '{topic}'. "
            f"max.message.bytes is {limit}."
        )
        self.topic = topic
        self.size = size
        self.limit = limit


class OffsetOutOfRange(LogError):
    """The offset is not between the start and the end of the partition.

    Below the start: retention was faster than the reader, and records are lost to it.
    """

    def __init__(self, topic: str, partition: int, offset: int, bounds: tuple[int, int]) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.start, self.end = bounds
        why = " Retention has removed what was there." if offset < self.start else ""
        super().__init__(
            f"No offset {offset} in '{topic}' [{partition}]: it goes from {self.start} "
            f"to {self.end}.{why}"
        )


class Fenced(LogError):
    """Another holder has taken over; what this one wanted did not happen, and never may."""


class GroupNotEmpty(LogError):
    """The group has live members, so it cannot be deleted or reset."""

    def __init__(self, group: str, members: Iterable[str]) -> None:
        listed = ", ".join(f"'{member}'" for member in members)
        super().__init__(f"Group '{group}' has members: {listed}. Stop them first.")
        self.group = group


class StagedRecordsGone(LogError):
    """A blob that was put aside was swept, or was used already."""


class LogUnavailable(LogError):
    """The log cannot be used at all, or not now."""

    #: Whether waiting may help.
    may_pass = True


class LogBusy(LogUnavailable):
    """Other processes held the log for longer than the limit. Nothing was written; try again."""


class LogReadOnly(LogUnavailable):
    """The log may be read but not written."""

    may_pass = False


class LogFull(LogUnavailable):
    """No room for what was to be written, on the disk or in the log's own limit."""

    may_pass = False


class LogDamaged(LogUnavailable):
    """The file is not what was written to it."""

    may_pass = False


class NotALog(LogUnavailable):
    """Something is there, but it is no penstock log."""

    may_pass = False


class NewerFormat(LogUnavailable):
    """The log was written by a newer penstock."""

    may_pass = False


class OutcomeUnknown(LogUnavailable):
    """It may have happened or not: the log could neither be asked nor be told any more.

    Whoever gets it must look at the log before it goes on: at the offsets that are committed, or
    at the records.
    """


def _made_again(kind: type[LogError], args: tuple[Any, ...], facts: dict[str, Any]) -> LogError:
    """An error that was pickled."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(facts)
    return error
