"""Processors define their own metrics with sensors, as in Kafka Streams (Y2)."""

from __future__ import annotations

import math
from typing import Any

import pytest

from penstock import (
    MetricName,
    Processor,
    ProcessorContext,
    Record,
    Serdes,
    Stat,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    Topology,
)
from penstock.clients import AdminClient, NewTopic, Producer
from penstock.metrics import SensorHistory, StreamsMetrics
from penstock.testing import MockProcessorContext, TopologyTestDriver

TEXT = Serdes.string()


class Measure(Processor[str, str]):
    """Records the length of every value."""

    def init(self, context: ProcessorContext) -> None:
        metrics = context.metrics()
        self.latency = metrics.add_latency_rate_total_sensor(
            "lookup", "database", "get", tags={"region": "eu"}
        )
        self.lengths = metrics.add_sensor("lengths").add(
            MetricName("lengths", "length-sum"), Stat.SUM
        )
        self.debug = metrics.add_rate_total_sensor("lookup", "database", "miss", level="DEBUG")

    def process(self, record: Record[str, str]) -> None:
        self.latency.record(len(record.value))
        self.lengths.record(len(record.value))
        self.debug.record()


def topology() -> Topology:
    builder = StreamsBuilder()
    builder.stream("words", key=TEXT, value=TEXT).process(Measure)
    return builder.build()


def test_driver_shows_the_metrics_of_sensors() -> None:
    with TopologyTestDriver(topology()) as driver:
        words = driver.create_input_topic("words", TEXT, TEXT)
        for word in ("a", "abc"):
            words.pipe_input("k", word)
        found = driver.metrics()
    tags = "{lookup-id=database,region=eu}"
    assert found[f"stream-lookup-metrics:get-total{tags}"] == 2
    assert found[f"stream-lookup-metrics:get-latency-avg{tags}"] == 2
    assert found[f"stream-lookup-metrics:get-latency-max{tags}"] == 3
    assert found["lengths:length-sum"] == 4
    assert found["stream-lookup-metrics:miss-total{lookup-id=database}"] == 0


def test_sensors_finer_than_the_recording_level_record_nothing() -> None:
    config = StreamsConfig(application_id="app", metrics_recording_level="DEBUG")
    with TopologyTestDriver(topology(), config) as driver:
        driver.create_input_topic("words", TEXT, TEXT).pipe_input("k", "a")
        found = driver.metrics()
    assert found["stream-lookup-metrics:miss-total{lookup-id=database}"] == 1


def test_application_shows_sensors_over_all_batches(tmp_path: Any) -> None:
    log = str(tmp_path / "log.db")
    with AdminClient({"log": log}) as admin:
        admin.create_topics([NewTopic("words", 2)])["words"].result()
    config = StreamsConfig(application_id="app", log=log, state_dir=str(tmp_path / "state"))
    with Streams(topology(), config, master="inline") as streams:
        for _ in range(2):
            with Producer({"log": log}) as producer:
                for partition in range(2):
                    producer.produce("words", key=b"k", value=b"abcd", partition=partition)
            streams.run_until_caught_up(20)
        found = streams.metrics()
    name = next(
        each for each in found
        if each.group == "stream-lookup-metrics" and each.name == "get-total"
    )
    assert found[name] == 4
    assert [tag for tag, _ in name.tags] == ["thread-id", "lookup-id", "region"]
    assert found[MetricName("lengths", "length-sum")] == 16


def test_sensor_records_in_its_parents() -> None:
    metrics = MockProcessorContext().metrics()
    parent = metrics.add_sensor("all").add(MetricName("g", "all"), Stat.COUNT)
    metrics.add_sensor("some", parent).record(5)
    readings = {reading.name: reading for reading in metrics.take_readings()}
    assert (readings["all"].recorded, readings["all"].sum) == (1, 5)


def test_removed_sensor_disappears_and_can_be_added_again() -> None:
    metrics = StreamsMetrics(dict)
    history = SensorHistory(60)
    sensor = metrics.add_sensor("calls").add(MetricName("g", "calls"), Stat.COUNT)
    sensor.record()
    for reading in metrics.take_readings():
        history.add(reading, 0)
    metrics.remove_sensor(sensor)
    sensor.record()
    assert not sensor.should_record
    for reading in metrics.take_readings():
        history.add(reading, 1)
    assert dict(history.values(1)) == {}
    assert metrics.add_sensor("calls") is not sensor


def test_rates_and_averages_cover_the_window_and_totals_everything() -> None:
    metrics = StreamsMetrics(dict)
    history = SensorHistory(10)
    sensor = metrics.add_sensor("s")
    for stat in Stat:
        sensor.add(MetricName("g", stat.value), stat)
    for second, value in ((0, 4.0), (8, 2.0)):
        sensor.record(value)
        for reading in metrics.take_readings():
            history.add(reading, second)
    assert {name.name: value for name, value in history.values(8)} == {
        "avg": 3, "max": 4, "min": 2, "rate": 0.25, "count": 2, "sum": 6, "value": 2,
    }
    later = {name.name: value for name, value in history.values(20)}
    assert (later["rate"], later["count"], later["sum"], later["value"]) == (0, 2, 6, 2)
    assert math.isnan(later["avg"])


def test_unknown_recording_level_is_refused() -> None:
    with pytest.raises(ValueError, match="INFO, DEBUG, TRACE"):
        StreamsMetrics(dict).add_sensor("s", level="ALL")  # type: ignore[arg-type]


def test_metrics_are_also_the_counters_of_the_task() -> None:
    assert MockProcessorContext().metrics() == {"dropped-records-total": 0}
