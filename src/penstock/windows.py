"""Window definitions for aggregations and joins.

Durations are `timedelta` or int milliseconds, stored as int milliseconds. The processors implement
the windows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

from penstock.java_names import JavaNames

K = TypeVar("K")

#: The largest timestamp; the end of an unlimited window.
MAX_TIME_MS = 2**63 - 1

NO_GRACE = timedelta(0)
_MILLISECOND = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_ms(duration: timedelta | int, what: str = "duration") -> int:
    """Return a duration in milliseconds; raise if it is not a whole number."""
    if isinstance(duration, timedelta):
        milliseconds, rest = divmod(duration, _MILLISECOND)
        if rest:
            raise ValueError(
                f"The {what} {duration} is not a whole number of milliseconds. Round it."
            )
        return milliseconds
    if isinstance(duration, int) and not isinstance(duration, bool):
        return duration
    raise TypeError(
        f"The {what} must be a timedelta or int milliseconds, not "
        f"{type(duration).__name__}: {duration!r}."
    )


def instant_ms(instant: datetime | int, what: str = "time") -> int:
    """Return a point in time in epoch milliseconds."""
    if isinstance(instant, datetime):
        if instant.tzinfo is None:
            raise ValueError(
                f"The {what} {instant.isoformat()} has no time zone. "
                "Add one, for example tzinfo=datetime.UTC."
            )
        return (instant - _EPOCH) // _MILLISECOND
    if isinstance(instant, int) and not isinstance(instant, bool):
        return instant
    raise TypeError(
        f"The {what} must be a datetime or int milliseconds, not "
        f"{type(instant).__name__}: {instant!r}."
    )


class Window(NamedTuple):
    """A window from `start` to `end`, in epoch milliseconds.

    Time windows exclude `end`; sliding and session windows include it. Windows are created for
    each record, so the constructor checks nothing.

    Example:
        >>> Window(0, 10).overlap(Window(10, 20))
        False
    """

    start: int
    end: int

    @property
    def start_time(self) -> datetime:
        """`start` in UTC."""
        return _EPOCH + timedelta(milliseconds=self.start)

    @property
    def end_time(self) -> datetime:
        """`end` in UTC, at most `datetime.max`."""
        try:
            return _EPOCH + timedelta(milliseconds=self.end)
        except OverflowError:
            return datetime.max.replace(tzinfo=UTC)

    def overlap(self, other: Window) -> bool:
        """Return whether the windows overlap; `end` is excluded.

        Args:
            other: The other window.

        Kafka: Window#overlap
        """
        return self.start < other.end and other.start < self.end


class SessionWindow(Window):
    """A session: includes its end, and may have a length of zero."""

    __slots__ = ()

    def overlap(self, other: Window) -> bool:
        """Return whether the sessions overlap; `end` is included.

        Args:
            other: The other window.
        """
        return self.start <= other.end and other.start <= self.end


class Windowed(NamedTuple, Generic[K]):
    """A key and its window: the key type of windowed results.

    Example:
        >>> key = Windowed("ann", Window(0, 60_000))
        >>> key.key, key.window.end
        ('ann', 60000)
    """

    key: K
    window: Window

    def __str__(self) -> str:
        return f"[{self.key}@{self.window.start}/{self.window.end}]"


class Windows(JavaNames, ABC):
    """Base class of fixed windows. Subclass it for custom windows."""

    __slots__ = ()

    @abstractmethod
    def windows_for(self, timestamp: int) -> dict[int, Window]:
        """Return the windows of a timestamp by their start, earliest first.

        Args:
            timestamp: The timestamp of a record.

        Kafka: Windows#windowsFor
        """

    @property
    @abstractmethod
    def size(self) -> int:
        """The size of a window in milliseconds."""

    @property
    @abstractmethod
    def grace_period_ms(self) -> int:
        """How long after its end a window accepts out-of-order records."""


@dataclass(frozen=True, slots=True)
class TimeWindows(Windows):
    """Tumbling or hopping windows: [start, end), aligned to the epoch.

    A window of `size_ms` starts every `advance_ms`.

    Example:
        >>> from datetime import timedelta
        >>> tumbling = TimeWindows.of(timedelta(minutes=5), grace=timedelta(minutes=1))
        >>> hopping = TimeWindows.of(60_000).advance_by(30_000)
        >>> list(hopping.windows_for(70_000).values())
        [Window(start=30000, end=90000), Window(start=60000, end=120000)]
    """

    size_ms: int
    advance_ms: int
    grace_ms: int = 0

    def __post_init__(self) -> None:
        if self.size_ms <= 0:
            raise ValueError(f"Window size must be larger than zero, not {self.size_ms} ms.")
        if self.advance_ms <= 0 or self.advance_ms > self.size_ms:
            raise ValueError(
                "Window advance must be more than zero and at most the window size, "
                f"{self.size_ms} ms, not {self.advance_ms} ms."
            )
        _check_grace(self.grace_ms, self.size_ms)

    @classmethod
    def of(
        cls,
        size: timedelta | int,
        advance: timedelta | int | None = None,
        grace: timedelta | int = NO_GRACE,
    ) -> TimeWindows:
        """Return tumbling windows, or hopping windows if `advance` is less than `size`.

        Kafka: `ofSizeAndGrace`, `ofSizeWithNoGrace`.

        Args:
            size: The size of a window.
            advance: The time between the starts of two windows; None for the size.
            grace: How long after the end of a window late records are accepted.
        """
        size_ms = to_ms(size, "size")
        advance_ms = size_ms if advance is None else to_ms(advance, "advance")
        return cls(size_ms, advance_ms, to_ms(grace, "grace"))

    def advance_by(self, advance: timedelta | int) -> TimeWindows:
        """Return a copy whose windows start every `advance`.

        Args:
            advance: The time between the starts of two windows.

        Kafka: TimeWindows#advanceBy
        """
        return replace(self, advance_ms=to_ms(advance, "advance"))

    def windows_for(self, timestamp: int) -> dict[int, Window]:
        size = self.size_ms
        advance = self.advance_ms
        last = timestamp - timestamp % advance
        if last > MAX_TIME_MS - size:
            raise ValueError(
                f"The window that starts at {last} ends after the largest timestamp, "
                f"{MAX_TIME_MS}. Check the timestamp of the record: {timestamp}."
            )
        first = timestamp - size + advance
        # Windows never start before the epoch.
        start = first // advance * advance if first > 0 else 0
        return {s: Window(s, s + size) for s in range(start, last + 1, advance)}

    @property
    def size(self) -> int:
        return self.size_ms

    @property
    def grace_period_ms(self) -> int:
        return self.grace_ms


@dataclass(frozen=True, slots=True)
class SlidingWindows(JavaNames):
    """Sliding windows: [end - time_difference_ms, end], for records close in time.

    A difference of 0 is allowed, as in Kafka, but processing a record with it fails.

    Example:
        >>> from datetime import timedelta
        >>> SlidingWindows.of(timedelta(seconds=10), grace=timedelta(seconds=1))
        SlidingWindows(time_difference_ms=10000, grace_ms=1000)
    """

    time_difference_ms: int
    grace_ms: int = 0

    def __post_init__(self) -> None:
        if self.time_difference_ms < 0:
            raise ValueError(
                f"Window time difference must not be negative: {self.time_difference_ms} ms."
            )
        _check_grace(self.grace_ms, self.time_difference_ms)

    @classmethod
    def of(
        cls, time_difference: timedelta | int, grace: timedelta | int = NO_GRACE
    ) -> SlidingWindows:
        """Return windows of records at most `time_difference` apart.

        Kafka: `ofTimeDifferenceAndGrace`, `ofTimeDifferenceWithNoGrace`.

        Args:
            time_difference: The largest difference of two timestamps.
            grace: How long after the end of a window late records are accepted.
        """
        return cls(to_ms(time_difference, "time_difference"), to_ms(grace, "grace"))

    @property
    def size(self) -> int:
        """The time difference in milliseconds."""
        return self.time_difference_ms

    @property
    def grace_period_ms(self) -> int:
        """How long after its end a window accepts out-of-order records."""
        return self.grace_ms


@dataclass(frozen=True, slots=True)
class SessionWindows(JavaNames):
    """Sessions: periods of activity of a key, separated by gaps longer than `gap_ms`.

    Example:
        >>> from datetime import timedelta
        >>> SessionWindows.of(timedelta(minutes=30))
        SessionWindows(gap_ms=1800000, grace_ms=0)
    """

    gap_ms: int
    grace_ms: int = 0

    def __post_init__(self) -> None:
        if self.gap_ms < 0:
            raise ValueError(f"The inactivity gap must not be negative: {self.gap_ms} ms.")
        _check_grace(self.grace_ms, self.gap_ms)

    @classmethod
    def of(
        cls, inactivity_gap: timedelta | int, grace: timedelta | int = NO_GRACE
    ) -> SessionWindows:
        """Return sessions that end after a gap without records.

        Kafka: `ofInactivityGapAndGrace`, `ofInactivityGapWithNoGrace`.

        Args:
            inactivity_gap: A session ends after this time without records.
            grace: How long after the end of a window late records are accepted.
        """
        return cls(to_ms(inactivity_gap, "inactivity_gap"), to_ms(grace, "grace"))

    @property
    def inactivity_gap_ms(self) -> int:
        """The gap in milliseconds; the same as `gap_ms`."""
        return self.gap_ms

    @property
    def grace_period_ms(self) -> int:
        """How long after its end and the gap a session accepts out-of-order records."""
        return self.grace_ms


@dataclass(frozen=True, slots=True)
class JoinWindows(Windows):
    """The maximum time difference of joined records.

    A record joins the records of the other stream with timestamps in [timestamp - before,
    timestamp + after]. One of the two may be negative, but not their sum.

    Example:
        >>> windows = JoinWindows.of(5_000).before(0)
        >>> windows.before_ms, windows.after_ms
        (0, 5000)
    """

    before_ms: int
    after_ms: int
    grace_ms: int = 0
    #: A left or outer join emits unmatched records at once, not when their window closes. This is
    #: the behaviour of Kafka's deprecated `JoinWindows.of`.
    eager: bool = False

    def __post_init__(self) -> None:
        if self.before_ms + self.after_ms < 0:
            raise ValueError(
                "The window interval (before + after) must not be negative: "
                f"{self.before_ms} ms + {self.after_ms} ms."
            )
        _check_grace(self.grace_ms, self.before_ms + self.after_ms)

    @classmethod
    def of(
        cls,
        time_difference: timedelta | int,
        grace: timedelta | int = NO_GRACE,
        *,
        before: timedelta | int | None = None,
        after: timedelta | int | None = None,
    ) -> JoinWindows:
        """Return windows for records at most `time_difference` apart, before or after.

        `before=` and `after=` override the difference in one direction. Kafka:
        `ofTimeDifferenceAndGrace`, `ofTimeDifferenceWithNoGrace`.

        Args:
            time_difference: The largest difference of two timestamps.
            grace: How long after the end of a window late records are accepted.
            before: How much earlier the other record may be, instead of `time_difference`.
            after: How much later the other record may be, instead of `time_difference`.
        """
        difference_ms = to_ms(time_difference, "time_difference")
        return cls(
            difference_ms if before is None else to_ms(before, "before"),
            difference_ms if after is None else to_ms(after, "after"),
            to_ms(grace, "grace"),
        )

    def before(self, time_difference: timedelta | int) -> JoinWindows:
        """Return a copy in which the other record may be this much earlier.

        Args:
            time_difference: The largest difference of two timestamps.

        Kafka: JoinWindows#before
        """
        return replace(self, before_ms=to_ms(time_difference, "time_difference"))

    def after(self, time_difference: timedelta | int) -> JoinWindows:
        """Return a copy in which the other record may be this much later.

        Args:
            time_difference: The largest difference of two timestamps.

        Kafka: JoinWindows#after
        """
        return replace(self, after_ms=to_ms(time_difference, "time_difference"))

    def windows_for(self, timestamp: int) -> dict[int, Window]:
        raise NotImplementedError("JoinWindows are relative to a record and have no windows_for.")

    @property
    def size(self) -> int:
        return self.before_ms + self.after_ms

    @property
    def grace_period_ms(self) -> int:
        return self.grace_ms


@dataclass(frozen=True, slots=True)
class UnlimitedWindows(Windows):
    """A single window without an end, starting at `start_ms`. Earlier records are dropped.

    Example:
        >>> UnlimitedWindows.of().start_on(1_000).windows_for(999)
        {}
    """

    start_ms: int = 0

    def __post_init__(self) -> None:
        if self.start_ms < 0:
            raise ValueError(f"The window start must not be negative: {self.start_ms}.")

    @classmethod
    def of(cls) -> UnlimitedWindows:
        """Return the window that starts at the epoch.

        Kafka: UnlimitedWindows#of
        """
        return cls()

    def start_on(self, start: datetime | int) -> UnlimitedWindows:
        """Return the window that starts at this time.

        Args:
            start: The start of the window.

        Kafka: UnlimitedWindows#startOn
        """
        return UnlimitedWindows(instant_ms(start, "start"))

    def windows_for(self, timestamp: int) -> dict[int, Window]:
        start = self.start_ms
        return {start: Window(start, MAX_TIME_MS)} if timestamp >= start else {}

    @property
    def size(self) -> int:
        return MAX_TIME_MS

    @property
    def grace_period_ms(self) -> int:
        return 0


class EmitStrategy(Enum):
    """When a windowed aggregation emits its results.

    Example:
        >>> from penstock import StreamsBuilder
        >>> words = StreamsBuilder().stream("words", key=str, value=str).group_by_key()
        >>> windows = words.windowed_by(TimeWindows.of(60_000))
        >>> final = windows.emit_strategy(EmitStrategy.on_window_close()).count()
    """

    ON_WINDOW_UPDATE = "on_window_update"
    ON_WINDOW_CLOSE = "on_window_close"

    @staticmethod
    def on_window_update() -> EmitStrategy:
        """Emit each update; a cache merges updates until the commit.

        Returns:
            The strategy, for `emit_strategy`.

        Kafka: EmitStrategy#onWindowUpdate
        """
        return EmitStrategy.ON_WINDOW_UPDATE

    @staticmethod
    def on_window_close() -> EmitStrategy:
        """Emit one final result when the window closes.

        Returns:
            The strategy, for `emit_strategy`.

        Kafka: EmitStrategy#onWindowClose
        """
        return EmitStrategy.ON_WINDOW_CLOSE


def _check_grace(grace_ms: int, reach_ms: int) -> None:
    if grace_ms < 0:
        raise ValueError(f"The grace period must not be negative: {grace_ms} ms.")
    if grace_ms + reach_ms > MAX_TIME_MS:
        raise ValueError(
            f"The grace period is too long: {grace_ms} ms. Rows are kept for {reach_ms} ms more, "
            f"and the largest time is {MAX_TIME_MS} ms. Use a shorter one, such as "
            "timedelta(days=1)."
        )
