"""Metrics: names, totals, rates over a window, and the counters of joins."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from penstock import JoinWindows, MetricName, Serdes, StreamsBuilder, StreamsConfig
from penstock.engine.batch_report import BatchReport
from penstock.engine.continuous.messages import Durations, PartitionLag, TimeSpent
from penstock.engine.observe.metrics import Metrics
from penstock.log.types import TopicPartition
from penstock.metric_catalogue import (
    JOIN,
    NODE,
    PRODUCER,
    STATE,
    TASK,
    THREAD,
    TOPIC,
    Reading,
)
from penstock.record import TaskId
from penstock.testing import TopologyTestDriver

TEXT = Serdes.string()


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(clock: Clock) -> Metrics:
    config = StreamsConfig(application_id="app", execution="batch")
    return Metrics(config, "app-StreamThread-1", clock=clock)


def report(number: int = 1, records: int = 10, **fields: Any) -> BatchReport:
    return BatchReport(**{
        "number": number, "records": records, "input_records": records,
        "outputs": records * 2, "changes": 0, "plan_seconds": 0.001, "compute_seconds": 0.05,
        "commit_seconds": 0.01, **fields,
    })


def named(metrics: Metrics, group: str) -> dict[str, Any]:
    return {
        name.name: value for name, value in metrics.snapshot({}).items() if name.group == group
    }


def test_totals_grow_and_rates_cover_the_last_minute(metrics: Metrics, clock: Clock) -> None:
    for _ in range(30):
        clock.now += 1
        metrics.record(report())
    found = named(metrics, THREAD)
    assert (found["process-total"], found["commit-total"]) == (300, 30)
    assert named(metrics, PRODUCER)["record-send-total"] == 600
    assert found["process-rate"] == pytest.approx(10)
    assert found["commit-rate"] == pytest.approx(1)
    assert found["commit-latency-avg"] == pytest.approx(10)
    assert found["process-latency-max"] == pytest.approx(50)
    clock.now += 59
    assert named(metrics, THREAD)["process-rate"] == pytest.approx(10 / 60)
    clock.now += 1
    found = named(metrics, THREAD)
    assert (found["process-total"], found["process-rate"]) == (300, 0)
    assert math.isnan(found["commit-latency-avg"])


def test_sample_window_is_configurable(clock: Clock) -> None:
    config = StreamsConfig(
        application_id="app",
        extra={"metrics.num.samples": "1", "metrics.sample.window.ms": "2000"},
    )
    metrics = Metrics(config, "thread", clock=clock)
    metrics.record(report())
    clock.now += 1.5
    assert named(metrics, THREAD)["process-rate"] == pytest.approx(10 / 1.5)
    clock.now += 1
    assert named(metrics, THREAD)["process-rate"] == 0


def test_counters_of_tasks_and_nodes_are_summed(metrics: Metrics) -> None:
    for _ in range(2):
        metrics.record(report(counters={
            TaskId(0, 1): {
                "process-total": 7, "dropped-records-total": 1, "JOIN/matched": 3, "JOIN/late": 1,
                "SUPPRESS/emitted": 2,
            },
            TaskId(0, 0): {"process-total": 3, "JOIN/matched": 1},
        }))
    found = metrics.snapshot({"state": "RUNNING"})
    thread = ("thread-id", "app-StreamThread-1")
    task = (thread, ("task-id", "0_1"))
    assert found[MetricName(TASK, "process-total", task)] == 14
    assert found[MetricName(TASK, "dropped-records-total", task)] == 2
    node = (*task, ("processor-node-id", "SUPPRESS"))
    assert found[MetricName(NODE, "suppression-emit-total", node)] == 4
    join = (*task, ("processor-node-id", "JOIN"))
    assert found[MetricName(JOIN, "matched-total", join)] == 6
    assert found[MetricName(JOIN, "late-total", join)] == 2
    name = MetricName("stream-metrics", "state", (("client-id", "app"),))
    assert found[name] == "RUNNING"
    assert str(name) == "stream-metrics:state{client-id=app}"


# ---- counters of joins -----------------------------------------------------------------------


def counted(driver: TopologyTestDriver) -> dict[str, int]:
    """Return the sums over both nodes of the join, by the last part of the name."""
    found: dict[str, int] = {}
    for name, amount in driver.metrics().items():
        if "/" in name and amount:
            counter = name.rpartition("/")[2]
            found[counter] = found.get(counter, 0) + amount
    return found


@pytest.mark.parametrize(("kind", "expected"), [
    ("join", {"matched": 2, "unmatched-left": 3, "unmatched-right": 1, "expired": 1}),
    # The record with the key "lonely" still waits for a match.
    ("left_join", {"matched": 2, "unmatched-left": 1, "late": 1, "expired": 1}),
])
def test_stream_join_counts_the_results_of_its_records(
    kind: str, expected: dict[str, int]
) -> None:
    builder = StreamsBuilder()
    left, right = (builder.stream(topic, key=TEXT, value=TEXT) for topic in ("left", "right"))
    joined = getattr(left, kind)(
        right, lambda one, other: f"{one}/{other}", JoinWindows.of(timedelta(seconds=10)),
        key=TEXT, value=TEXT, other_value=TEXT,
    )
    joined.to("out", key=TEXT, value=TEXT)
    with TopologyTestDriver(builder.build()) as driver:
        one, other = (driver.create_input_topic(topic, TEXT, TEXT) for topic in ("left", "right"))
        one.pipe_input("k", "a", timestamp=100_000)
        other.pipe_input("k", "x", timestamp=101_000)
        other.pipe_input("k", "y", timestamp=109_000)
        other.pipe_input("other", "z", timestamp=109_000)
        one.pipe_input("lonely", "b", timestamp=1_000_000)
        # Too old for a match, and too old to be stored.
        one.pipe_input("k", "c", timestamp=1_000)
        assert counted(driver) == expected


def test_stream_table_join_counts_hits_and_misses() -> None:
    builder = StreamsBuilder()
    table = builder.table("table", key=TEXT, value=TEXT)
    stream = builder.stream("stream", key=TEXT, value=TEXT)
    stream.join(table, lambda one, row: row).to("out", value=TEXT)
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("table", TEXT, TEXT).pipe_input("a", "row")
        stream_in = driver.create_input_topic("stream", TEXT, TEXT)
        for key in "aab":
            stream_in.pipe_input(key, "v")
        assert counted(driver) == {"matched": 2, "unmatched-left": 1}


# ---- measurements of tasks ---------------------------------------------------------------------


def measured(sensor: str, *tags: str, values: tuple[float, ...]) -> Reading:
    return Reading(sensor, tags, len(values), sum(values), min(values), max(values))


def test_readings_of_all_commits_are_merged(metrics: Metrics, clock: Clock) -> None:
    for values in ((1.0, 3.0), (8.0,)):
        metrics.record(report(readings=(
            (TaskId(0, 0), measured("e2e-latency", "SINK", values=values)),
            (TaskId(0, 1), measured("e2e-latency", "SINK", values=(5.0,))),
            (TaskId(0, 0), measured("consumed", "SOURCE", "in", values=values)),
            (TaskId(0, 0), measured("thread-punctuate", values=(2.0,))),
            (TaskId(0, 1), measured("thread-punctuate", values=(4.0,))),
        )))
        clock.now += 30
    found = metrics.snapshot({})
    thread = ("thread-id", "app-StreamThread-1")
    task = (thread, ("task-id", "0_0"))
    sink, source = ((*task, ("processor-node-id", name)) for name in ("SINK", "SOURCE"))
    topic = (*source, ("topic", "in"))
    assert found[MetricName(NODE, "record-e2e-latency-avg", sink)] == 4
    assert found[MetricName(NODE, "record-e2e-latency-min", sink)] == 1
    assert found[MetricName(NODE, "record-e2e-latency-max", sink)] == 8
    assert found[MetricName(TOPIC, "records-consumed-total", topic)] == 3
    assert found[MetricName(TOPIC, "bytes-consumed-total", topic)] == 12
    # Metrics of the thread are those of all tasks.
    assert found[MetricName(THREAD, "punctuate-total", (thread,))] == 4
    assert found[MetricName(THREAD, "punctuate-latency-avg", (thread,))] == 3
    clock.now += 61
    found = metrics.snapshot({})
    assert math.isnan(found[MetricName(NODE, "record-e2e-latency-avg", sink)])
    assert found[MetricName(TOPIC, "records-consumed-total", topic)] == 3


def test_state_of_stores_is_tagged_with_the_kind_of_the_store(clock: Clock) -> None:
    config = StreamsConfig(application_id="app", metrics_recording_level="DEBUG")
    metrics = Metrics(config, "thread", clock=clock)
    metrics.record(report(readings=(
        (TaskId(1, 2), measured("store-put", "lmdb-state-id", "counts", values=(7.0,))),
        (TaskId(1, 2), measured("restore", values=(40.0,))),
    )))
    found = metrics.snapshot({})
    task = (("thread-id", "thread"), ("task-id", "1_2"))
    name = MetricName(STATE, "put-latency-max", (*task, ("lmdb-state-id", "counts")))
    assert found[name] == 7
    assert found[MetricName(TASK, "restore-total", task)] == 40
    level = MetricName("stream-metrics", "recording-level", (("client-id", "app"),))
    assert found[level] == 1


def test_process_ratio_of_a_task_is_its_share_of_all_tasks(
    metrics: Metrics, clock: Clock
) -> None:
    for _ in range(2):
        metrics.record(report(readings=(
            (TaskId(0, 0), measured("active-process", values=(10.0, 20.0))),
            (TaskId(0, 1), measured("active-process", values=(90.0,))),
        )))
        clock.now += 5

    def ratios() -> list[object]:
        return [
            value for name, value in metrics.snapshot({}).items()
            if name.name == "active-process-ratio"
        ]

    assert ratios() == [0.25, 0.75]
    clock.now += 120
    assert all(map(math.isnan, ratios()))


def test_tasks_of_lanes_are_counted_once(clock: Clock) -> None:
    config = StreamsConfig(application_id="app", execution="continuous")
    metrics = Metrics(config, "thread", clock=clock)
    for task in ("0_0", "0_1"):
        metrics.task_started(task)
    for task in ("0_0", "0_0", "1_0"):
        metrics.task_stopped(task)
    clock.now += 10
    found = named(metrics, THREAD)
    assert (found["task-created-total"], found["task-closed-total"]) == (2, 1)
    assert found["task-created-rate"] == pytest.approx(0.2)


def test_task_of_a_lane_has_metrics_before_its_first_record(clock: Clock) -> None:
    metrics = Metrics(StreamsConfig(application_id="app"), "thread", clock=clock)
    metrics.task_started("0_0")
    assert named(metrics, TASK)["process-total"] == 0


def test_times_of_lanes_are_averaged(clock: Clock) -> None:
    metrics = Metrics(StreamsConfig(application_id="app"), "thread", clock=clock)
    assert math.isnan(named(metrics, THREAD)["poll-ratio"])
    clock.now += 2
    commit = Durations(1, 0.1, 0.1)
    for poll, process in (
        (Durations(10, 1.5, 0.5), Durations(10, 0.4, 0.1)),
        (Durations(30, 0.5, 0.2), Durations(10, 0.8, 0.3)),
    ):
        metrics.lane_spent(TimeSpent(2.0, poll, process, commit, records=400, most_records=90))
    found = named(metrics, THREAD)
    assert (found["poll-total"], found["poll-rate"]) == (40, pytest.approx(20))
    assert (found["poll-records-avg"], found["poll-records-max"]) == (20, 90)
    assert found["poll-latency-avg"] == pytest.approx(50)
    assert found["process-latency-max"] == pytest.approx(300)
    assert [found[f"{step}-ratio"] for step in ("poll", "process", "commit")] == [
        pytest.approx(0.5), pytest.approx(0.3), pytest.approx(0.05)
    ]
    assert found["blocked-time-ns-total"] == 2_200_000_000
    metrics.record(report(readings=(
        (TaskId(0, 0), measured("thread-punctuate", values=(100.0, 300.0))),
        (TaskId(0, 1), measured("thread-punctuate", values=(400.0,))),
    )))
    # 0.8 seconds of two lanes, which have reported 2 seconds each.
    assert named(metrics, THREAD)["punctuate-ratio"] == pytest.approx(0.2)
    clock.now += 60
    found = named(metrics, THREAD)
    assert (found["poll-total"], found["poll-rate"]) == (40, 0)
    assert math.isnan(found["process-latency-avg"])


def test_readings_of_a_finer_level_are_not_shown(metrics: Metrics) -> None:
    metrics.record(report(readings=((TaskId(0, 0), measured("restore", values=(40.0,))),)))
    assert "restore-total" not in named(metrics, TASK)


def test_ratios_are_shares_of_the_time(metrics: Metrics, clock: Clock) -> None:
    for _ in range(10):
        clock.now += 1
        metrics.record(report())
    found = named(metrics, THREAD)
    assert found["process-ratio"] == pytest.approx(0.05)
    assert found["commit-ratio"] == pytest.approx(0.01)
    shares = found["poll-ratio"] + found["commit-ratio"]
    assert found["blocked-time-ns-total"] == pytest.approx(10e9 * shares)


def lag_of(metrics: Metrics) -> dict[tuple[str, ...], Any]:
    """Return the values of the tags, without the client, and the lag."""
    return {
        tuple(value for _, value in name.tags[1:]): value
        for name, value in metrics.snapshot({}).items()
        if name.group == "consumer-fetch-manager-metrics"
    }


def test_lag_of_lanes_has_the_names_of_kafkas_consumer(clock: Clock) -> None:
    metrics = Metrics(StreamsConfig(application_id="app"), "thread", clock=clock)
    assert math.isnan(lag_of(metrics)[()])
    metrics.lag_measured([
        PartitionLag(TaskId(0, 0), "in", 0, 7), PartitionLag(TaskId(0, 1), "in", 1, 9),
    ])
    metrics.lag_measured([PartitionLag(TaskId(0, 1), "in", 1, 2)])
    assert lag_of(metrics) == {("in", "0"): 7, ("in", "1"): 2, (): 9}
    metrics.task_stopped("0_0")
    assert lag_of(metrics) == {("in", "1"): 2, (): 9}
    clock.now += 60
    metrics.lag_measured([PartitionLag(TaskId(0, 1), "in", 1, 3)])
    assert lag_of(metrics) == {("in", "1"): 3, (): 3}
    tags = dict(next(
        name.tags for name in metrics.snapshot({}) if name.name == "records-lag"
    ))
    assert tags == {"client-id": "thread-consumer", "topic": "in", "partition": "1"}


def test_lag_of_batches_is_that_of_the_last_plan(metrics: Metrics) -> None:
    metrics.record(report(lags={TopicPartition("in", 0): 4, TopicPartition("in", 1): 0}))
    assert lag_of(metrics) == {("in", "0"): 4, ("in", "1"): 0, (): 4}
    metrics.stop_reading()
    assert lag_of(metrics) == {(): 4}


def test_times_of_grants_and_releases(clock: Clock) -> None:
    metrics = Metrics(StreamsConfig(application_id="app"), "thread", clock=clock)
    metrics.task_granted("0_0")
    clock.now += 2
    metrics.task_started("0_0")
    metrics.task_released("0_0")
    clock.now += 3
    metrics.task_stopped("0_0")
    metrics.task_stopped("0_0")
    found = named(metrics, THREAD)
    assert (found["tasks-assigned-latency-avg"], found["tasks-revoked-latency-max"]) == (
        2000.0, 3000.0,
    )
