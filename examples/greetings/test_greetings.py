"""The topology in the test driver, without Spark and Java: `python -m pytest greetings`."""

from __future__ import annotations

import pytest

from greetings import topology as greetings
from greetings.demo import MORNING
from greetings.topology import GREETING, Greeting
from penstock.testing import TopologyTestDriver


@pytest.mark.parametrize(("topic", "expected"), [
    (greetings.UPPERCASE, [("en", "GOOD MORNING"), ("es", "¡BUENOS DIAS!")]),
    (greetings.LOUD, [("EN", "GOOD MORNING"), ("ES", "¡BUENOS DIAS!")]),
    (greetings.SHORT, [("en", "Hi")]),
    (greetings.WORDS, [
        ("en", "Good"), ("en", "Morning"), ("en", "Hi"), ("es", "¡Buenos"), ("es", "dias!"),
    ]),
    (greetings.LANGUAGES, [
        ("Good", "en"), ("Morning", "en"), ("Hi", "en"), ("¡Buenos", "es"), ("dias!", "es"),
    ]),
])
def test_greetings_are_filtered_changed_and_split(
    topic: str, expected: list[tuple[str, str]]
) -> None:
    with TopologyTestDriver(greetings.build()) as driver:
        english = driver.create_input_topic(greetings.GREETINGS, str, str)
        spanish = driver.create_input_topic(greetings.GREETINGS_SPANISH, str, str)
        out = driver.create_output_topic(topic, str, str)
        english.pipe_key_value_list([("en", "Good Morning"), ("en", "Hi")])
        spanish.pipe_input("es", "¡Buenos dias!")
        assert out.read_key_values_to_list() == expected


def test_greetings_in_json_keep_their_time() -> None:
    written = b'{"message":"Good Morning","timeStamp":"2022-12-04T05:26:31.060293"}'
    assert GREETING.deserialize(written) == Greeting("Good Morning", MORNING)
    assert GREETING.serialize(Greeting("Good Morning", MORNING)) == written
    with TopologyTestDriver(greetings.build()) as driver:
        topic = driver.create_input_topic(greetings.JSON_GREETINGS, str, GREETING)
        out = driver.create_output_topic(greetings.JSON_UPPERCASE, str, GREETING)
        topic.pipe_value_list([Greeting("Good Morning", MORNING), Greeting("Hi", MORNING)])
        assert out.read_values_to_list() == [Greeting("GOOD MORNING", MORNING)]
