"""The topology in the test driver, without Spark and Java: `python -m pytest words`."""

from __future__ import annotations

import pytest

from penstock.testing import TopologyTestDriver
from words import topology as words
from words.topology import AlphabetWordAggregate


@pytest.mark.parametrize(("topic", "of", "expected"), [
    (words.COUNTS, int, [("A", 1), ("A", 2), ("B", 1)]),
    (words.JOINED, str, [("A", "Apple"), ("A", "Apple-Alpha"), ("B", "Bus")]),
    (words.COLLECTED, AlphabetWordAggregate, [
        ("A", AlphabetWordAggregate("A", ("Apple",), 1)),
        ("A", AlphabetWordAggregate("A", ("Apple", "Alpha"), 2)),
        ("B", AlphabetWordAggregate("B", ("Bus",), 1)),
    ]),
])
def test_words_are_aggregated(topic: str, of: type, expected: list[object]) -> None:
    with TopologyTestDriver(words.build()) as driver:
        source = driver.create_input_topic(words.WORDS, str, str)
        out = driver.create_output_topic(topic, str, of)
        source.pipe_key_value_list([("A", "Apple"), ("A", "Alpha"), ("B", "Bus")])
        assert out.read_key_values_to_list() == expected


def test_table_keeps_the_latest_word_of_each_letter() -> None:
    with TopologyTestDriver(words.build_tables()) as driver:
        everywhere = driver.create_input_topic("all-words", str, str)
        source = driver.create_input_topic(words.WORDS, str, str)
        everywhere.pipe_input("A", "Ant")
        source.pipe_key_value_list([("A", "Apple"), ("A", "Alpha")])
        assert driver.get_key_value_store("words-store").get("A") == "Alpha"
        out = driver.create_output_topic(words.LATEST, str, str)
        assert out.read_values_to_list() == ["Apple (Ant)", "Alpha (Ant)"]
