from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.windows import (
    MAX_TIME_MS,
    EmitStrategy,
    JoinWindows,
    SessionWindow,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
    Window,
    Windowed,
    Windows,
    instant_ms,
    to_ms,
)


def test_durations_are_whole_milliseconds() -> None:
    assert to_ms(timedelta(seconds=1, microseconds=1000)) == 1001
    with pytest.raises(ValueError, match="not a whole number of milliseconds"):
        to_ms(timedelta(seconds=1, microseconds=1999))
    assert to_ms(17) == 17
    for wrong in (1.5, "1", True, None):
        with pytest.raises(TypeError, match=type(wrong).__name__):
            to_ms(wrong)  # type: ignore[arg-type]


def test_datetime_without_a_time_zone_raises() -> None:
    assert instant_ms(datetime(1970, 1, 2, tzinfo=UTC)) == 86_400_000
    assert instant_ms(5) == 5
    with pytest.raises(ValueError, match="has no time zone"):
        instant_ms(datetime(1970, 1, 2))
    with pytest.raises(TypeError, match="float"):
        instant_ms(1.0)  # type: ignore[arg-type]


def test_windowed_key_is_hashable_and_has_kafkas_text() -> None:
    key = Windowed("a", Window(0, 5))
    assert str(key) == f"{key}" == "[a@0/5]"
    assert {key: 1}[Windowed("a", Window(0, 5))] == 1


def test_adjacent_sessions_overlap_and_time_windows_do_not() -> None:
    assert not Window(0, 5).overlap(Window(5, 9))
    assert Window(0, 6).overlap(Window(5, 9))
    assert SessionWindow(0, 5).overlap(SessionWindow(5, 5))
    assert not SessionWindow(0, 5).overlap(SessionWindow(6, 9))


def test_start_and_end_as_datetime() -> None:
    assert Window(0, 1000).end_time == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert Window(0, MAX_TIME_MS).end_time.year == 9999


def test_tumbling_windows() -> None:
    windows = TimeWindows.of(timedelta(milliseconds=10))
    assert windows.windows_for(0) == {0: (0, 10)}
    assert windows.windows_for(9) == {0: (0, 10)}
    assert windows.windows_for(10) == {10: (10, 20)}


def test_hopping_windows_do_not_start_before_the_epoch() -> None:
    windows = TimeWindows.of(10, advance=4, grace=3)
    assert list(windows.windows_for(5)) == [0, 4]
    assert list(windows.windows_for(20)) == [12, 16, 20]
    assert (windows.size, windows.grace_period_ms) == (10, 3)
    assert TimeWindows.of(10).advance_by(timedelta(milliseconds=4)) == TimeWindows.of(10, 4)


@given(st.integers(0, 500), st.integers(1, 60), st.integers(1, 60))
def test_windows_for_returns_all_windows_of_a_time(ts: int, size: int, advance: int) -> None:
    advance = min(size, advance)
    expected = [start for start in range(0, 600, advance) if start <= ts < start + size]
    assert list(TimeWindows.of(size, advance).windows_for(ts)) == expected


@pytest.mark.parametrize(("size", "advance", "grace", "message"), [
    (0, None, 0, "larger than zero"),
    (-1, None, 0, "larger than zero"),
    (5, 0, 0, "advance"),
    (5, 6, 0, "advance"),
    (5, 5, -1, "grace"),
])
def test_invalid_time_windows_raise(
    size: int, advance: int | None, grace: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        TimeWindows.of(size, advance, grace)


def test_invalid_sliding_and_session_windows_raise() -> None:
    assert SlidingWindows.of(0).size == 0
    assert SessionWindows.of(0, grace=timedelta(seconds=1)).grace_period_ms == 1000
    with pytest.raises(ValueError, match="time difference"):
        SlidingWindows.of(-1)
    with pytest.raises(ValueError, match="grace"):
        SlidingWindows.of(1, grace=-1)
    with pytest.raises(ValueError, match="gap"):
        SessionWindows.of(-1)
    with pytest.raises(ValueError, match="grace"):
        SessionWindows.of(1, grace=-1)


def test_join_windows_can_be_one_sided() -> None:
    windows = JoinWindows.of(5, grace=2).after(-3)
    assert (windows.before_ms, windows.after_ms, windows.size) == (5, -3, 2)
    assert windows == JoinWindows.of(5, 2, after=-3)
    assert JoinWindows.of(5).before(7) == JoinWindows.of(5, before=timedelta(milliseconds=7))
    with pytest.raises(NotImplementedError):
        windows.windows_for(0)


def test_invalid_join_windows_raise() -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        JoinWindows.of(-1)
    with pytest.raises(ValueError, match="must not be negative"):
        JoinWindows.of(5).before(-6)
    with pytest.raises(ValueError, match="grace"):
        JoinWindows.of(5, grace=-1)


def test_unlimited_window_starts_at_a_time() -> None:
    windows = UnlimitedWindows.of().start_on(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
    assert windows.windows_for(999) == {}
    assert windows.windows_for(1000) == {1000: (1000, MAX_TIME_MS)}
    with pytest.raises(ValueError, match="negative"):
        UnlimitedWindows.of().start_on(-1)


def test_custom_windows() -> None:
    class Daily(Windows):
        def windows_for(self, timestamp: int) -> dict[int, Window]:
            return {0: Window(0, 1)}

        @property
        def size(self) -> int:
            return 1

        @property
        def grace_period_ms(self) -> int:
            return 0

    assert Daily().windows_for(0) == {0: (0, 1)}
    with pytest.raises(TypeError):
        Windows()  # type: ignore[abstract]


def test_windows_and_strategies_can_be_pickled() -> None:
    for made in (TimeWindows.of(5), JoinWindows.of(1), UnlimitedWindows.of(),
                 EmitStrategy.on_window_close(), Windowed("a", SessionWindow(1, 1))):
        again = pickle.loads(pickle.dumps(made))
        assert again == made
        assert type(again) is type(made)
    assert EmitStrategy.on_window_update() is EmitStrategy.ON_WINDOW_UPDATE


@pytest.mark.parametrize(
    "create",
    [
        lambda grace: TimeWindows.of(5, grace=grace),
        lambda grace: SlidingWindows.of(5, grace),
        lambda grace: SessionWindows.of(5, grace),
        lambda grace: JoinWindows.of(5, grace),
    ],
)
def test_grace_period_beyond_the_largest_time_is_refused(create: Callable[[int], object]) -> None:
    create(MAX_TIME_MS - 10)
    with pytest.raises(ValueError, match="The grace period is too long"):
        create(MAX_TIME_MS)
