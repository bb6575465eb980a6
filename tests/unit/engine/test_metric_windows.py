"""Metrics that are never read keep the samples of their window only."""

from __future__ import annotations

import math
import random

import pytest

from penstock.engine.observe.sample_windows import CountWindow, SampleWindow
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


@pytest.mark.parametrize("seed", range(5))
def test_statistics_are_those_of_the_values_in_the_window(seed: int) -> None:
    """The history adds values up as they arrive; the test looks at all of them."""
    chance, now, given = random.Random(seed), 1_000.0, []
    history = ReadingHistory(10, "INFO", 0)
    for _ in range(2_000):
        # Sometimes there is nothing for longer than the window.
        now += chance.choice((0.01, 0.3, 2.5)) if chance.random() < 0.99 else 25
        if chance.random() < 0.7:
            values = [float(chance.randrange(10_000)) for _ in range(chance.randrange(1, 4))]
            history.add("0_0", Reading(
                "e2e-latency", ("node",), len(values), sum(values), min(values), max(values)
            ), now)
            given.append((int(now), values))
        recent = [each for second, values in given if second >= int(now - 10) for each in values]
        found = {name.name: value for name, value in history.values(now, ())}
        if recent:
            assert found == {
                "record-e2e-latency-avg": sum(recent) / len(recent),
                "record-e2e-latency-min": min(recent), "record-e2e-latency-max": max(recent),
            }
        else:
            assert all(math.isnan(value) for value in found.values())


@pytest.mark.parametrize("seed", range(5))
def test_maximum_is_that_of_the_samples_in_the_window(seed: int) -> None:
    chance, now, given = random.Random(seed), 1_000.0, []
    window = SampleWindow(10, now)
    for _ in range(2_000):
        now += chance.choice((0.01, 0.3, 2.5)) if chance.random() < 0.99 else 25
        if chance.random() < 0.7:
            given.append((now, float(chance.randrange(100))))
            window.add(given[-1][1], now)
        recent = [amount for time, amount in given if time > now - 10]
        found = window.maximum(now)
        assert found == max(recent) if recent else math.isnan(found)


def test_samples_that_cannot_be_the_largest_are_not_looked_at() -> None:
    window = SampleWindow(60, 0)
    for hundredth in range(100 * 60):
        window.add(6_000 - abs(3_000 - hundredth), hundredth / 100)
    assert window.maximum(60) == 6_000
    assert len(window._largest) <= 3_001
    window.add(7_000, 60)
    assert len(window._largest) == 1


def test_largest_count_of_a_second_grows_with_it() -> None:
    window = CountWindow(60, 0)
    for hundredth in range(150):
        window.add(1, hundredth / 100)
    assert window.maximum(2) == 100
