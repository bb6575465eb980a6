"""Runs the greetings example."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from showcase import Input, Showcase, Types, main

from greetings.topology import (
    GREETING,
    GREETINGS,
    GREETINGS_SPANISH,
    JSON_GREETINGS,
    JSON_UPPERCASE,
    LANGUAGES,
    LOUD,
    SHORT,
    UPPERCASE,
    WORDS,
    Greeting,
    build,
)

MORNING = datetime(2022, 12, 4, 5, 26, 31, 60293)
TEXTS = (
    (GREETINGS, "en", "Good Morning"), (GREETINGS, "en", "Hi"),
    (GREETINGS_SPANISH, "es", "¡Buenos dias!"), (GREETINGS_SPANISH, "es", "Hola"),
)


def inputs() -> Iterator[Input]:
    """Greetings in two languages, and as JSON."""
    start_ms = int(MORNING.replace(tzinfo=UTC).timestamp() * 1000)
    for number, (topic, language, text) in enumerate(TEXTS):
        time = start_ms + number * 1000
        yield Input(topic, language, text, time)
        yield Input(JSON_GREETINGS, language, GREETING.serialize(Greeting(text, MORNING)), time)


GREETINGS_DEMO = Showcase(
    "greetings", "greetings: filter and map, with text and with JSON", build, inputs,
    {
        **dict.fromkeys((UPPERCASE, LOUD, SHORT, WORDS, LANGUAGES), Types(str, str)),
        JSON_UPPERCASE: Types(str, GREETING),
    },
)

if __name__ == "__main__":
    sys.exit(main(GREETINGS_DEMO))
