"""The topology in the test driver, without Spark and Java: `python -m pytest browser_windows`."""

from __future__ import annotations

from captcha.topology import LogEvent

from browser_windows import topology as browser_windows
from browser_windows.demo import inputs
from penstock.clock import wall_clock_ms
from penstock.testing import TopologyTestDriver
from penstock.timestamps import WallclockTimestampExtractor


def test_actions_are_counted_in_overlapping_windows() -> None:
    with TopologyTestDriver(browser_windows.build()) as driver:
        logs = driver.create_input_topic(browser_windows.LOGS, str, LogEvent)
        out = driver.create_output_topic(browser_windows.OUTPUT, str, str)
        for record in inputs():
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
        logs.pipe_input("", LogEvent("web.Action", "a"), timestamp=5)
        windows = [windowed.window for windowed, _ in driver.get_window_store("counterStore").all()]
        assert windows
        assert all(window.end > began for window in windows)
