"""Metrics that are never read keep the samples of their window only."""

from __future__ import annotations

from penstock.engine.observe.sample_windows import CountWindow
from penstock.metric_catalogue import Reading, ReadingHistory
from penstock.metrics import SensorHistory, SensorReading

HOURS_S = 10_000


def test_readings_are_kept_for_the_window_only() -> None:
    history = ReadingHistory(60, "INFO", 0)
    for second in range(HOURS_S):
        history.add("0_0", Reading("consumed", ("source", "topic"), 1, 10, 0, 0), second)
    (totals,) = history._totals.values()
    assert len(totals._recent) <= 62
    values = {name.name: value for name, value in history.values(HOURS_S, ())}
    assert values["records-consumed-total"] == HOURS_S


def test_sensors_are_kept_for_the_window_only() -> None:
    history = SensorHistory(60)
    reading = SensorReading("sensor", (), recorded=1, sum=1.0, max=1.0, last=1.0)
    for second in range(HOURS_S):
        history.add(reading, second)
    assert len(history._sensors["sensor"]._recent) <= 60


def test_counts_of_a_second_are_one_sample() -> None:
    window = CountWindow(60, 0)
    for hundredth in range(100 * 600):
        window.add(1, hundredth / 100)
    assert len(window._samples) <= 61
    assert window.total == 60_000
    assert abs(window.rate(600) - 100) < 2
