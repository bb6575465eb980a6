"""Runs the browser windows example."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from captcha.topology import LOGS, LogEvent
from showcase import Input, Showcase, Types, main

from browser_windows.topology import OUTPUT, build

#: 14:11:56 UTC.
START = 51_116_000


def inputs() -> Iterator[Input]:
    """Four browsers, one of them busier than the others."""
    for number in (0, 4, 2, 3, 3):
        yield Input(LOGS, None, LogEvent("web.Action", f"XXXYXXXY{number}"), START)
    for number in range(6):
        yield Input(LOGS, None, LogEvent("web.Action", "XXXYXXXY3"), START + 2000 + number * 100)


BROWSER_WINDOWS_DEMO = Showcase(
    "browser-windows", "browser windows: actions in 5 seconds, every 2 seconds", build, inputs,
    {OUTPUT: Types(str, str)},
)

if __name__ == "__main__":
    sys.exit(main(BROWSER_WINDOWS_DEMO))
