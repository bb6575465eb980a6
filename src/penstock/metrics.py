"""Names of metrics, and sensors: metrics that processors define themselves (Y2).

A processor gets `StreamsMetrics` from `context.metrics()`, adds a sensor in `init` and calls
`sensor.record(value)`. A task returns a `SensorReading` of each sensor with every commit.
`SensorHistory` merges the readings of all commits and tasks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Literal, NamedTuple, TypeAlias

RecordingLevel: TypeAlias = Literal["INFO", "DEBUG", "TRACE"]
_LEVELS: tuple[RecordingLevel, ...] = ("INFO", "DEBUG", "TRACE")


class MetricName(NamedTuple):
    """The name of a metric.

    Kafka: MetricName
    """

    group: str
    name: str
    #: In the order of Kafka's documentation: thread-id, task-id, processor-node-id.
    tags: tuple[tuple[str, str], ...] = ()

    def tag(self, name: str) -> str | None:
        """Return the value of a tag, or None if it does not exist.

        Args:
            name: The name of the tag.
        """
        return dict(self.tags).get(name)

    def __str__(self) -> str:
        tags = ",".join(f"{name}={value}" for name, value in self.tags)
        return f"{self.group}:{self.name}" + (f"{{{tags}}}" if tags else "")


class Stat(Enum):
    """The statistic that a metric of a sensor shows.

    RATE is the number of recorded values per second. AVG, MAX, MIN and RATE cover the last
    `metrics.num.samples` times `metrics.sample.window.ms`. COUNT and SUM cover everything since the
    start of the instance, and VALUE is the last recorded value.
    """

    AVG = "avg"
    MAX = "max"
    MIN = "min"
    RATE = "rate"
    COUNT = "count"
    SUM = "sum"
    VALUE = "value"


class SensorReading(NamedTuple):
    """The values that a sensor of a task has recorded since the last commit."""

    name: str
    metrics: tuple[tuple[MetricName, str], ...]
    #: Whether the names lack the tag `thread-id`, which the instance adds.
    in_scope: bool = False
    is_removed: bool = False
    recorded: int = 0
    sum: float = 0.0
    max: float = 0.0
    min: float = 0.0
    last: float = 0.0


class Sensor:
    """Records values, and shows them in the metrics that were added to it.

    Created by `StreamsMetrics`.

    Kafka: Sensor
    """

    __slots__ = (
        "_count", "_in_scope", "_is_removed", "_last", "_max", "_metrics", "_min", "_parents",
        "_records", "_sum", "name",
    )

    def __init__(
        self, name: str, parents: tuple[Sensor, ...] = (), *, records: bool = True,
        in_scope: bool = False,
    ) -> None:
        self.name = name
        self._parents = parents
        self._records = records
        self._in_scope = in_scope
        self._is_removed = False
        self._metrics: dict[MetricName, Stat] = {}
        self._reset()

    def _reset(self) -> None:
        self._count, self._sum = 0, 0.0
        self._max, self._min, self._last = float("-inf"), float("inf"), 0.0

    @property
    def has_metrics(self) -> bool:
        """Whether a metric shows what the sensor records."""
        return bool(self._metrics)

    @property
    def should_record(self) -> bool:
        """False if `metrics.recording.level` excludes the sensor, or after its removal."""
        return self._records and not self._is_removed

    def add(self, metric: MetricName, stat: Stat) -> Sensor:
        """Add a metric.

        Args:
            metric: The name under which `Streams.metrics()` shows it.
            stat: The statistic of the recorded values.

        Returns:
            The sensor itself.
        """
        self._metrics[metric] = Stat(stat)
        return self

    def record(self, value: float = 1.0) -> None:
        """Record a value, in the parents of the sensor too.

        Args:
            value: The value; a sensor that counts events ignores it.
        """
        if self.should_record:
            self._count += 1
            self._sum += value
            self._max = max(self._max, value)
            self._min = min(self._min, value)
            self._last = value
            for parent in self._parents:
                parent.record(value)

    def remove(self) -> None:
        """Record nothing more. `StreamsMetrics.remove_sensor` calls this."""
        self._is_removed = True

    def take_reading(self) -> SensorReading:
        """Return what was recorded since the last call."""
        reading = SensorReading(
            self.name, tuple((name, stat.value) for name, stat in self._metrics.items()),
            self._in_scope, self._is_removed,
        )
        if self._count:
            reading = reading._replace(
                recorded=self._count, sum=self._sum, max=self._max, min=self._min, last=self._last
            )
            self._reset()
        return reading


class StreamsMetrics(Mapping[str, float]):
    """The metrics of a task: a mapping of its current counters, and the sensors of processors.

    Processors get it from `context.metrics()`. The metrics of sensors are in `Streams.metrics()`
    after the next commit.

    Example:
        >>> from penstock import Processor
        >>> class Counting(Processor):
        ...     def init(self, context):
        ...         self.bad = context.metrics().add_rate_total_sensor("orders", "all", "bad")
        ...     def process(self, record):
        ...         self.bad.record()

    Kafka: StreamsMetrics
    """

    def __init__(
        self, counters: Callable[[], Mapping[str, float]], level: str = "INFO"
    ) -> None:
        self._counters = counters
        self._level = _level_number(level)
        self._sensors: dict[str, Sensor] = {}

    def __getitem__(self, name: str) -> float:
        return self._counters()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._counters())

    def __len__(self) -> int:
        return len(self._counters())

    def __repr__(self) -> str:
        return f"<StreamsMetrics {dict(self)}, sensors {list(self._sensors)}>"

    def add_sensor(
        self, name: str, *parents: Sensor, level: RecordingLevel = "INFO"
    ) -> Sensor:
        """Return the sensor of that name, without metrics if it is new; see `Sensor.add`.

        Args:
            name: A name that is unique in the application.
            parents: Sensors that record the same values.
            level: The sensor records if `metrics.recording.level` is this level or a finer one.

        Kafka: StreamsMetrics#addSensor
        """
        return self._sensor(name, parents, level, in_scope=False)

    def add_rate_total_sensor(
        self, scope: str, entity: str, operation: str, *, level: RecordingLevel = "INFO",
        tags: Mapping[str, str] | None = None,
    ) -> Sensor:
        """Return a sensor that counts: metrics `<operation>-rate` and `<operation>-total`.

        Args:
            scope: The metrics are in the group `stream-<scope>-metrics`.
            entity: The value of the tag `<scope>-id`.
            operation: The prefix of the names.
            level: The sensor records if `metrics.recording.level` is this level or a finer one.
            tags: More tags.

        Kafka: StreamsMetrics#addRateTotalSensor
        """
        return self._scoped_sensor(
            scope, entity, operation, level, tags, {"rate": Stat.RATE, "total": Stat.COUNT}
        )

    def add_latency_rate_total_sensor(
        self, scope: str, entity: str, operation: str, *, level: RecordingLevel = "INFO",
        tags: Mapping[str, str] | None = None,
    ) -> Sensor:
        """Return a sensor of durations: also `<operation>-latency-avg` and `-latency-max`.

        Args:
            scope: The metrics are in the group `stream-<scope>-metrics`.
            entity: The value of the tag `<scope>-id`.
            operation: The prefix of the names.
            level: The sensor records if `metrics.recording.level` is this level or a finer one.
            tags: More tags.

        Kafka: StreamsMetrics#addLatencyRateTotalSensor
        """
        return self._scoped_sensor(
            scope, entity, operation, level, tags,
            {
                "latency-avg": Stat.AVG, "latency-max": Stat.MAX, "rate": Stat.RATE,
                "total": Stat.COUNT,
            },
        )

    def remove_sensor(self, sensor: Sensor) -> None:
        """Remove a sensor and its metrics; a later `add_` method can add it again.

        Args:
            sensor: The sensor; nothing happens if it was removed before.

        Kafka: StreamsMetrics#removeSensor
        """
        sensor.remove()

    def take_readings(self) -> tuple[SensorReading, ...]:
        """Return what all sensors recorded since the last call; called at a commit."""
        sensors = self._sensors
        readings = tuple(sensor.take_reading() for sensor in sensors.values())
        for reading in readings:
            if reading.is_removed:
                del sensors[reading.name]
        return readings

    def _scoped_sensor(
        self, scope: str, entity: str, operation: str, level: RecordingLevel,
        tags: Mapping[str, str] | None, stats: Mapping[str, Stat],
    ) -> Sensor:
        all_tags = ((f"{scope}-id", entity), *(tags or {}).items())
        name = ".".join((scope, entity, operation, *(f"{k}={v}" for k, v in all_tags[1:])))
        sensor = self._sensor(name, (), level, in_scope=True)
        group = f"stream-{scope}-metrics"
        for suffix, stat in stats.items():
            sensor.add(MetricName(group, f"{operation}-{suffix}", all_tags), stat)
        return sensor

    def _sensor(
        self, name: str, parents: tuple[Sensor, ...], level: str, *, in_scope: bool
    ) -> Sensor:
        records = _level_number(level) <= self._level
        found = self._sensors.get(name)
        if found is None or not found.should_record:
            found = Sensor(name, parents, records=records, in_scope=in_scope)
            self._sensors[name] = found
        return found


def _level_number(level: str) -> int:
    try:
        return _LEVELS.index(level.upper())
    except ValueError:
        raise ValueError(
            f"Unknown recording level '{level}'. Levels: {', '.join(_LEVELS)}."
        ) from None


def sample_window_seconds(settings: Mapping[str, object]) -> float:
    """Return the time that rates, averages and extremes cover."""
    samples = float(str(settings.get("metrics.num.samples", 2)))
    return samples * float(str(settings.get("metrics.sample.window.ms", 30_000))) / 1000


class SensorHistory:
    """The readings of all sensors of an instance. Totals count from its start."""

    def __init__(self, window_seconds: float) -> None:
        self._seconds = window_seconds
        self._sensors: dict[str, _SensorTotals] = {}

    def add(self, reading: SensorReading, now: float) -> None:
        """Add the reading of a task; `now` in seconds."""
        if reading.is_removed:
            self._sensors.pop(reading.name, None)
            return
        totals = self._sensors.setdefault(reading.name, _SensorTotals(now))
        totals.add(reading, now)
        # The metrics may never be read.
        totals.expire(now - self._seconds)

    def values(
        self, now: float, thread_tags: tuple[tuple[str, str], ...] = ()
    ) -> Iterator[tuple[MetricName, float]]:
        """Yield the metrics of all sensors; `thread_tags` come first in those with a scope."""
        for totals in self._sensors.values():
            totals.expire(now - self._seconds)
            for name, stat in totals.metrics:
                full = name._replace(tags=(*thread_tags, *name.tags)) if totals.in_scope else name
                yield full, totals.value(Stat(stat), now, self._seconds)


class _SensorTotals:
    """The readings of one sensor."""

    def __init__(self, now: float) -> None:
        self.metrics: tuple[tuple[MetricName, str], ...] = ()
        self.in_scope = False
        self._started = now
        self._count = 0
        self._sum = 0.0
        self._last = float("nan")
        #: (time, reading) of the window.
        self._recent: deque[tuple[float, SensorReading]] = deque()

    def add(self, reading: SensorReading, now: float) -> None:
        self.metrics, self.in_scope = reading.metrics, reading.in_scope
        if reading.recorded:
            self._count += reading.recorded
            self._sum += reading.sum
            self._last = reading.last
            self._recent.append((now, reading))

    def expire(self, before: float) -> None:
        while self._recent and self._recent[0][0] <= before:
            self._recent.popleft()

    def value(self, stat: Stat, now: float, seconds: float) -> float:
        readings = [reading for _, reading in self._recent]
        count = sum(reading.recorded for reading in readings)
        match stat:
            case Stat.COUNT:
                return self._count
            case Stat.SUM:
                return self._sum
            case Stat.VALUE:
                return self._last
            case Stat.RATE:
                return count / max(min(seconds, now - self._started), 1e-3)
            case Stat.AVG:
                total = sum(reading.sum for reading in readings)
                return total / count if count else float("nan")
            case Stat.MAX:
                return max((reading.max for reading in readings), default=float("nan"))
            case Stat.MIN:
                return min((reading.min for reading in readings), default=float("nan"))
