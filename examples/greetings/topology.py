"""Greetings of two languages, merged; short ones are left out, the others are upper-cased.

    greetings ─────────┐
                       ├─ merge ─ longer than 5 characters ─ upper case ─ greetings-uppercase
    greetings-spanish ─┘
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from penstock import StreamsBuilder, Topology

GREETINGS = "greetings"
GREETINGS_SPANISH = "greetings-spanish"
OUTPUT = "greetings-uppercase"
JSON_GREETINGS = "greetings-json"
JSON_OUTPUT = "greetings-json-uppercase"


@dataclass(frozen=True)
class Greeting:
    """A greeting with its time; JSON in the topic."""

    message: str
    time_stamp: datetime


def upper_case(greeting: Greeting) -> Greeting:
    """The same greeting, louder."""
    return replace(greeting, message=greeting.message.upper())


def build() -> Topology:
    """Plain text, and the same with JSON objects."""
    builder = StreamsBuilder()
    english = builder.stream(GREETINGS, key=str, value=str)
    spanish = builder.stream(GREETINGS_SPANISH, key=str, value=str)
    (
        english.merge(spanish)
        .filter(lambda text: len(text) > 5)
        .map_values(str.upper)
        .to(OUTPUT)
    )
    (
        builder.stream(JSON_GREETINGS, key=str, value=Greeting)
        .filter(lambda greeting: len(greeting.message) > 5)
        .map_values(upper_case)
        .to(JSON_OUTPUT)
    )
    return builder.build()
