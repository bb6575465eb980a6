"""Greetings of two languages, merged; then one topic for each of the operators without state.

    greetings ─────────┐          ┌─ filter (longer than 5) ─ map_values ── greetings-uppercase
                       │          ├─ filter (longer than 5) ─ map ───────── greetings-loud
                       ├─ merge ──┼─ filter_not (longer than 5) ─────────── greetings-short
                       │          ├─ flat_map_values ────────────────────── greetings-words
    greetings-spanish ─┘          └─ flat_map ───────────────────────────── greetings-word-languages

    greetings-json ─ filter ─ map_values ── greetings-json-uppercase

The key of a greeting is its language. `GREETING` is a serde of its own for the JSON of a greeting.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime

from penstock import Serde, StreamsBuilder, Topology

GREETINGS, GREETINGS_SPANISH = "greetings", "greetings-spanish"
UPPERCASE, LOUD, SHORT = "greetings-uppercase", "greetings-loud", "greetings-short"
WORDS, LANGUAGES = "greetings-words", "greetings-word-languages"
JSON_GREETINGS, JSON_UPPERCASE = "greetings-json", "greetings-json-uppercase"


@dataclass(frozen=True)
class Greeting:
    """A greeting with its time."""

    message: str
    time_stamp: datetime


def serialize_greeting(greeting: Greeting) -> bytes:
    """Write `{"message":"Good Morning","timeStamp":"2022-12-04T05:26:31.060293"}`."""
    fields = {"message": greeting.message, "timeStamp": greeting.time_stamp.isoformat()}
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def deserialize_greeting(data: bytes) -> Greeting:
    """Read what `serialize_greeting` writes."""
    fields = json.loads(data)
    return Greeting(fields["message"], datetime.fromisoformat(fields["timeStamp"]))


GREETING = Serde(serialize_greeting, deserialize_greeting, "greeting")


def is_long(text: str) -> bool:
    """Whether a greeting has more than 5 characters."""
    return len(text) > 5


def loud(language: str, text: str) -> tuple[str, str]:
    """Key and value in upper case."""
    return language.upper(), text.upper()


def languages_of_words(language: str, text: str) -> list[tuple[str, str]]:
    """One record for each word; its key is the word."""
    return [(word, language) for word in text.split()]


def upper_case(greeting: Greeting) -> Greeting:
    """The same greeting, louder."""
    return replace(greeting, message=greeting.message.upper())


def build() -> Topology:
    """Plain text, and JSON objects."""
    builder = StreamsBuilder()
    english = builder.stream(GREETINGS, key=str, value=str)
    spanish = builder.stream(GREETINGS_SPANISH, key=str, value=str)
    texts = english.merge(spanish)
    texts.filter(is_long).map_values(str.upper).to(UPPERCASE)
    texts.filter(is_long).map(loud).to(LOUD)
    texts.filter_not(is_long).to(SHORT)
    texts.flat_map_values(str.split).to(WORDS)
    texts.flat_map(languages_of_words).to(LANGUAGES)
    (
        builder.stream(JSON_GREETINGS, key=str, value=GREETING)
        .filter(lambda greeting: is_long(greeting.message))
        .map_values(upper_case)
        .to(JSON_UPPERCASE, value=GREETING)
    )
    return builder.build()
