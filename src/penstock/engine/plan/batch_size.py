"""The size of a batch: limited in records and bytes, and adapted to the duration of batches."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from penstock.config import StreamsConfig
from penstock.errors import ConfigException

K = TypeVar("K", bound=Hashable)

#: The assumed size of a record before any of its topic was read.
_DEFAULT_RECORD_BYTES = 1_000.0
#: The size of the first batch, when the cost of a record is not known yet.
_FIRST_RECORDS = 10_000
_MIN_RECORDS = 100
#: The size changes at most by this factor from one batch to the next.
_MAX_GROWTH = 4.0


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The limits of a batch.

    `target_ms` is the target duration when there is a backlog. The default is one second: starting
    a batch costs about 50 to 100 ms, so most of the time is spent on records, and the records of a
    batch still fit into the memory of a worker.
    """

    max_records: int = 500_000
    max_bytes: int = 64 * 1024 * 1024
    target_ms: int = 1_000

    @classmethod
    def of(cls, config: StreamsConfig) -> BatchLimits:
        """Read `penstock.batch.max.records`, `.max.bytes` and `.target.ms`."""
        return cls(
            integer_setting(config, "penstock.batch.max.records", cls().max_records),
            integer_setting(config, "penstock.batch.max.bytes", cls().max_bytes),
            integer_setting(config, "penstock.batch.target.ms", cls().target_ms),
        )


def integer_setting(config: StreamsConfig, name: str, default: int, at_least: int = 1) -> int:
    """Return an integer from the extra settings of the application."""
    value = config.extra.get(name, default)
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = at_least - 1
    if number < at_least:
        raise ConfigException(f"{name} must be an integer of at least {at_least}, not {value!r}.")
    return number


class BatchCost:
    """Estimates the overhead of a batch and the cost of a record, by regression with decay."""

    _DECAY = 0.8

    def __init__(self) -> None:
        #: The estimated seconds of an empty batch, and of each record.
        self.overhead = 0.0
        self.per_record = 0.0
        self._weight = self._records = self._seconds = 0.0
        self._squares = self._products = 0.0

    def observe(self, records: int, seconds: float) -> None:
        """Learn from a batch with so many records and this duration."""
        decay = self._DECAY
        self._weight = self._weight * decay + 1
        self._records = self._records * decay + records
        self._seconds = self._seconds * decay + seconds
        self._squares = self._squares * decay + records * records
        self._products = self._products * decay + records * seconds
        mean, mean_seconds = self._records / self._weight, self._seconds / self._weight
        variance = self._squares / self._weight - mean * mean
        # Batches of equal size do not separate the two; then the overhead stays unchanged.
        if variance > mean * mean / 20:
            covariance = self._products / self._weight - mean * mean_seconds
            self.overhead = mean_seconds - covariance / variance * mean
        self.overhead = min(max(self.overhead, 0.0), mean_seconds * 0.9)
        self.per_record = (mean_seconds - self.overhead) / max(mean, 1.0)


class BatchSize:
    """Decides how many records the next batch reads, from the duration of earlier ones.

    If the overhead of a batch exceeds the target duration, the records of a batch may take as long
    as the overhead. Otherwise most of the time would be spent on starting batches.
    """

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        #: How many records the next batch may read.
        self.records = min(_FIRST_RECORDS, limits.max_records)
        self._cost = BatchCost()
        self._is_warm = False
        self._record_bytes: dict[str, float] = {}

    def observe(self, records: int, seconds: float) -> None:
        """Learn from a batch with so many records and this duration."""
        target = self._limits.target_ms / 1000
        is_full = records >= self.records / 2
        # A batch that was not full does not predict a full one, unless it took long.
        if not records or (not is_full and seconds <= target):
            return
        was_warm, self._is_warm = self._is_warm, True
        if is_full and not was_warm:
            # The first batch includes the start of the workers. The next one is measured.
            return
        self._cost.observe(records, seconds)
        overhead = self._cost.overhead
        desired = max(target - overhead, overhead) / max(self._cost.per_record, 1e-9)
        size = min(max(desired, self.records / _MAX_GROWTH), self.records * _MAX_GROWTH)
        if not is_full:
            size = min(size, self.records)
        self.records = int(min(max(size, _MIN_RECORDS), self._limits.max_records))

    def observe_bytes(self, topic: str, records: int, size: int) -> None:
        """Learn from the size of the records that were read of a topic."""
        if records > 0:
            before = self._record_bytes.get(topic, size / records)
            self._record_bytes[topic] = before + (size / records - before) / 4

    @property
    def max_bytes(self) -> int:
        """How many bytes a batch may read."""
        return self._limits.max_bytes

    def record_bytes(self, topic: str) -> float:
        """Estimate the size of a record of the topic."""
        return self._record_bytes.get(topic, _DEFAULT_RECORD_BYTES)

    def shares(self, available: Mapping[K, tuple[str, int]]) -> dict[K, int]:
        """Return how many records to read of each partition. `available`: (topic, records).

        The batch is divided evenly among the partitions. Each gives at least one record, so that
        none is starved.
        """
        requested = {at: count for at, (_, count) in available.items()}
        shares = fair_shares(requested, self.records)
        size = sum(
            count * self.record_bytes(available[at][0])
            for at, count in shares.items()
        )
        if size > self._limits.max_bytes:
            fewer = int(sum(shares.values()) * self._limits.max_bytes / size)
            shares = fair_shares(requested, fewer)
        return {at: max(count, 1) for at, count in shares.items()}


def fair_shares(requested: Mapping[K, int], budget: int) -> dict[K, int]:
    """Divide a budget evenly. No share exceeds the amount that is requested."""
    shares = {}
    remaining = budget
    for number, (at, count) in enumerate(sorted(requested.items(), key=lambda each: each[1])):
        shares[at] = min(count, remaining // (len(requested) - number))
        remaining -= shares[at]
    return shares
