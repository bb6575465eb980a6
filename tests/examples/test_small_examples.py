"""The small examples in the test driver."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from anomaly_detector import topology as anomaly_detector
from browser_windows import topology as browser_windows
from browser_windows.demo import inputs as browser_inputs
from captcha import topology as captcha
from captcha.topology import LogEvent
from fraud_scoring import topology as fraud_scoring
from greetings import topology as greetings
from greetings.demo import MORNING
from greetings.topology import GREETING, Greeting
from parquet_join import topology as parquet_join
from product_counter import topology as product_counter
from product_views import topology as product_views
from showcase import START_MS
from stock_ticker import topology as stock_ticker
from table_replication import topology as table_replication
from words import topology as words
from words.topology import AlphabetWordAggregate

from clients import topology as clients
from penstock import Topology
from penstock.clock import wall_clock_ms
from penstock.testing import TopologyTestDriver
from penstock.timestamps import WallclockTimestampExtractor


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


def test_client_appears_when_all_tables_know_it_and_follows_them() -> None:
    with TopologyTestDriver(clients.build()) as driver:
        prospects = driver.create_input_topic(clients.PROSPECTS, str, clients.Prospect)
        accounts = driver.create_input_topic(clients.ACCOUNTS, str, clients.Account)
        enriched = driver.create_input_topic(clients.ENRICHED, str, clients.EnrichedAccount)
        out = driver.create_output_topic(clients.CLIENTS, str, clients.Client)
        prospects.pipe_input("1", clients.Prospect(1, "augusto"))
        accounts.pipe_input("1", clients.Account(1, "000.000.000-0"))
        assert out.is_empty
        enriched.pipe_input("1", clients.EnrichedAccount(1, "REGULAR"))
        assert out.read_key_value() == (
            "1", clients.Client(1, "augusto", "000.000.000-0", "REGULAR")
        )
        enriched.pipe_input("1", None)
        assert out.read_key_value() == ("1", None)


def action(browser: str) -> LogEvent:
    return LogEvent("web.Action", browser)


def test_browser_with_five_actions_is_asked_for_a_captcha(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with TopologyTestDriver(captcha.build()) as driver:
        logs = driver.create_input_topic(captcha.LOGS, str, LogEvent)
        out = driver.create_output_topic(captcha.REQUESTS, str, int)
        logs.pipe_value_list([action("a")] * 4 + [action("b")])
        assert out.is_empty
        logs.pipe_value_list([action("a")])
        assert out.read_key_values_to_list() == [("a", 5)]
        assert capsys.readouterr().out == "Asking captcha for a\n"


def test_verified_browser_is_not_asked() -> None:
    with TopologyTestDriver(captcha.build()) as driver:
        logs = driver.create_input_topic(captcha.LOGS, str, LogEvent)
        out = driver.create_output_topic(captcha.REQUESTS, str, int)
        logs.pipe_value_list([LogEvent(f"web.{captcha.VERIFIED}", "a"), *[action("a")] * 9])
        assert out.is_empty


def test_captchas_of_a_global_table_count_from_the_next_action_on() -> None:
    with TopologyTestDriver(captcha.build_with_global_table()) as driver:
        logs = driver.create_input_topic(captcha.LOGS, str, LogEvent)
        captchas = driver.create_input_topic(captcha.CAPTCHAS, str, int)
        out = driver.create_output_topic(captcha.REQUESTS, str, int)
        logs.pipe_value_list([action("a")] * 6)
        assert out.read_values_to_list() == [5, 6]
        captchas.pipe_input("a", 1)
        logs.pipe_value_list([action("a")] * 3)
        assert out.is_empty


def test_actions_are_counted_in_overlapping_windows() -> None:
    with TopologyTestDriver(browser_windows.build()) as driver:
        logs = driver.create_input_topic(browser_windows.LOGS, str, LogEvent)
        out = driver.create_output_topic(browser_windows.OUTPUT, str, str)
        for record in browser_inputs():
            logs.pipe_input(record.key, record.value, timestamp=record.timestamp)
        lines = out.read_values_to_list()
        assert lines[:2] == [
            "Window [14:11:52-14:11:57] Browser:XXXYXXXY0 count=1",
            "Window [14:11:54-14:11:59] Browser:XXXYXXXY0 count=1",
        ]
        assert "Window [14:11:54-14:11:59] Browser:XXXYXXXY3 count=8" in lines


def test_windows_can_follow_the_clock_instead() -> None:
    with TopologyTestDriver(browser_windows.build(WallclockTimestampExtractor())) as driver:
        logs = driver.create_input_topic(browser_windows.LOGS, str, LogEvent)
        began = wall_clock_ms()
        logs.pipe_input("", action("a"), timestamp=5)
        windows = [windowed.window for windowed, _ in driver.get_window_store("counterStore").all()]
        assert windows
        assert all(window.end > began for window in windows)


def test_one_alert_for_the_thousandth_view() -> None:
    with TopologyTestDriver(product_views.build()) as driver:
        views = driver.create_input_topic(product_views.VIEWS, int, str)
        out = driver.create_output_topic(product_views.ALERTS, int, str)
        views.pipe_key_value_list([(7, "browser")] * 999)
        assert out.is_empty
        views.pipe_key_value_list([(7, "browser")] * 2)
        assert out.read_key_values_to_list() == [
            (7, "To alerts@yourcompany.com: product 7 was viewed 1000 times")
        ]


def test_all_counts_are_forwarded_every_second(capsys: pytest.CaptureFixture[str]) -> None:
    with TopologyTestDriver(product_counter.build()) as driver:
        logs = driver.create_input_topic(product_counter.LOGS, int, str)
        out = driver.create_output_topic(product_counter.COUNTS, int, int)
        logs.pipe_input(1, "browser", timestamp=START_MS)
        assert out.read_key_values_to_list() == [(1, 1)]
        logs.pipe_input(2, "browser", timestamp=START_MS + 500)
        assert out.is_empty
        logs.pipe_input(1, "browser", timestamp=START_MS + 1000)
        assert out.read_key_values_to_list() == [(1, 2), (2, 1)]
        assert capsys.readouterr().out == "product 1: 1\nproduct 1: 2\nproduct 2: 1\n"


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


def test_ticker_keeps_the_latest_price() -> None:
    with TopologyTestDriver(stock_ticker.build()) as driver:
        prices = driver.create_input_topic(stock_ticker.PRICES, str, float)
        prices.pipe_key_value_list([("ACME", 42.0), ("INIT", 7.5), ("ACME", 41.5)])
        store = driver.get_key_value_store(stock_ticker.LATEST)
        assert dict(store.all()) == {"ACME": 41.5, "INIT": 7.5}


@pytest.mark.parametrize("build", [
    greetings.build, clients.build, captcha.build, captcha.build_with_global_table,
    browser_windows.build, product_views.build, product_counter.build, words.build,
    words.build_tables, stock_ticker.build, table_replication.build,
    parquet_join.build, fraud_scoring.build, anomaly_detector.build,
])
def test_topology_has_a_picture(build: Callable[[], Topology]) -> None:
    assert build()._repr_svg_().startswith("<svg")
