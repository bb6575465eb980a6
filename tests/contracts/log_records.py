"""Helpers that make and read records."""

from __future__ import annotations

import time
from collections.abc import Iterable

from penstock.log import Log, RangeReader, RecordColumns

NOW = time.time_ns() // 1_000_000
Pair = tuple[bytes | None, bytes | None]


def records(*pairs: Pair, at: int = NOW) -> RecordColumns:
    return RecordColumns(
        [key for key, _ in pairs], [value for _, value in pairs], [at] * len(pairs)
    )


def numbered(numbers: Iterable[int], size: int = 0, at: int = NOW) -> RecordColumns:
    return records(*((b"k%d" % n, (b"%d" % n).ljust(size, b".")) for n in numbers), at=at)


def values(reader: RangeReader) -> list[bytes | None]:
    return [value for batch in reader for value in batch.columns().values]


def offsets(reader: RangeReader) -> list[int]:
    return [offset for batch in reader for offset in batch.columns().offsets]


def pairs(log: Log, topic: str, partition: int = 0) -> list[Pair]:
    """Return the keys and values of a partition."""
    start = log.offsets([(topic, partition)])[topic, partition].start
    return [
        pair
        for batch in log.read(topic, partition, start)
        for columns in [batch.columns()]
        for pair in zip(columns.keys, columns.values, strict=True)
    ]
