"""How much a batch takes: bounded in records and bytes, and adapted to how long batches last."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from penstock.config import StreamsConfig
from penstock.errors import ConfigException

K = TypeVar("K", bound=Hashable)

#: What a record is taken to need before any of its topic was read.
_UNKNOWN_BYTES = 1_000.0
#: The first batch of a planner; nobody knows yet what a record costs.
_FIRST_RECORDS = 10_000
_LEAST_RECORDS = 100
#: The size changes by no more than this from one batch to the next.
_STEP = 4.0


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The bounds of a batch.

    `target_ms` is for batches that find a backlog; those that do not are as short as their input.
    A second: starting a batch costs some 50 to 100 ms, so most of the time is spent on records,
    while what is read of a backlog stays small enough for the memory of a worker.
    """

    max_records: int = 500_000
    max_bytes: int = 64 * 1024 * 1024
    target_ms: int = 1_000

    @classmethod
    def of(cls, config: StreamsConfig) -> BatchLimits:
        """The settings `penstock.batch.max.records`, `.max.bytes` and `.target.ms`."""
        return cls(
            whole_setting(config, "penstock.batch.max.records", cls().max_records),
            whole_setting(config, "penstock.batch.max.bytes", cls().max_bytes),
            whole_setting(config, "penstock.batch.target.ms", cls().target_ms),
        )


def whole_setting(config: StreamsConfig, name: str, default: int, least: int = 1) -> int:
    """A number among the extra settings of the application."""
    given = config.extra.get(name, default)
    try:
        number = int(given)
    except (TypeError, ValueError):
        number = least - 1
    if number < least:
        raise ConfigException(f"{name} must be a whole number of at least {least}, not {given!r}.")
    return number


class BatchCost:
    """What a batch costs: so much in itself, and so much a record. Older batches count less."""

    _FADING = 0.8

    def __init__(self) -> None:
        #: Seconds of a batch without records, and of each record.
        self.overhead = 0.0
        self.each = 0.0
        self._weight = self._records = self._seconds = 0.0
        self._squares = self._products = 0.0

    def observe(self, records: int, seconds: float) -> None:
        """A batch took so many records and lasted so long."""
        fading = self._FADING
        self._weight = self._weight * fading + 1
        self._records = self._records * fading + records
        self._seconds = self._seconds * fading + seconds
        self._squares = self._squares * fading + records * records
        self._products = self._products * fading + records * seconds
        mean, mean_seconds = self._records / self._weight, self._seconds / self._weight
        variance = self._squares / self._weight - mean * mean
        # Batches of one size do not tell the two apart; then the overhead stays what it was.
        if variance > mean * mean / 20:
            covariance = self._products / self._weight - mean * mean_seconds
            self.overhead = mean_seconds - covariance / variance * mean
        self.overhead = min(max(self.overhead, 0.0), mean_seconds * 0.9)
        self.each = (mean_seconds - self.overhead) / max(mean, 1.0)


class BatchSize:
    """How many records the next batch may take, learnt from those before.

    A batch costs something even when it is empty. Where that is more than the target, a batch may
    work for as long as it costs, or most of the time would go into starting batches.
    """

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        #: How many records the next batch may take, in all.
        self.records = min(_FIRST_RECORDS, limits.max_records)
        self._cost = BatchCost()
        self._is_warm = False
        self._record_bytes: dict[str, float] = {}

    def observe(self, records: int, seconds: float) -> None:
        """A batch took so many records and lasted so long."""
        target = self._limits.target_ms / 1000
        is_full = records >= self.records / 2
        # A batch that took what there was says little about a full one, unless it was long.
        if not records or (not is_full and seconds <= target):
            return
        was_warm, self._is_warm = self._is_warm, True
        if is_full and not was_warm:
            # The first batch waits for workers that start; another of its size will tell more.
            return
        self._cost.observe(records, seconds)
        overhead = self._cost.overhead
        wanted = max(target - overhead, overhead) / max(self._cost.each, 1e-9)
        size = min(max(wanted, self.records / _STEP), self.records * _STEP)
        if not is_full:
            size = min(size, self.records)
        self.records = int(min(max(size, _LEAST_RECORDS), self._limits.max_records))

    def observe_bytes(self, topic: str, records: int, size: int) -> None:
        """Records of a topic were read and had this size."""
        if records > 0:
            before = self._record_bytes.get(topic, size / records)
            self._record_bytes[topic] = before + (size / records - before) / 4

    @property
    def max_bytes(self) -> int:
        """What a batch may read."""
        return self._limits.max_bytes

    def record_bytes(self, topic: str) -> float:
        """What a record of the topic needs, about."""
        return self._record_bytes.get(topic, _UNKNOWN_BYTES)

    def shares(self, available: Mapping[K, tuple[str, int]]) -> dict[K, int]:
        """How many records each partition may give. `available`: (topic, how many there are).

        All get the same, but no more than they have; what some leave is for the others. Every
        one gives at least one record, or it might never come to its turn.
        """
        wanted = {at: count for at, (_, count) in available.items()}
        shares = fair_shares(wanted, self.records)
        size = sum(
            count * self.record_bytes(available[at][0])
            for at, count in shares.items()
        )
        if size > self._limits.max_bytes:
            fewer = int(sum(shares.values()) * self._limits.max_bytes / size)
            shares = fair_shares(wanted, fewer)
        return {at: max(count, 1) for at, count in shares.items()}


def fair_shares(wanted: Mapping[K, int], budget: int) -> dict[K, int]:
    """Divide a budget evenly; nobody gets more than wanted."""
    shares = {}
    left = budget
    for number, (at, count) in enumerate(sorted(wanted.items(), key=lambda each: each[1])):
        shares[at] = min(count, left // (len(wanted) - number))
        left -= shares[at]
    return shares
