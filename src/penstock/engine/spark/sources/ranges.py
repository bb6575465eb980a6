"""Resolves options to ranges of offsets: one range for each partition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from penstock.engine.spark.sources.options import EARLIEST, LATEST, Options
from penstock.errors import ConfigException
from penstock.log.base import Log
from penstock.log.types import PartitionOffsets, TopicPartition


class OffsetRange(NamedTuple):
    """Offsets of a partition, from `start` up to, but not including, `end`."""

    topic: str
    partition: int
    start: int
    end: int


def partition_bounds(log: Log, topic: str) -> dict[int, PartitionOffsets]:
    """Return the readable offsets of the partitions of a topic."""
    partitions = [TopicPartition(topic, number) for number in range(log.topic(topic).partitions)]
    return {where.partition: found for where, found in log.offsets(partitions).items()}


def start_offsets(
    log: Log, topic: str, options: Options, bounds: Mapping[int, PartitionOffsets], default: str
) -> dict[int, int]:
    """Return partition -> the first offset to read."""
    time = options.timestamp("startingTimestamp")
    if time is not None:
        _check_single("starting", options)
        return {number: _offset_for(log, topic, number, time, found.end)
                for number, found in bounds.items()}
    return _resolve("startingOffsets", options.offsets("startingOffsets", default, topic), bounds)


def end_offsets(
    log: Log, topic: str, options: Options, bounds: Mapping[int, PartitionOffsets]
) -> dict[int, int]:
    """Return partition -> the offset before which reading ends. Never beyond the current end."""
    time = options.timestamp("endingTimestamp")
    if time is not None:
        _check_single("ending", options)
        return {number: _offset_for(log, topic, number, time, found.end)
                for number, found in bounds.items()}
    return _resolve("endingOffsets", options.offsets("endingOffsets", "latest", topic), bounds)


def offset_ranges(log: Log, topic: str, options: Options) -> list[OffsetRange]:
    """Return the range of each partition. Empty ranges are left out."""
    bounds = partition_bounds(log, topic)
    ends = end_offsets(log, topic, options, bounds)
    starts = start_offsets(log, topic, options, bounds, "earliest")
    return [
        OffsetRange(topic, number, starts[number], ends[number]) for number in bounds
        if starts[number] < ends[number]
    ]


def _check_single(side: str, options: Options) -> None:
    if options.get(f"{side}Offsets") is not None:
        raise ConfigException(
            f"The options '{side}Offsets' and '{side}Timestamp' exclude each other."
        )


def _offset_for(log: Log, topic: str, partition: int, time: int, end: int) -> int:
    found = log.offset_for_time(topic, partition, time)
    return end if found is None else min(found.offset, end)


def _resolve(
    name: str, given: Mapping[int, int] | int, bounds: Mapping[int, PartitionOffsets]
) -> dict[int, int]:
    if isinstance(given, int):
        given = dict.fromkeys(bounds, given)
    if given.keys() != bounds.keys():
        raise ConfigException(
            f"The option '{name}' needs an offset for each partition: "
            f"{', '.join(map(str, bounds))}. It has offsets for: "
            f"{', '.join(map(str, sorted(given))) or 'none'}."
        )
    resolved = {}
    for number, offset in given.items():
        start, end = bounds[number].start, bounds[number].end
        resolved[number] = {EARLIEST: start, LATEST: end}.get(offset, offset)
        if not start <= resolved[number] <= end:
            raise ConfigException(
                f"The option '{name}' has offset {offset} for partition {number}, which has the "
                f"offsets {start} to {end}."
            )
    return resolved
