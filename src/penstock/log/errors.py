"""The errors of a log.

    LogError
    ├── UnknownTopic
    │   └── UnknownPartition
    ├── TopicExists
    ├── InvalidTopic          an illegal name, number of partitions or setting
    ├── InvalidRecord
    │   └── RecordTooLarge
    ├── OffsetOutOfRange      also: retention has overtaken a committed offset
    ├── Fenced                another process has the lease or the partition now
    ├── GroupNotEmpty
    ├── StagedRecordsGone
    ├── PartlyAppended        some of several appends that do not depend on each other
    └── LogUnavailable
        ├── LogBusy           other writers held the log for too long
        ├── LogReadOnly
        ├── LogFull
        ├── LogDamaged
        ├── NotALog
        ├── NewerFormat
        └── OutcomeUnknown    the connection was lost during a commit

An append, a transaction or an offset commit that raises has written nothing, except with
`OutcomeUnknown` and `PartlyAppended`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.errors import StreamsException
from penstock.suggestions import did_you_mean, listed, user_topics_first

if TYPE_CHECKING:
    from penstock.log.types import AppendResult


class LogError(StreamsException):
    """The base class of the errors of a log."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Workers send errors to the driver. Most constructors take more than the message.
        return _unpickle, (type(self), self.args, self.__dict__)


class UnknownTopic(LogError):
    """The topic does not exist."""

    def __init__(self, topic: str, known: Iterable[str] = ()) -> None:
        names = user_topics_first(known)
        hint = f"{did_you_mean(topic, names)} Topics: {listed(names)}." if names else ""
        super().__init__(f"Topic '{topic}' does not exist.{hint}")
        self.topic = topic


class UnknownPartition(UnknownTopic):
    """The topic exists, but not the partition."""

    def __init__(self, topic: str, partition: int, partitions: int) -> None:
        LogError.__init__(
            self,
            f"Topic '{topic}' has no partition {partition}. It has {partitions}, numbered from 0.",
        )
        self.topic = topic
        self.partition = partition


class TopicExists(LogError):
    """A topic of this name already exists."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"Topic '{topic}' already exists.")
        self.topic = topic


class InvalidTopic(LogError):
    """A topic cannot have this name, number of partitions or setting."""


class InvalidRecord(LogError):
    """The topic rejects a record. Nothing of its append was written."""


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

    Below the start, retention has deleted records before they were read.
    """

    def __init__(self, topic: str, partition: int, offset: int, bounds: tuple[int, int]) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.start, self.end = bounds
        reason = " Retention has deleted that offset." if offset < self.start else ""
        super().__init__(
            f"Offset {offset} of '{topic}' [{partition}] is out of range. The partition goes from "
            f"{self.start} to {self.end}.{reason}"
        )


class Fenced(LogError):
    """Another process has taken over. The operation did not and never will take effect."""


class GroupNotEmpty(LogError):
    """The group has live members, so it cannot be deleted or reset."""

    def __init__(self, group: str, members: Iterable[str]) -> None:
        listed = ", ".join(f"'{member}'" for member in members)
        super().__init__(f"Group '{group}' has members: {listed}. Stop them first.")
        self.group = group


class StagedRecordsGone(LogError):
    """Staged records were already appended, dropped, or deleted after a while."""


class PartlyAppended(LogError):
    """Some of several appends that do not depend on each other have failed, but not all."""

    def __init__(self, results: Sequence[AppendResult | LogError]) -> None:
        self.results = tuple(results)
        self.first = next(each for each in results if isinstance(each, LogError))
        failed = sum(isinstance(each, LogError) for each in results)
        super().__init__(f"{failed} of {len(results)} appends have failed. {self.first}")


class LogUnavailable(LogError):
    """The log cannot be used, now or at all."""

    #: Whether a later attempt may succeed.
    may_pass = True


class LogBusy(LogUnavailable):
    """Other processes held the log for longer than the limit. Nothing was written; try again."""


class LogReadOnly(LogUnavailable):
    """The log can be read but not written."""

    may_pass = False


class LogFull(LogUnavailable):
    """The disk is full, or the log has reached its maximum size."""

    may_pass = False


class LogDamaged(LogUnavailable):
    """Stored data is not what was written."""

    may_pass = False

    def __init__(
        self, message: str, *, topic: str | None = None, partition: int | None = None,
        offsets: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(message)
        #: None if the damage is not in the records of a topic.
        self.topic = topic
        self.partition = partition
        #: The first and the last damaged offset.
        self.offsets = offsets


class NotALog(LogUnavailable):
    """The file is not a penstock log."""

    may_pass = False


class NewerFormat(LogUnavailable):
    """A newer version of penstock has written the log."""

    may_pass = False


class OutcomeUnknown(LogUnavailable):
    """The operation may or may not have taken effect: the connection to the log was lost.

    Read the committed offsets or the records before you continue.
    """


def _unpickle(
    kind: type[LogError], args: tuple[Any, ...], attributes: dict[str, Any]
) -> LogError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error
