"""The words of each letter: counted, joined, and collected.

    words ─┬─ count ──────── word-counts
           ├─ reduce ─────── words-joined      (Apple-Alpha-Ant)
           └─ aggregate ──── words-collected   (store aggregated-words)

`build_tables` reads the topic as a table and as a global table, and joins both.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock import StreamsBuilder, Topology

WORDS = "words"
COUNTS, JOINED, COLLECTED = "word-counts", "words-joined", "words-collected"
LATEST = "latest-words"


@dataclass(frozen=True)
class AlphabetWordAggregate:
    """The words of a letter."""

    key: str = ""
    value_list: tuple[str, ...] = ()
    running_count: int = 0


def collect(key: str, word: str, words: AlphabetWordAggregate) -> AlphabetWordAggregate:
    """The words with one more."""
    return AlphabetWordAggregate(key, (*words.value_list, word), words.running_count + 1)


def build() -> Topology:
    """The three aggregations."""
    builder = StreamsBuilder()
    by_letter = builder.stream(WORDS, key=str, value=str).group_by_key()
    by_letter.count(name="count-per-alphabet").to_stream().to(COUNTS)
    by_letter.reduce(lambda joined, word: f"{joined}-{word}").to_stream().to(JOINED)
    words = by_letter.aggregate(AlphabetWordAggregate, collect, store="aggregated-words")
    words.to_stream().to(COLLECTED)
    return builder.build()


def build_tables() -> Topology:
    """The topic as a table, joined with itself as a global table."""
    builder = StreamsBuilder()
    everywhere = builder.global_table("all-words", key=str, value=str, store="words-global-store")
    table = builder.table(WORDS, key=str, value=str, store="words-store")
    joined = table.to_stream().left_join(
        everywhere, lambda letter, word: letter, lambda word, other: f"{word} ({other})"
    )
    joined.to(LATEST)
    return builder.build()
