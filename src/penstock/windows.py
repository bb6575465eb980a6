"""Windows: the stretches of time that records are grouped and joined by.

The classes here only describe; what a window does to a record is in the processors. Durations are
given as `timedelta` (or int milliseconds), kept as int milliseconds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K")

#: The end of a window that never ends, and the largest time there is.
MAX_TIME_MS = 2**63 - 1

NO_GRACE = timedelta(0)
_MILLISECOND = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_ms(duration: timedelta | int, what: str = "duration") -> int:
    """A duration in milliseconds."""
    if isinstance(duration, timedelta):
        milliseconds, rest = divmod(duration, _MILLISECOND)
        if rest:
            raise ValueError(
                f"The {what} {duration} has a part of a millisecond. "
                "Times are kept in whole milliseconds: round it."
            )
        return milliseconds
    if isinstance(duration, int) and not isinstance(duration, bool):
        return duration
    raise TypeError(
        f"The {what} must be a timedelta or int milliseconds, not "
        f"{type(duration).__name__}: {duration!r}."
    )


def instant_ms(instant: datetime | int, what: str = "time") -> int:
    """A point in time in epoch milliseconds."""
    if isinstance(instant, datetime):
        if instant.tzinfo is None:
            raise ValueError(
                f"The {what} {instant.isoformat()} has no time zone. "
                "Give one, for example tzinfo=datetime.UTC."
            )
        return (instant - _EPOCH) // _MILLISECOND
    if isinstance(instant, int) and not isinstance(instant, bool):
        return instant
    raise TypeError(
        f"The {what} must be a datetime or int milliseconds, not "
        f"{type(instant).__name__}: {instant!r}."
    )


class Window(NamedTuple):
    """A stretch of time in epoch milliseconds.

    Whether `end` belongs to it depends on the kind: time windows end before it, sliding and
    session windows with it. Made for every record, so nothing is checked here.
    """

    start: int
    end: int

    @property
    def start_time(self) -> datetime:
        """`start` in UTC."""
        return _EPOCH + timedelta(milliseconds=self.start)

    @property
    def end_time(self) -> datetime:
        """`end` in UTC; the last day of the calendar if it lies beyond."""
        try:
            return _EPOCH + timedelta(milliseconds=self.end)
        except OverflowError:
            return datetime.max.replace(tzinfo=UTC)

    def overlap(self, other: Window) -> bool:
        """Whether some point in time is in both; the ends do not count."""
        return self.start < other.end and other.start < self.end


class SessionWindow(Window):
    """A window that includes its end, and may be a single point in time."""

    __slots__ = ()

    def overlap(self, other: Window) -> bool:
        """Whether some point in time is in both; the ends count."""
        return self.start <= other.end and other.start <= self.end


class Windowed(NamedTuple, Generic[K]):
    """A key in a window: the key of every windowed result."""

    key: K
    window: Window

    def __str__(self) -> str:
        return f"[{self.key}@{self.window.start}/{self.window.end}]"


class Windows(ABC):
    """Fixed windows, as a function of a record's time. Users may write their own."""

    __slots__ = ()

    @abstractmethod
    def windows_for(self, timestamp: int) -> dict[int, Window]:
        """The windows a record of that time falls into, by their start, earliest first."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The length of a window in milliseconds."""

    @property
    @abstractmethod
    def grace_period_ms(self) -> int:
        """How long after its end a window still takes records."""


@dataclass(frozen=True, slots=True)
class TimeWindows(Windows):
    """Windows of one size that begin every `advance_ms`, from the epoch on: [start, end)."""

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
        _check_grace(self.grace_ms)

    @classmethod
    def of(
        cls,
        size: timedelta | int,
        advance: timedelta | int | None = None,
        grace: timedelta | int = NO_GRACE,
    ) -> TimeWindows:
        """Tumbling windows; hopping ones if they advance by less than their size."""
        size_ms = to_ms(size, "size")
        advance_ms = size_ms if advance is None else to_ms(advance, "advance")
        return cls(size_ms, advance_ms, to_ms(grace, "grace"))

    def advance_by(self, advance: timedelta | int) -> TimeWindows:
        """These windows, beginning every `advance`."""
        return replace(self, advance_ms=to_ms(advance, "advance"))

    def windows_for(self, timestamp: int) -> dict[int, Window]:
        size = self.size_ms
        advance = self.advance_ms
        if advance == size and timestamp >= 0:
            start = timestamp - timestamp % size
            return {start: Window(start, start + size)}
        first = timestamp - size + advance
        # Windows never begin before the epoch.
        start = first // advance * advance if first > 0 else 0
        return {s: Window(s, s + size) for s in range(start, timestamp + 1, advance)}

    @property
    def size(self) -> int:
        return self.size_ms

    @property
    def grace_period_ms(self) -> int:
        return self.grace_ms


