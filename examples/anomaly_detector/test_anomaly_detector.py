"""Anomaly detector: faults are reported, the daily cycle is not, and the plot shows both."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from showcase import Input, Types, records, send

from anomaly_detector.demo import summary
from anomaly_detector.generate import FAULTS, MIDNIGHT_MS, MINUTE_MS, SENSORS, generated_readings
from anomaly_detector.plot import draw
from anomaly_detector.topology import (
    ANOMALIES,
    BASELINES,
    CHECKED,
    READINGS,
    WARM_UP,
    Baseline,
    CheckedReading,
    Reading,
    baseline_after,
    build,
    checked,
)
from penstock import ReadOnlyKeyValueStore, Streams, StreamsConfig
from penstock.log import open_log
from penstock.testing import TopologyTestDriver

TYPES = Types(str, CheckedReading)
MASTERS = ["inline", pytest.param("local[2]", marks=[pytest.mark.slow, pytest.mark.spark])]
STEADY = Baseline(20.0, 0.25, 100, MIDNIGHT_MS)


def noisy(count: int, *, celsius: float = 20.0, seed: int = 1) -> list[Reading]:
    chance = random.Random(seed)
    return [Reading(celsius + chance.gauss(0, 0.5)) for _ in range(count)]


def run_through(readings: Iterable[Reading]) -> tuple[list[CheckedReading], Baseline | None]:
    """Check readings of one sensor, one for each minute, in a plain loop."""
    baseline, results = None, []
    for minute, reading in enumerate(readings):
        results.append(checked(reading, baseline))
        baseline = baseline_after(baseline, results[-1], MIDNIGHT_MS + minute * MINUTE_MS)
    return results, baseline


def test_reading_outside_the_band_is_an_anomaly() -> None:
    assert checked(Reading(21.9), STEADY) == CheckedReading(21.9, 18.0, 22.0, False)
    assert checked(Reading(22.1), STEADY).is_anomaly
    assert checked(Reading(17.9), STEADY).is_anomaly


def test_first_readings_only_build_the_baseline() -> None:
    results, baseline = run_through([Reading(20.0)] * (WARM_UP - 1) + [Reading(90.0)])
    assert not any(each.is_anomaly for each in results)
    assert baseline is not None
    assert baseline.count == WARM_UP


def test_baseline_learns_mean_and_deviation() -> None:
    results, baseline = run_through(noisy(500))
    assert baseline is not None
    assert baseline.mean == pytest.approx(20.0, abs=0.3)
    assert baseline.deviation == pytest.approx(0.5, abs=0.15)
    assert sum(each.is_anomaly for each in results) <= 1


def test_single_anomaly_hardly_moves_the_baseline() -> None:
    spike = checked(Reading(1_000.0), STEADY)
    after = baseline_after(STEADY, spike, MIDNIGHT_MS + MINUTE_MS)
    assert spike.is_anomaly
    assert after.mean == pytest.approx(20.0, abs=0.1)
    assert checked(Reading(22.5), after).is_anomaly


def test_baseline_adapts_to_a_lasting_change() -> None:
    results, baseline = run_through([*noisy(200), *noisy(200, celsius=28.0)])
    assert all(each.is_anomaly for each in results[200:203])
    assert not any(each.is_anomaly for each in results[-100:])
    assert baseline is not None
    assert baseline.mean == pytest.approx(28.0, abs=0.5)


def test_weight_of_a_reading_depends_on_the_time_since_the_last_one() -> None:
    reading = checked(Reading(21.0), STEADY)
    soon = baseline_after(STEADY, reading, MIDNIGHT_MS + MINUTE_MS)
    later = baseline_after(STEADY, reading, MIDNIGHT_MS + 60 * MINUTE_MS)
    assert 20.0 < soon.mean < 20.1
    assert 20.8 < later.mean < 21.0


def test_late_reading_is_checked_and_changes_nothing() -> None:
    late = checked(Reading(25.0), STEADY)
    assert late.is_anomaly
    assert baseline_after(STEADY, late, MIDNIGHT_MS - 1) == STEADY


def test_sensors_have_baselines_of_their_own() -> None:
    with TopologyTestDriver(build()) as driver:
        topic = driver.create_input_topic(READINGS, str, Reading)
        compared = driver.create_output_topic(CHECKED, str, CheckedReading)
        anomalies = driver.create_output_topic(ANOMALIES, str, CheckedReading)
        for minute, reading in enumerate(noisy(60)):
            time = MIDNIGHT_MS + minute * MINUTE_MS
            topic.pipe_input("warm", reading, timestamp=time)
            topic.pipe_input("cold", Reading(reading.celsius - 40), timestamp=time)
        assert anomalies.is_empty
        topic.pipe_input("cold", Reading(20.0), timestamp=MIDNIGHT_MS + 60 * MINUTE_MS)
        assert [record.key for record in anomalies.read_records_to_list()] == ["cold"]
        assert compared.queue_size == 121
        store = driver.get_key_value_store(BASELINES)
        assert store["warm"].mean == pytest.approx(20.0, abs=0.5)


def expected_results(readings: Iterable[Input]) -> list[tuple[str, int, CheckedReading]]:
    """The results of a plain loop over the readings."""
    baselines: dict[str, Baseline] = {}
    results = []
    for _, sensor, reading, timestamp in readings:
        result = checked(reading, baselines.get(sensor))
        baselines[sensor] = baseline_after(baselines.get(sensor), result, timestamp)
        results.append((sensor, timestamp, result))
    return results


@pytest.mark.parametrize("seed", range(3))
def test_anomalies_are_those_of_the_faults(seed: int) -> None:
    found = [
        (sensor, (timestamp - MIDNIGHT_MS) // MINUTE_MS)
        for sensor, timestamp, result in expected_results(generated_readings(seed))
        if result.is_anomaly
    ]
    for fault in FAULTS:
        assert (fault.sensor, fault.minute) in found
    # A fault is reported while it lasts, and when the readings return to normal.
    unexplained = [
        (sensor, minute) for sensor, minute in found
        if not any(
            sensor == fault.sensor and 0 <= minute - fault.minute < fault.minutes + 30
            for fault in FAULTS
        )
    ]
    # 4,320 readings, and a band of four deviations that it has to estimate.
    assert len(unexplained) <= 4


@pytest.mark.parametrize("master", MASTERS)
def test_application_checks_every_reading_once(master: str, tmp_path: Path) -> None:
    readings = list(generated_readings(3, minutes=500))
    halves = readings[:700], readings[700:]
    address = str(tmp_path / "log.db")
    config = StreamsConfig(
        application_id="anomaly-detector", log=address, state_dir=str(tmp_path / "state")
    )
    with open_log(address) as log:
        for topic in (READINGS, CHECKED, ANOMALIES):
            log.create_topic(topic, 2, {"retention.ms": -1})
        with Streams(build(), config, master=master) as streams:
            for half in halves:
                send(log, half)
                streams.run_until_caught_up(120)
            baselines = streams.store(BASELINES, ReadOnlyKeyValueStore[str, Baseline])
            assert {sensor: baseline.count for sensor, baseline in baselines.all()} == {
                sensor.name: 500 for sensor in SENSORS
            }
        compared, anomalies = (records(log, topic, TYPES) for topic in (CHECKED, ANOMALIES))
    expected = sorted(expected_results(readings), key=by_time)
    assert sorted([(each.key, each.timestamp, each.value) for each in compared], key=by_time) == (
        expected
    )
    assert [(each.key, each.timestamp) for each in anomalies] == [
        (sensor, timestamp) for sensor, timestamp, result in expected if result.is_anomaly
    ]
    assert summary(anomalies)[0].startswith("06:40 to 06:40  boiler")


def by_time(result: tuple[str, int, CheckedReading]) -> tuple[int, str]:
    return result[1], result[0]


def checked_records() -> list[Input]:
    return [
        Input(CHECKED, sensor, result, timestamp)
        for sensor, timestamp, result in expected_results(generated_readings(3, minutes=500))
    ]


def test_plot_shows_each_sensor_and_its_anomalies(tmp_path: Path) -> None:
    path = tmp_path / "plot.svg"
    draw(["boiler", "pump"], checked_records(), path)
    svg = ElementTree.parse(path).getroot()
    assert svg.tag.endswith("svg")
    text = path.read_text(encoding="utf-8")
    # Letters are drawn as shapes; matplotlib keeps the words as comments.
    for word in ("boiler", "pump", "expected", "readings", "anomalies", "08:00"):
        assert f"<!-- {word} -->" in text
    assert "<!-- cold-room -->" not in text


def test_ending_of_the_plot_decides_its_format(tmp_path: Path) -> None:
    path = tmp_path / "plot.png"
    draw(["boiler"], checked_records(), path)
    assert path.read_bytes().startswith(b"\x89PNG")
