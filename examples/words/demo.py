"""Runs the words example."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from showcase import START_MS, Input, Showcase, Types, main

from words.topology import COLLECTED, COUNTS, JOINED, WORDS, AlphabetWordAggregate, build


def inputs() -> Iterator[Input]:
    """Words with their first letter as the key."""
    for number, word in enumerate(("Apple", "Alpha", "Bus", "Ant", "Baby")):
        yield Input(WORDS, word[0], word, START_MS + number * 1000)


WORDS_DEMO = Showcase(
    "words", "words: count, reduce and aggregate", build, inputs,
    {
        COUNTS: Types(str, int, latest=True), JOINED: Types(str, str, latest=True),
        COLLECTED: Types(str, AlphabetWordAggregate, latest=True),
    },
)

if __name__ == "__main__":
    sys.exit(main(WORDS_DEMO))
