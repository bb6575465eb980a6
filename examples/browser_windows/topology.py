"""Counts the actions of browsers in windows of 5 seconds that start every 2 seconds.

    browser-logs ─ by browser ─ count in windows ─ browser-windows

Windows follow the timestamps of the records. `build(WallclockTimestampExtractor())` ignores them,
and counts by the time of processing.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from captcha.topology import LogEvent

from penstock import StreamsBuilder, TimeWindows, Topology, Windowed
from penstock.timestamps import TimestampExtractor

LOGS = "browser-logs"
OUTPUT = "browser-windows"
#: Events come from several partitions, in any order: a window accepts them for a day.
WINDOWS = TimeWindows.of(timedelta(seconds=5), grace=timedelta(days=1)).advance_by(
    timedelta(seconds=2)
)


def line(windowed: Windowed[str], count: int) -> tuple[str, str]:
    """The browser and the start of a window, and the line of the log for it."""
    start, end = (
        f"{datetime.fromtimestamp(time / 1000, UTC):%H:%M:%S}"
        for time in (windowed.window.start, windowed.window.end)
    )
    return f"{windowed.key}@{start}", f"Window [{start}-{end}] Browser:{windowed.key} count={count}"


def build(timestamp: TimestampExtractor | None = None) -> Topology:
    """The whole application."""
    builder = StreamsBuilder()
    events = builder.stream(LOGS, key=str, value=LogEvent, timestamp=timestamp)
    counts = (
        events.group_by(lambda event: event.browser_hash, name="browsers")
        .windowed_by(WINDOWS)
        .count(store="counterStore")
    )
    counts.to_stream().map(line).to(OUTPUT)
    return builder.build()
