"""The topology in the test driver, without Spark and Java: `python -m pytest captcha`."""

from __future__ import annotations

import pytest

from captcha import topology as captcha
from captcha.topology import LogEvent
from penstock.testing import TopologyTestDriver


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
