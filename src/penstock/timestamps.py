"""Timestamp extractors: which time a record of a source topic is taken to have.

An extractor is any callable of (record, partition time) that answers epoch milliseconds. A
negative answer means that the record is to be skipped, and counted as dropped.
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
    """A record as it was read from a topic.

    Extractors see key and value deserialized; deserialization handlers see their bytes.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: Headers


#: (record, the largest time taken from its partition so far or -1) -> epoch milliseconds.
TimestampExtractor = Callable[[ConsumedRecord, int], int]


class FailOnInvalidTimestamp:
    """The record's own time; a negative one ends the application. The default."""

    def __call__(self, record: ConsumedRecord, partition_time: int) -> int:
        if record.timestamp < 0:
            raise StreamsException(
                f"A record has the invalid timestamp {record.timestamp}. It is offset "
                f"{record.offset} of partition {record.partition} of topic '{record.topic}'. "
                "Use another timestamp extractor to process such data."
            )
        return record.timestamp


class LogAndSkipOnInvalidTimestamp:
    """The record's own time; a record with a negative one is skipped."""

    def __call__(self, record: ConsumedRecord, partition_time: int) -> int:
        if record.timestamp < 0:
            log.warning(
                "Skipping a record with the invalid timestamp %d: topic '%s', partition %d, "
                "offset %d.",
                record.timestamp, record.topic, record.partition, record.offset,
            )
        return record.timestamp


class UsePartitionTimeOnInvalidTimestamp:
    """The record's own time, or that of its partition if it is negative."""

    def __call__(self, record: ConsumedRecord, partition_time: int) -> int:
        if record.timestamp >= 0:
            return record.timestamp
        if partition_time < 0:
            raise StreamsException(
                f"A record has the invalid timestamp {record.timestamp} and the time of its "
                f"partition is not known yet. It is offset {record.offset} of partition "
                f"{record.partition} of topic '{record.topic}'."
            )
        return partition_time


class WallclockTimestampExtractor:
    """The time at which the record is taken."""

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


def timestamp_extractor(chosen: TimestampExtractor | type | str | None) -> TimestampExtractor:
    """What was chosen, as a callable: a function, an extractor, its class or its name.

    Names are the short ones or Kafka's class names, with or without their package.
    """
    if chosen is None:
        return FailOnInvalidTimestamp()
    if isinstance(chosen, str):
        found = _BY_NAME.get(chosen.rpartition(".")[2])
        if found is None:
            raise ConfigException(
                f"No timestamp extractor is called '{chosen}'. "
                f"There are: {', '.join(_BY_NAME)}; or give a function of (record, partition_time)."
            )
        return found()
    extractor: Any = chosen() if isinstance(chosen, type) else chosen
    if not callable(extractor):
        raise ConfigException(
            f"A timestamp extractor must be a function of (record, partition_time), not "
            f"{type(chosen).__name__}."
        )
    return extractor  # type: ignore[no-any-return]
