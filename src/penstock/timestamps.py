"""Timestamp extractors: the timestamp of a source record.

An extractor is a callable of (record, partition time) that returns epoch milliseconds. A record
with a negative timestamp is skipped and counted as dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.clock import wall_clock_ms
from penstock.errors import ConfigException, StreamsException
from penstock.record import Headers

log = logging.getLogger(__name__)


class ConsumedRecord(NamedTuple):
    """A record read from a topic.

    Timestamp extractors receive deserialized keys and values, deserialization exception handlers
    their bytes.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: Headers


#: A function of (record, the largest timestamp of its partition so far, or -1) that returns epoch
#: milliseconds.
TimestampExtractor = Callable[[ConsumedRecord, int], int]


class FailOnInvalidTimestamp:
    """Returns the record's timestamp; a negative one stops the application. The default.

    Example:
        >>> FailOnInvalidTimestamp()(ConsumedRecord("orders", 0, 0, 5, "k", "v", ()), 9)
        5
    """

    def __call__(self, record: ConsumedRecord, partition_time: int) -> int:
        if record.timestamp < 0:
            raise StreamsException(
                f"A record has the invalid timestamp {record.timestamp}. It is at offset "
                f"{record.offset} of partition {record.partition} of topic '{record.topic}'. "
                "Use another timestamp extractor to process such records."
            )
        return record.timestamp


class LogAndSkipOnInvalidTimestamp:
    """Returns the record's timestamp; a record with a negative one is logged and skipped.

    Example:
        >>> LogAndSkipOnInvalidTimestamp()(ConsumedRecord("orders", 0, 0, 5, "k", "v", ()), 9)
        5
    """

    def __call__(self, record: ConsumedRecord, partition_time: int) -> int:
        if record.timestamp < 0:
            log.warning(
                "Skipping a record with the invalid timestamp %d: topic '%s', partition %d, "
                "offset %d.",
                record.timestamp, record.topic, record.partition, record.offset,
            )
        return record.timestamp


class UsePartitionTimeOnInvalidTimestamp:
    """Returns the record's timestamp, or the partition time if it is negative.

    Example:
        >>> record = ConsumedRecord("orders", 0, 0, -1, "k", "v", ())
        >>> UsePartitionTimeOnInvalidTimestamp()(record, partition_time=9)
        9
    """

    def __call__(self, record: ConsumedRecord, partition_time: int) -> int:
        if record.timestamp >= 0:
            return record.timestamp
        if partition_time < 0:
            raise StreamsException(
                f"A record has the invalid timestamp {record.timestamp}, and the time of its "
                f"partition is not known yet. It is at offset {record.offset} of partition "
                f"{record.partition} of topic '{record.topic}'. Use another timestamp extractor."
            )
        return partition_time


class WallclockTimestampExtractor:
    """Returns the current time when the record is processed.

    Example:
        >>> from penstock import StreamsBuilder
        >>> words = StreamsBuilder().stream("words", timestamp=WallclockTimestampExtractor())
    """

    def __call__(self, record: ConsumedRecord, partition_time: int) -> int:
        return wall_clock_ms()


_BY_NAME: dict[str, Callable[[], TimestampExtractor]] = {
    "FailOnInvalidTimestamp": FailOnInvalidTimestamp,
    "LogAndSkipOnInvalidTimestamp": LogAndSkipOnInvalidTimestamp,
    "UsePartitionTimeOnInvalidTimestamp": UsePartitionTimeOnInvalidTimestamp,
    "WallclockTimestampExtractor": WallclockTimestampExtractor,
    "fail_on_invalid": FailOnInvalidTimestamp,
    "log_and_skip": LogAndSkipOnInvalidTimestamp,
    "use_partition_time": UsePartitionTimeOnInvalidTimestamp,
    "wallclock": WallclockTimestampExtractor,
}


def make_timestamp_extractor(chosen: TimestampExtractor | type | str | None) -> TimestampExtractor:
    """Return the extractor for a setting: a function, an extractor, its class or its name.

    A name is a short one or Kafka's class name, with or without its package.
    """
    if chosen is None:
        return FailOnInvalidTimestamp()
    if isinstance(chosen, str):
        found = _BY_NAME.get(chosen.rpartition(".")[2])
        if found is None:
            raise ConfigException(
                f"Timestamp extractor '{chosen}' does not exist. Extractors: "
                f"{', '.join(_BY_NAME)}. Or use a function of (record, partition_time)."
            )
        return found()
    extractor: Any = chosen() if isinstance(chosen, type) else chosen
    if not callable(extractor):
        raise ConfigException(
            f"A timestamp extractor must be a function of (record, partition_time), not "
            f"{type(chosen).__name__}."
        )
    return extractor  # type: ignore[no-any-return]
