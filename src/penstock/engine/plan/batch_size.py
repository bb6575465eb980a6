"""The size of a batch: limited in records and bytes, and adapted to the duration of batches."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from penstock.config import StreamsConfig
from penstock.errors import ConfigException

K = TypeVar("K", bound=Hashable)

#: The assumed size of a record before any of its topic was read.
_DEFAULT_RECORD_BYTES = 1_000.0
#: The assumed records per second before any batch was measured. Most applications are faster.
_FIRST_RATE = 40_000
_MIN_RECORDS = 100
#: The size changes at most by this factor from one batch to the next.
_MAX_GROWTH = 4.0
#: A batch is unusual if this share of it was preparation.
_UNUSUAL_SHARE = 0.25
#: After so many unusual batches in a row they are the usual ones.
_MAX_UNUSUAL = 5


class BatchDuration(NamedTuple):
    """How long a batch took, from its plan to its commit."""

    seconds: float
    #: The part that later batches do not need: new workers, restored stores.
    preparation_s: float = 0.0
    #: Whether a worker was new. The start of its process is not part of `preparation_s`.
    is_cold: bool = False

    @property
    def usual_s(self) -> float:
        """The part that every batch needs."""
        return max(self.seconds - self.preparation_s, 0.0)

    @property
    def is_unusual(self) -> bool:
        """Whether the batch says little about later ones."""
        return self.is_cold or self.preparation_s > _UNUSUAL_SHARE * self.seconds


NO_DURATION = BatchDuration(0.0)


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

    A batch that started workers or restored stores is not measured: the estimate would take their
    time for the cost of records. But later batches are not slower, so it may enlarge them.
    """

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._target_s = limits.target_ms / 1000
        #: How many records the next batch may read. The first one reads what an application of
        #: average speed processes in the target duration, or the backlog if that is smaller.
        self.records = self._limit(_FIRST_RATE * self._target_s)
        self._cost = BatchCost()
        self._is_first = True
        #: How many unusual batches followed each other.
        self._unusual = 0
        self._record_bytes: dict[str, float] = {}

    def observe(self, records: int, duration: BatchDuration) -> None:
        """Learn from a batch with so many records and this duration."""
        is_full = records >= self.records / 2
        # A batch that was not full does not predict a full one, unless it took long.
        if not records or (not is_full and duration.usual_s <= self._target_s):
            return
        # The driver's JVM is new in the first batch.
        is_unusual = (self._is_first and is_full) or duration.is_unusual
        self._is_first = False
        self._unusual = self._unusual + 1 if is_unusual else 0
        if 0 < self._unusual <= _MAX_UNUSUAL:
            if is_full:
                self._grow(records, duration.usual_s)
            return
        self._cost.observe(records, duration.usual_s)
        overhead = self._cost.overhead
        desired = max(self._target_s - overhead, overhead) / max(self._cost.per_record, 1e-9)
        size = min(max(desired, self.records / _MAX_GROWTH), records * _MAX_GROWTH)
        if not is_full:
            size = min(size, self.records)
        self.records = self._limit(size)

    def _grow(self, records: int, seconds: float) -> None:
        """Grow to what fits into the target duration if later batches are not slower."""
        fitting = records * self._target_s / max(seconds, 1e-9)
        self.records = self._limit(max(self.records, min(fitting, records * _MAX_GROWTH)))

    def _limit(self, size: float) -> int:
        return min(max(int(size), _MIN_RECORDS), self._limits.max_records)

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
