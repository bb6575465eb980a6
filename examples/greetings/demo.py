"""Runs the greetings example."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from showcase import Input, Showcase, Types, main

from greetings.topology import (
    GREETINGS,
    GREETINGS_SPANISH,
    JSON_GREETINGS,
    JSON_OUTPUT,
    OUTPUT,
    Greeting,
    build,
)

MORNING = datetime(2022, 12, 4, 5, 26, 31)


def inputs() -> Iterator[Input]:
    """Greetings in two languages, and as JSON."""
    texts = [
        (GREETINGS, "Good Morning"), (GREETINGS, "Hi"), (GREETINGS_SPANISH, "¡Buenos dias!"),
        (GREETINGS, "Good Evening"), (GREETINGS_SPANISH, "Hola"), (GREETINGS, "Good Night"),
    ]
    for number, (topic, text) in enumerate(texts):
        time = int((MORNING + timedelta(seconds=number)).timestamp() * 1000)
        yield Input(topic, None, text, time)
        yield Input(JSON_GREETINGS, None, Greeting(text, MORNING), time)


GREETINGS_DEMO = Showcase(
    "greetings", "greetings: filter and map, with text and with JSON", build, inputs,
    {OUTPUT: Types(str, str), JSON_OUTPUT: Types(str, Greeting)},
)

if __name__ == "__main__":
    sys.exit(main(GREETINGS_DEMO))
