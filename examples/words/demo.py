"""Runs the words example."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from showcase import Input, Showcase, Types, main

from words.topology import COLLECTED, COUNTS, JOINED, WORDS, AlphabetWordAggregate, build


def inputs() -> Iterator[Input]:
    """Words with their first letter as the key."""
    for time, word in enumerate(("Apple", "Alpha", "Bus", "Ant", "Baby")):
        yield Input(WORDS, word[0], word, time)


WORDS_DEMO = Showcase(
    "words", "words: count, reduce and aggregate", build, inputs,
    {
        COUNTS: Types(str, int), JOINED: Types(str, str),
        COLLECTED: Types(str, AlphabetWordAggregate),
    },
)

if __name__ == "__main__":
    sys.exit(main(WORDS_DEMO))