@dataclass(frozen=True, slots=True)
class SlidingWindows:
    """Windows that hold the records at most `time_difference_ms` apart: [end - diff, end].

    A difference of 0 can be described, as in Kafka, but no record can be put into such a window.
    """

    time_difference_ms: int
    grace_ms: int = 0

    def __post_init__(self) -> None:
        if self.time_difference_ms < 0:
            raise ValueError(
                f"Window time difference must not be negative: {self.time_difference_ms} ms."
            )
        _check_grace(self.grace_ms)

    @classmethod
    def of(
        cls, time_difference: timedelta | int, grace: timedelta | int = NO_GRACE
    ) -> SlidingWindows:
        """Windows of records at most `time_difference` apart."""
        return cls(to_ms(time_difference, "time_difference"), to_ms(grace, "grace"))

    @property
    def size(self) -> int:
        """The time difference."""
        return self.time_difference_ms

    @property
    def grace_period_ms(self) -> int:
        """How long after its end a window still takes records."""
        return self.grace_ms


@dataclass(frozen=True, slots=True)
class SessionWindows:
    """Windows of records of one key with no gap between them longer than `gap_ms`."""

    gap_ms: int
    grace_ms: int = 0

    def __post_init__(self) -> None:
        if self.gap_ms < 0:
            raise ValueError(f"The inactivity gap must not be negative: {self.gap_ms} ms.")
        _check_grace(self.grace_ms)

    @classmethod
    def of(
        cls, inactivity_gap: timedelta | int, grace: timedelta | int = NO_GRACE
    ) -> SessionWindows:
        """Sessions that end after a gap without records."""
        return cls(to_ms(inactivity_gap, "inactivity_gap"), to_ms(grace, "grace"))

    @property
    def inactivity_gap_ms(self) -> int:
        """The gap, by its long name."""
        return self.gap_ms

    @property
    def grace_period_ms(self) -> int:
        """How long after its end, and the gap, a session still takes records."""
        return self.grace_ms


@dataclass(frozen=True, slots=True)
class JoinWindows(Windows):
    """How far apart two records may be to be joined.

    A record joins those of the other stream whose time is in [ts - before, ts + after], both
    ends included. One of the two may be negative, their sum may not.
    """

    before_ms: int
    after_ms: int
    grace_ms: int = 0
    #: A left or outer join sends unmatched records at once instead of when their window closes,
    #: as Kafka's deprecated `JoinWindows.of` did.
    eager: bool = False

    def __post_init__(self) -> None:
        if self.before_ms + self.after_ms < 0:
            raise ValueError(
                "The window interval (before + after) must not be negative: "
                f"{self.before_ms} ms + {self.after_ms} ms."
            )
        _check_grace(self.grace_ms)

    @classmethod
    def of(
        cls,
        time_difference: timedelta | int,
        grace: timedelta | int = NO_GRACE,
        *,
        before: timedelta | int | None = None,
        after: timedelta | int | None = None,
    ) -> JoinWindows:
        """Records at most `time_difference` apart, either way, where not said otherwise."""
        difference_ms = to_ms(time_difference, "time_difference")
        return cls(
            difference_ms if before is None else to_ms(before, "before"),
            difference_ms if after is None else to_ms(after, "after"),
            to_ms(grace, "grace"),
        )

    def before(self, time_difference: timedelta | int) -> JoinWindows:
        """The other record may be this much earlier."""
        return replace(self, before_ms=to_ms(time_difference, "time_difference"))

    def after(self, time_difference: timedelta | int) -> JoinWindows:
        """The other record may be this much later."""
        return replace(self, after_ms=to_ms(time_difference, "time_difference"))

    def windows_for(self, timestamp: int) -> dict[int, Window]:
        raise NotImplementedError("JoinWindows are relative to a record: there is no windows_for.")

    @property
    def size(self) -> int:
        return self.before_ms + self.after_ms

    @property
    def grace_period_ms(self) -> int:
        return self.grace_ms


@dataclass(frozen=True, slots=True)
class UnlimitedWindows(Windows):
    """One window, from `start_ms` on and without an end. Earlier records are in no window."""

    start_ms: int = 0

    def __post_init__(self) -> None:
        if self.start_ms < 0:
            raise ValueError(f"The window start must not be negative: {self.start_ms}.")

    @classmethod
    def of(cls) -> UnlimitedWindows:
        """The window of all time since the epoch."""
        return cls()

    def start_on(self, start: datetime | int) -> UnlimitedWindows:
        """The window that begins then."""
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
    """When a windowed aggregation sends its results downstream."""

    ON_WINDOW_UPDATE = "on_window_update"
    ON_WINDOW_CLOSE = "on_window_close"

    @staticmethod
    def on_window_update() -> EmitStrategy:
        """With every update (less what a cache holds back)."""
        return EmitStrategy.ON_WINDOW_UPDATE

    @staticmethod
    def on_window_close() -> EmitStrategy:
        """Once, when the window closes."""
        return EmitStrategy.ON_WINDOW_CLOSE


def _check_grace(grace_ms: int) -> None:
    if grace_ms < 0:
        raise ValueError(f"The grace period must not be negative: {grace_ms} ms.")
