"""Runs the captcha example."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from showcase import START_MS, Input, Showcase, Types, main

from captcha.topology import LOGS, REQUESTS, VERIFIED, LogEvent, build

BROWSERS = ("XXXYXXXY0", "XXXYXXXY1", "XXXYXXXY2")


def inputs() -> Iterator[Input]:
    """The first browser is slow, the second one is fast, the third one solves a captcha."""
    for second in range(9):
        time = START_MS + second * 1000
        for number, browser in enumerate(BROWSERS):
            if number or second % 3 == 0:
                yield Input(LOGS, None, LogEvent("web.Action", browser), time + number)
        if second == 3:
            yield Input(LOGS, None, LogEvent(f"web.{VERIFIED}", BROWSERS[2]), time + 500)


CAPTCHA_DEMO = Showcase(
    "captcha", "captcha: browsers with five actions or more are asked, unless they are verified",
    build, inputs, {REQUESTS: Types(str, int)},
    # Every commit asks the browsers that are due. One batch asks each of them once.
    settings={"execution": "batch"},
)

if __name__ == "__main__":
    sys.exit(main(CAPTCHA_DEMO))
