"""The metrics that tasks collect, with Kafka's names, groups, tags and recording levels.

A task adds up what it observes in one `Reading` for each sensor and each combination of tags, and
returns the readings with every commit. `ReadingHistory` merges them and computes the metrics.
`docs/metrics.md` is the reference of all metrics; a test compares it with this module.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from penstock.metrics import MetricName, RecordingLevel

CLIENT = "stream-metrics"
THREAD = "stream-thread-metrics"
TASK = "stream-task-metrics"
NODE = "stream-processor-node-metrics"
TOPIC = "stream-topic-metrics"
STATE = "stream-state-metrics"
CACHE = "stream-record-cache-metrics"
#: Kafka's metrics of a producer.
PRODUCER = "producer-metrics"
#: penstock's own: the results of joins. Kafka has no such metrics.
JOIN = "stream-join-metrics"

#: The names of the tags after `thread-id`.
TASK_TAGS = ("task-id",)
NODE_TAGS = (*TASK_TAGS, "processor-node-id")
TOPIC_TAGS = (*NODE_TAGS, "topic")
CACHE_TAGS = (*TASK_TAGS, "record-cache-id")
#: The name of the last tag depends on the store, such as `lmdb-window-state-id`. The tags of a
#: reading are this name and the name of the store.
STATE_TAGS = (*TASK_TAGS, "*-state-id")

LEVELS: tuple[RecordingLevel, ...] = ("INFO", "DEBUG", "TRACE")

Tags = tuple[tuple[str, str], ...]


class Statistic(Enum):
    """How a metric summarizes the observed values.

    RATE is the number of values per second, SUM_RATE their sum per second. These, AVG, MIN and MAX
    cover the last `metrics.num.samples` times `metrics.sample.window.ms`. So do SHARE, the share of
    a task in the sum of all tasks, and RATIO, the sum of milliseconds as a share of the time. COUNT
    and SUM cover everything since the start of the instance. LAST is the last value.
    """

    COUNT = auto()
    SUM = auto()
    RATE = auto()
    SUM_RATE = auto()
    AVG = auto()
    MIN = auto()
    MAX = auto()
    LAST = auto()
    SHARE = auto()
    RATIO = auto()


@dataclass(frozen=True, slots=True)
class SensorType:
    """A kind of observation of a task, and the metrics that show it."""

    group: str
    tags: tuple[str, ...]
    #: Recorded if `metrics.recording.level` is this level or a finer one.
    level: RecordingLevel
    metrics: tuple[tuple[str, Statistic], ...]


class Reading(NamedTuple):
    """The values that a task has observed since the last commit."""

    #: The key of the sensor in `SENSORS`.
    sensor: str
    #: The values of the tags after `task-id`.
    tags: tuple[str, ...]
    number: int
    sum: float
    min: float
    max: float


def _rate_total(name: str) -> tuple[tuple[str, Statistic], ...]:
    return (f"{name}-rate", Statistic.RATE), (f"{name}-total", Statistic.COUNT)


def _avg_max(name: str) -> tuple[tuple[str, Statistic], ...]:
    return (f"{name}-avg", Statistic.AVG), (f"{name}-max", Statistic.MAX)


def _avg_min_max(name: str) -> tuple[tuple[str, Statistic], ...]:
    return (*_avg_max(name), (f"{name}-min", Statistic.MIN))


_PUNCTUATE = (*_rate_total("punctuate"), *_avg_max("punctuate-latency"))
_CONSUMED = (
    ("records-consumed-total", Statistic.COUNT), ("bytes-consumed-total", Statistic.SUM),
)
_PRODUCED = (
    ("records-produced-total", Statistic.COUNT), ("bytes-produced-total", Statistic.SUM),
)
_RESTORE = ("restore-rate", Statistic.SUM_RATE), ("restore-total", Statistic.SUM)

#: The operations of stores that are timed, in nanoseconds.
STORE_OPERATIONS = (
    "put", "put-if-absent", "put-all", "get", "fetch", "all", "range", "prefix-scan", "delete",
    "remove", "flush",
)

SENSORS: dict[str, SensorType] = {
    # A value is the size of a record in bytes.
    "consumed": SensorType(TOPIC, TOPIC_TAGS, "INFO", _CONSUMED),
    "produced": SensorType(TOPIC, TOPIC_TAGS, "INFO", _PRODUCED),
    "e2e-latency": SensorType(NODE, NODE_TAGS, "INFO", _avg_min_max("record-e2e-latency")),
    "thread-punctuate": SensorType(THREAD, (), "INFO", _PUNCTUATE),
    "process": SensorType(NODE, NODE_TAGS, "INFO", _rate_total("process")),
    "process-latency": SensorType(TASK, TASK_TAGS, "DEBUG", _avg_max("process-latency")),
    # A value is the time of a node alone, without its children, in milliseconds.
    "node-latency": SensorType(NODE, NODE_TAGS, "DEBUG", (
        *_avg_max("process-latency"), ("process-ratio", Statistic.RATIO),
    )),
    # The same of a punctuator of a node.
    "node-punctuate": SensorType(
        NODE, NODE_TAGS, "DEBUG", (("punctuate-ratio", Statistic.RATIO),)
    ),
    "final-emit-latency": SensorType(
        NODE, NODE_TAGS, "DEBUG", _avg_max("window-aggregate-final-emit-latency")
    ),
    # A value is the duration of processing in milliseconds.
    "active-process": SensorType(
        TASK, TASK_TAGS, "INFO", (("active-process-ratio", Statistic.SHARE),)
    ),
    "punctuate": SensorType(TASK, TASK_TAGS, "DEBUG", _PUNCTUATE),
    "enforced": SensorType(TASK, TASK_TAGS, "DEBUG", _rate_total("enforced-processing")),
    "lateness": SensorType(TASK, TASK_TAGS, "DEBUG", _avg_max("record-lateness")),
    "buffered": SensorType(TASK, TASK_TAGS, "DEBUG", (("active-buffer-count", Statistic.LAST),)),
    "cache-size": SensorType(
        TASK, TASK_TAGS, "DEBUG", (("cache-size-bytes-total", Statistic.LAST),)
    ),
    # A value is the number of records of a restore.
    "restore": SensorType(TASK, TASK_TAGS, "DEBUG", _RESTORE),
    **{
        f"store-{operation}": SensorType(STATE, STATE_TAGS, "DEBUG", (
            (f"{operation}-rate", Statistic.RATE), *_avg_max(f"{operation}-latency"),
        ))
        for operation in STORE_OPERATIONS
    },
    # A value is the age of the record that causes a write.
    "store-e2e-latency": SensorType(
        STATE, STATE_TAGS, "TRACE", _avg_min_max("record-e2e-latency")
    ),
    "num-keys": SensorType(STATE, STATE_TAGS, "DEBUG", (("num-keys", Statistic.LAST),)),
    # Values are the number of open iterators, the time of the oldest one, and nanoseconds.
    "open-iterators": SensorType(
        STATE, STATE_TAGS, "DEBUG", (("num-open-iterators", Statistic.LAST),)
    ),
    "oldest-iterator": SensorType(
        STATE, STATE_TAGS, "DEBUG", (("oldest-iterator-open-since-ms", Statistic.LAST),)
    ),
    "iterator-duration": SensorType(STATE, STATE_TAGS, "DEBUG", _avg_max("iterator-duration")),
    "suppression-size": SensorType(
        STATE, STATE_TAGS, "DEBUG", _avg_max("suppression-buffer-size")
    ),
    "suppression-count": SensorType(
        STATE, STATE_TAGS, "DEBUG", _avg_max("suppression-buffer-count")
    ),
    "hit-ratio": SensorType(CACHE, CACHE_TAGS, "DEBUG", _avg_min_max("hit-ratio")),
}

#: The sensors with a metric that compares a task with all others.
_SHARED = frozenset(
    name for name, kind in SENSORS.items()
    if any(statistic is Statistic.SHARE for _, statistic in kind.metrics)
)


def includes(level: str, sensor: str) -> bool:
    """Return whether a value of `metrics.recording.level` includes a sensor."""
    levels: tuple[str, ...] = LEVELS
    return levels.index(SENSORS[sensor].level) <= levels.index(level)


class ReadingHistory:
    """The readings of all tasks of an instance. Totals count from its start."""

    def __init__(self, window_seconds: float, level: str, started: float) -> None:
        """`started`: the time of the start in seconds. Rates cover no time before it."""
        self._seconds = window_seconds
        self._included = {sensor for sensor in SENSORS if includes(level, sensor)}
        self._started = started
        self._totals: dict[tuple[str, str, tuple[str, ...]], _Totals] = {}

    def add(self, task: str, reading: Reading, now: float) -> None:
        """Add the reading of a task; `now` in seconds."""
        sensor, tags, count, total, low, high = reading
        if sensor not in self._included:
            return
        task = task if SENSORS[sensor].tags else ""
        totals = self._totals.get((sensor, task, tags))
        if totals is None:
            totals = self._totals[sensor, task, tags] = _Totals(self._started, self._seconds)
        totals.add(count, total, low, high, now)

    def values(self, now: float, thread_tags: Tags) -> Iterator[tuple[MetricName, float]]:
        """Yield the metrics of all readings."""
        sums: dict[str, float] = defaultdict(float)
        for (sensor, _, _), totals in self._totals.items():
            totals.expire(now)
            if sensor in _SHARED:
                sums[sensor] += totals.share()
        for key, totals in self._totals.items():
            if not totals.names:
                totals.names = tuple(_names(*key, thread_tags))
            for name, statistic, value in totals.values(now):
                if statistic is Statistic.SHARE:
                    yield name, value / (sums[key[0]] or float("nan"))
                else:
                    yield name, value


def _names(
    sensor: str, task: str, tags: tuple[str, ...], thread_tags: Tags
) -> Iterator[tuple[MetricName, Statistic]]:
    kind = SENSORS[sensor]
    all_tags = (*thread_tags, *_named_tags(kind, task, tags))
    for name, statistic in kind.metrics:
        yield MetricName(kind.group, name, all_tags), statistic


def _named_tags(kind: SensorType, task: str, tags: tuple[str, ...]) -> Tags:
    if kind.tags == STATE_TAGS:
        tag, store = tags
        return ("task-id", task), (tag, store)
    return tuple(zip(kind.tags, (task, *tags) if kind.tags else (), strict=True))


@dataclass(slots=True)
class _Values:
    """The values of some seconds."""

    #: The first second.
    second: int
    count: int = 0
    sum: float = 0.0
    min: float = float("inf")
    max: float = float("-inf")

    def add(self, count: int, total: float, low: float, high: float) -> None:
        self.count += count
        self.sum += total
        if low < self.min:
            self.min = low
        if high > self.max:
            self.max = high

    def include(self, other: _Values) -> None:
        self.add(other.count, other.sum, other.min, other.max)


class _Window:
    """The values of the last seconds. Their sum is known without a look at each second.

    Besides the current second there are two lists. An entry of `_early` has the values from its
    second up to the last one of the list, and the next second to expire is at the end. So an
    expired entry is removed, and nothing is subtracted: sums have no rounding errors of large
    values that are gone. `_late_sum` has the values of all seconds of `_late`.
    """

    def __init__(self) -> None:
        self.current = _Values(0)
        self._early: list[_Values] = []
        self._late: list[_Values] = []
        self._late_sum = _Values(0)

    def __len__(self) -> int:
        return len(self._early) + len(self._late) + (self.current.count > 0)

    def start(self, second: int) -> None:
        """Begin a new second."""
        if self.current.count:
            self._late.append(self.current)
            self._late_sum.include(self.current)
        self.current = _Values(second)

    def expire(self, first: int) -> None:
        """Remove the seconds before `first`."""
        while True:
            if not self._early:
                if not self._late or self._late[0].second >= first:
                    break
                self._move()
            if self._early[-1].second >= first:
                break
            self._early.pop()
        if self.current.second < first:
            self.current = _Values(first)

    def _move(self) -> None:
        """Make the late seconds early ones, when no early one is left."""
        for each in reversed(self._late):
            if self._early:
                each.include(self._early[-1])
            self._early.append(each)
        self._late.clear()
        self._late_sum = _Values(0)

    def whole(self) -> _Values:
        """Return the values of all seconds."""
        found = _Values(0)
        if self._early:
            found.include(self._early[-1])
        found.include(self._late_sum)
        found.include(self.current)
        return found


class _Totals:
    """The values of one sensor with the same tags, in the window second by second."""

    def __init__(self, started: float, seconds: float) -> None:
        self._started = started
        self._seconds = seconds
        self._count = 0
        self._sum = 0.0
        self._last = float("nan")
        self._recent = _Window()
        #: The metrics of the sensor. Set when they are read for the first time.
        self.names: tuple[tuple[MetricName, Statistic], ...] = ()

    def add(self, count: int, total: float, low: float, high: float, now: float) -> None:
        self._count += count
        self._sum += total
        self._last = high
        second, recent = int(now), self._recent
        if recent.current.second != second:
            self.expire(now)
            recent.start(second)
        recent.current.add(count, total, low, high)

    def expire(self, now: float) -> None:
        """Remove the seconds before the window."""
        self._recent.expire(int(now - self._seconds))

    def values(self, now: float) -> Iterator[tuple[MetricName, Statistic, float]]:
        """Yield the metrics of the sensor."""
        recent = self._recent.whole()
        for name, statistic in self.names:
            yield name, statistic, self._value(statistic, recent, now)

    def share(self) -> float:
        """Return the sum of the window, which `ReadingHistory` divides by that of all tasks."""
        return self._recent.whole().sum

    def _value(self, statistic: Statistic, recent: _Values, now: float) -> float:
        if statistic is Statistic.COUNT:
            return self._count
        if statistic is Statistic.SUM:
            return int(self._sum) if self._sum.is_integer() else self._sum
        if statistic is Statistic.LAST:
            return self._last
        if statistic is Statistic.SHARE:
            return recent.sum
        elapsed = max(min(self._seconds, now - self._started), 1e-3)
        if statistic is Statistic.RATE:
            return recent.count / elapsed
        if statistic is Statistic.SUM_RATE:
            return recent.sum / elapsed
        if statistic is Statistic.RATIO:
            return recent.sum / elapsed / 1000
        if not recent.count:
            return float("nan")
        if statistic is Statistic.MIN:
            return recent.min
        return recent.max if statistic is Statistic.MAX else recent.sum / recent.count
