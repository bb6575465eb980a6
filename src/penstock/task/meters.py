"""The measurements of a task for its metrics, between two commits.

At the level INFO, Python code measures no single record: native code adds up sizes and ages while
it processes records, and those of outputs after each chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from penstock.metric_catalogue import Reading, includes
from penstock.native import core
from penstock.record import Headers, PartitionColumns

#: Kafka counts so many bytes of a record for timestamp, offset and partition.
_FIXED_BYTES = 8 + 8 + 4


class Meter:
    """The number, the sum and the extremes of observed values."""

    __slots__ = ("count", "max", "min", "sum")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all values."""
        self.count, self.sum = 0, 0.0
        self.min, self.max = float("inf"), float("-inf")

    def record(self, value: float) -> None:
        """Add a value."""
        self.count += 1
        self.sum += value
        if value < self.min:
            self.min = value
        if value > self.max:
            self.max = value

    def add(self, count: int, total: float, low: float, high: float) -> None:
        """Add several values."""
        self.count += count
        self.sum += total
        self.min = min(self.min, low)
        self.max = max(self.max, high)


class Measured(NamedTuple):
    """The size and the age of records: the time since their timestamps in milliseconds."""

    records: int
    bytes: int
    ages: float
    youngest: int
    oldest: int


class Meters:
    """The meters of a task that its recording level includes."""

    def __init__(self, level: str) -> None:
        self._level = level
        self._meters: dict[tuple[str, tuple[str, ...]], Meter] = {}
        #: (sensor, node, topic) -> the meters of sizes and ages, and the fixed bytes of a record.
        self._topics: dict[tuple[str, str, str], tuple[Meter, Meter, int]] = {}
        self._processed: dict[str, int] = {}
        #: Called before each commit: record values that are read, not observed.
        self.at_commit: list[Callable[[], object]] = []

    def records(self, sensor: str) -> bool:
        """Whether the recording level includes a sensor."""
        return includes(self._level, sensor)

    def meter(self, sensor: str, *tags: str) -> Meter:
        """The meter of a sensor. `tags` are the values of its tags after `task-id`."""
        found = self._meters.get((sensor, tags))
        if found is None:
            found = self._meters[sensor, tags] = Meter()
        return found

    def consumed(self, node: str, topic: str, measured: Measured, *, has_ages: bool) -> None:
        """Add records that a source has consumed. `has_ages`: their ages are valid."""
        count, size, *ages = measured
        sizes, latency, fixed = self._meters_of("consumed", node, topic)
        sizes.add(count, size + count * fixed, 0, 0)
        if has_ages:
            latency.add(count, *ages)

    def extracted(self, node: str, timestamps: list[int], now: int) -> None:
        """Add the timestamps that an extractor has returned for records of a source."""
        if timestamps:
            count = len(timestamps)
            self.meter("e2e-latency", node).add(
                count, now * count - sum(timestamps), now - max(timestamps), now - min(timestamps)
            )

    def produced(self, node: str, topic: str, measured: Measured) -> None:
        """Add records that a sink has written."""
        count, size, *ages = measured
        sizes, latency, fixed = self._meters_of("produced", node, topic)
        sizes.add(count, size + count * fixed, 0, 0)
        latency.add(count, *ages)

    def _meters_of(self, sensor: str, node: str, topic: str) -> tuple[Meter, Meter, int]:
        found = self._topics.get((sensor, node, topic))
        if found is None:
            found = self._topics[sensor, node, topic] = (
                self.meter(sensor, node, topic), self.meter("e2e-latency", node),
                _FIXED_BYTES + len(topic.encode()),
            )
        return found

    def punctuated(self, duration_ms: float) -> None:
        """Add a punctuation."""
        self.meter("thread-punctuate").record(duration_ms)
        if self.records("punctuate"):
            self.meter("punctuate").record(duration_ms)

    def processed(self, counts: Mapping[str, int]) -> None:
        """Add the records that nodes have processed. Nodes without records are shown as well."""
        for node, count in counts.items():
            self._processed[node] = self._processed.get(node, 0) + count

    def take_readings(self) -> tuple[Reading, ...]:
        """Return what was observed since the last call."""
        processed, self._processed = self._processed, {}
        readings = [
            Reading("process", (node,), count, 0, 0, 0) for node, count in processed.items()
        ]
        for (sensor, tags), meter in self._meters.items():
            if meter.count:
                readings.append(
                    Reading(sensor, tags, meter.count, meter.sum, meter.min, meter.max)
                )
                meter.reset()
        return tuple(readings)


def measure_rows(rows: PartitionColumns, first: int, last: int, now: int) -> Measured:
    """Measure the records `first` to `last` - 1 of a partition."""
    if core is not None:
        return Measured(*core.measure_columns(
            rows.keys, rows.values, rows.timestamps, rows.headers, (first, last), now
        ))
    headers: Iterable[Any] = () if rows.headers is None else rows.headers[first:last]
    return _measure(
        (*rows.keys[first:last], *rows.values[first:last]), rows.timestamps[first:last], headers,
        now,
    )


def measure_outputs(
    outputs: list[tuple[Any, ...]], first: int, now: int
) -> Mapping[str, Measured]:
    """Measure the outputs of each topic, from index `first` on."""
    if core is not None:
        return {
            topic: Measured(*found)
            for topic, found in core.measure_outputs(outputs, first, now).items()
        }
    by_topic: dict[str, list[tuple[Any, ...]]] = {}
    for row in outputs[first:]:
        by_topic.setdefault(row[0], []).append(row)
    return {
        topic: _measure(
            [part for row in rows for part in row[2:4]], [row[4] for row in rows],
            [row[5] for row in rows], now,
        )
        for topic, rows in by_topic.items()
    }


def _measure(
    parts: Iterable[bytes | None], timestamps: Iterable[int], headers: Iterable[Headers], now: int
) -> Measured:
    ages = [now - time for time in timestamps]
    size = sum(len(part) for part in parts if part is not None) + sum(
        len(name.encode()) + len(value or b"")
        for each in headers if isinstance(each, tuple) for name, value in each
    )
    return Measured(len(ages), size, float(sum(ages)), min(ages), max(ages))
