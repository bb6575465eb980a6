"""Runs the browser windows example."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from captcha.topology import LogEvent
from showcase import START_MS, Input, Showcase, Types, main

from browser_windows.topology import LOGS, OUTPUT, build

#: 14:11:56 UTC.
BUSY_MS = START_MS + (5 * 3600 + 11 * 60 + 56) * 1000


def inputs() -> Iterator[Input]:
    """Four browsers, one of them busier than the others."""
    for number in (0, 4, 2, 3, 3):
        yield Input(LOGS, None, LogEvent("web.Action", f"XXXYXXXY{number}"), BUSY_MS)
    for number in range(6):
        yield Input(LOGS, None, LogEvent("web.Action", "XXXYXXXY3"), BUSY_MS + 2000 + number * 100)


BROWSER_WINDOWS_DEMO = Showcase(
    "browser-windows", "browser windows: actions in 5 seconds, every 2 seconds", build, inputs,
    {OUTPUT: Types(str, str, latest=True)},
)

if __name__ == "__main__":
    sys.exit(main(BROWSER_WINDOWS_DEMO))
