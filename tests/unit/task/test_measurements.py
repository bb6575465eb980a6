"""The metrics of a task: sizes and ages of records, operations of stores, recording levels."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest

from penstock import (
    BufferConfig,
    EmitStrategy,
    JoinWindows,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Serdes,
    SessionWindows,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    TimeWindows,
)
from penstock.clock import wall_clock_ms
from penstock.metric_catalogue import SENSORS
from penstock.record import NO_HEADERS, Headers, PartitionColumns, TaskId
from penstock.task import meters
from penstock.task.blueprint import Blueprint
from penstock.task.queue import RecordRange
from penstock.task.runtime import Environment
from penstock.task.task import Task
from penstock.testing import TopologyTestDriver
from unit.native import scenarios

TEXT, LONG = Serdes.string(), Serdes.long()


def config(level: str = "INFO", **settings: Any) -> StreamsConfig:
    return StreamsConfig(
        application_id="app", default_key_serde=TEXT, default_value_serde=TEXT,
        metrics_recording_level=level, **settings,
    )


def found(driver: TopologyTestDriver, name: str) -> dict[str, float]:
    """Return the metrics of a name, by the value of the last tag."""
    return {
        full.rpartition("=")[2].rstrip("}"): value for full, value in driver.metrics().items()
        if full.partition("{")[0].endswith(f":{name}")
    }


def rows(count: int, *, with_headers: bool, seed: int = 1) -> PartitionColumns:
    chance = random.Random(seed)
    return PartitionColumns(
        topic="t", partition=0, offsets=range(count),
        timestamps=[chance.randrange(10**12) for _ in range(count)],
        keys=[chance.choice((None, b"", b"k" * chance.randrange(9))) for _ in range(count)],
        values=[chance.choice((None, b"v" * chance.randrange(99))) for _ in range(count)],
        headers=[
            chance.choice((NO_HEADERS, Headers((("\u00e4", b"1"), ("b", None)))))
            for _ in range(count)
        ] if with_headers else None,
    )


@pytest.mark.parametrize("with_headers", [False, True])
def test_records_are_measured_in_c_as_in_python(
    with_headers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = rows(50, with_headers=with_headers)
    outputs = [
        (f"topic-{at % 7 // 3}", 0, columns.keys[at], columns.values[at], columns.timestamps[at],
         NO_HEADERS if columns.headers is None else columns.headers[at])
        for at in range(50)
    ]
    fast = (
        meters.measure_rows(columns, 3, 40, 2_000), meters.measure_outputs(outputs, 5, 2_000)
    )
    monkeypatch.setattr(meters, "core", None)
    assert fast == (
        meters.measure_rows(columns, 3, 40, 2_000), meters.measure_outputs(outputs, 5, 2_000)
    )
    assert fast[0].records == 37
    assert sum(each.records for each in fast[1].values()) == 45


def test_topic_metrics_count_records_and_the_bytes_that_kafka_counts() -> None:
    builder = StreamsBuilder()
    builder.stream("in").map_values(lambda value: value * 2).to("result")
    with TopologyTestDriver(builder.build(), config()) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT)
        topic.pipe_input("key", "value")
        topic.pipe_input("key", "value", headers=Headers((("name", b"12"),)))
        # Key, value, topic; timestamp, offset and partition.
        each = 3 + 5 + 2 + 20
        assert found(driver, "records-consumed-total") == {"in": 2}
        assert found(driver, "bytes-consumed-total") == {"in": 2 * each + 6}
        assert found(driver, "records-produced-total") == {"result": 2}
        assert found(driver, "bytes-produced-total") == {"result": 2 * (3 + 10 + 6 + 20) + 6}


def test_latency_is_the_age_of_records_at_sources_and_sinks() -> None:
    builder = StreamsBuilder()
    builder.stream("in", name="source").to("out", name="sink")
    with TopologyTestDriver(builder.build(), config(), initial_wall_clock=10_000) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT)
        topic.pipe_input("k", "v", timestamp=9_000)
        topic.pipe_input("k", "v", timestamp=7_000)
        for statistic, expected in (("avg", 2_000), ("min", 1_000), ("max", 3_000)):
            assert found(driver, f"record-e2e-latency-{statistic}") == {
                "source": expected, "sink": expected,
            }


@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
def test_extracted_timestamps_of_a_source_are_measured(level: str) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", name="source", timestamp=lambda record, _: int(record.value))
    stream.to("out", name="sink")
    with TopologyTestDriver(builder.build(), config(level), initial_wall_clock=6_000) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT)
        # Without a valid timestamp, the record is dropped.
        for value in ("5000", "-1", "2000"):
            topic.pipe_input("k", value, timestamp=0)
        for statistic, expected in (("avg", 2_500), ("min", 1_000), ("max", 4_000)):
            assert found(driver, f"record-e2e-latency-{statistic}") == {
                "source": expected, "sink": expected,
            }


def test_records_of_a_batch_with_several_queues_are_counted_once() -> None:
    builder = StreamsBuilder()
    left, right = builder.stream("left"), builder.stream("right")
    left.join(right, lambda one, other: one, JoinWindows.of(timedelta(seconds=1))).to("out")
    blueprint = Blueprint.of(builder.build(), config())
    task = Task(blueprint, TaskId(0, 0), Environment())
    task.start()
    for source in blueprint.sources:
        task.subscribe(source.name, source.topics[0], 0)
    consumed = dict.fromkeys(("left", "right"), 0)
    for batch in range(3):
        ranges = {
            (topic, 0): RecordRange(PartitionColumns(
                topic=topic, partition=0, offsets=range(batch * 1_500, batch * 1_500 + count),
                timestamps=[batch * 1_500 + at * step for at in range(count)],
                keys=[b"%d" % at for at in range(count)], values=[b"v"] * count,
            ))
            for topic, count, step in (("left", 1_500, 1), ("right", 100, 15))
        }
        for reading in task.run(ranges).readings:
            if reading.sensor == "consumed":
                consumed[reading.tags[1]] += reading.number
    assert consumed == {"left": 4_500, "right": 300}


def test_records_left_in_a_queue_are_not_counted() -> None:
    builder = StreamsBuilder()
    left, right = builder.stream("left"), builder.stream("right")
    left.merge(right).to("out")
    blueprint = Blueprint.of(builder.build(), config())
    task = Task(blueprint, TaskId(0, 0), Environment())
    task.start()
    for source in blueprint.sources:
        task.subscribe(source.name, source.topics[0], 0)

    def records(topic: str, times: list[int]) -> PartitionColumns:
        return PartitionColumns(
            topic=topic, partition=0, offsets=range(len(times)), timestamps=times,
            keys=[b"k"] * len(times), values=[b"v"] * len(times),
        )

    # The right partition has more records, so that the left one waits for them at time 3.
    result = task.run({
        ("left", 0): RecordRange(records("left", [1, 2, 3, 4])),
        ("right", 0): RecordRange(records("right", [1, 2]), cut=True),
    })
    counted = {each.tags[1]: each.number for each in result.readings if each.sensor == "consumed"}
    assert counted == {"left": result.offsets["left", 0], "right": 2}
    assert counted["left"] < 4


class UseStore(Processor[str, str]):
    def init(self, context: ProcessorContext) -> None:
        self.store = context.get_state_store("store")

    def process(self, record: Record[str, str]) -> None:
        self.store.put("a", 1)
        self.store.put_all([("b", 1), ("c", 2)])
        self.store.put_if_absent("a", 2)
        self.store.get("a")
        assert self.store["a"] == 1
        list(self.store.range("a", "b"))
        list(self.store.all())
        list(self.store.reverse_all())
        self.store.delete("a")


def test_operations_of_a_store_are_counted_at_debug() -> None:
    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value_store_builder(
        Stores.in_memory_key_value_store("store"), TEXT, LONG
    ))
    builder.stream("in").process(UseStore, "store")
    with TopologyTestDriver(builder.build(), config("DEBUG"), initial_wall_clock=0) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("k", "v")
        driver.advance_wall_clock_time(timedelta(seconds=1))
        rates = {
            name.partition(":")[2].partition("-rate{")[0]: value
            for name, value in driver.metrics().items()
            if name.startswith("stream-state-metrics:") and "-rate{" in name
        }
        # The driver commits after the record and when the clock moves.
        assert rates == {
            "put": 1, "put-all": 1, "put-if-absent": 1, "get": 2, "range": 1, "all": 2,
            "delete": 1, "flush": 2,
        }
        assert found(driver, "get-latency-max")["store"] > 0
        assert any("in-memory-state-id=store" in name for name in driver.metrics())


def test_operators_read_and_write_their_stores_at_debug() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key()
    grouped.count(store="counts")
    grouped.windowed_by(TimeWindows.of(timedelta(seconds=5))).count(store="windows")
    grouped.windowed_by(SessionWindows.of(timedelta(seconds=5))).count(store="sessions")
    with TopologyTestDriver(builder.build(), config("DEBUG"), initial_wall_clock=0) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT)
        for _ in range(4):
            topic.pipe_input("k", "v", timestamp=1_000)
        driver.advance_wall_clock_time(timedelta(seconds=2))
        assert found(driver, "get-rate") == {"counts": 2}
        assert found(driver, "put-rate") == {"counts": 2, "windows": 2, "sessions": 2}
        assert set(found(driver, "fetch-rate")) == {"windows", "sessions"}
        # The first read of a row misses the cache, and the others do not.
        assert found(driver, "hit-ratio-max")["counts"] == 0.75
        assert found(driver, "hit-ratio-min")["counts"] == 0
        assert found(driver, "cache-size-bytes-total")["0_0"] > 0


@pytest.mark.parametrize(("level", "expected"), [("DEBUG", None), ("TRACE", 3_000)])
def test_age_of_stored_records_is_measured_at_trace(
    level: str, expected: float | None
) -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(store="counts")
    with TopologyTestDriver(builder.build(), config(level), initial_wall_clock=10_000) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT)
        topic.pipe_input("k", "v", timestamp=9_000)
        topic.pipe_input("k", "v", timestamp=7_000)
        assert found(driver, "record-e2e-latency-max").get("counts") == expected


def test_info_measures_nothing_of_finer_levels() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(store="counts").to_stream().to("out", value=LONG)
    with TopologyTestDriver(builder.build(), config()) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("k", "v")
        names = {name.partition("{")[0] for name in driver.metrics()}
    finer = {
        f"{kind.group}:{name}"
        for kind in SENSORS.values() if kind.level != "INFO" for name, _ in kind.metrics
    }
    assert names & finer == set()


class Ticking(Processor[str, str]):
    def init(self, context: ProcessorContext) -> None:
        context.schedule(
            timedelta(seconds=1), PunctuationType.WALL_CLOCK_TIME, lambda now: None
        )

    def process(self, record: Record[str, str]) -> None:
        pass


@pytest.mark.parametrize(("level", "groups"), [
    ("INFO", {"stream-thread-metrics"}),
    ("DEBUG", {"stream-thread-metrics", "stream-task-metrics"}),
])
def test_punctuations_are_counted(level: str, groups: set[str]) -> None:
    builder = StreamsBuilder()
    builder.stream("in").process(Ticking)
    with TopologyTestDriver(builder.build(), config(level)) as driver:
        for _ in range(3):
            driver.advance_wall_clock_time(timedelta(seconds=1))
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("k", "v")
        totals = {
            name.partition(":")[0]: value for name, value in driver.metrics().items()
            if ":punctuate-total" in name
        }
    assert totals == dict.fromkeys(groups, 3)


def test_lateness_is_the_distance_to_the_stream_time() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    with TopologyTestDriver(builder.build(), config("DEBUG")) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT)
        for timestamp in (5_000, 9_000, 6_000):
            topic.pipe_input("k", "v", timestamp=timestamp)
        assert found(driver, "record-lateness-max")["0_0"] == 3_000
        assert found(driver, "record-lateness-avg")["0_0"] == 1_000


class KeepIterators(Processor[str, str]):
    """Opens an iterator for each record, and closes it for the value "close"."""

    def init(self, context: ProcessorContext) -> None:
        self.store = context.get_state_store("store")
        self.opened: list[Any] = []

    def process(self, record: Record[str, str]) -> None:
        self.store.put(record.key, 1)
        if record.value == "close":
            self.opened.pop().close()
        elif record.value == "release":
            self.opened.clear()
        elif record.value == "read":
            assert list(self.store.all())
        else:
            self.opened.append(self.store.all())


def test_open_iterators_are_counted_at_debug() -> None:
    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value_store_builder(
        Stores.in_memory_key_value_store("store"), TEXT, LONG
    ))
    builder.stream("in").process(KeepIterators, "store")
    before = wall_clock_ms()
    with TopologyTestDriver(builder.build(), config("DEBUG")) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT)
        for value, expected in (
            ("open", 1), ("open", 2), ("read", 2), ("close", 1), ("release", 0)
        ):
            topic.pipe_input("k", value)
            assert found(driver, "num-open-iterators") == {"store": expected}
            (oldest,) = found(driver, "oldest-iterator-open-since-ms").values()
            assert before <= oldest <= wall_clock_ms() if expected else oldest == 0
        assert found(driver, "iterator-duration-max")["store"] > 0


@pytest.mark.parametrize("cache_bytes", [0, 10**6])
def test_rows_of_stores_in_memory_are_counted_at_debug(cache_bytes: int) -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=str, value=str).group_by_key()
    grouped.count(store=Stores.in_memory_key_value_store("memory"))
    windows = TimeWindows.of(timedelta(seconds=10))
    grouped.windowed_by(windows).count(store=Stores.in_memory_window_store(
        "windows", timedelta(minutes=1), timedelta(seconds=10)
    ))
    grouped.count(store="disk")
    settings = config("DEBUG", statestore_cache_max_bytes=cache_bytes)
    with TopologyTestDriver(builder.build(), settings) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT)
        for key, time in (("a", 0), ("a", 10_000), ("b", 10_000)):
            topic.pipe_input(key, "v", timestamp=time)
        assert found(driver, "num-keys") == {"memory": 2, "windows": 3}


@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
def test_size_of_a_suppress_buffer_is_measured_at_debug(level: str) -> None:
    builder = StreamsBuilder()
    (
        builder.stream("in").group_by_key().count(store="counts")
        .suppress(Suppressed.until_time_limit(10, BufferConfig.unbounded()))
        .to_stream().foreach(lambda key, value: None)
    )
    settings = config(level, statestore_cache_max_bytes=0)
    with TopologyTestDriver(builder.build(), settings) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT)
        for key, timestamp in (("a", 0), ("b", 0), ("c", 100)):
            topic.pipe_input(key, "v", timestamp=timestamp)
        sizes = found(driver, "suppression-buffer-size-max")
        counts = found(driver, "suppression-buffer-count-max")
        if level == "INFO":
            assert sizes == counts == {}
        else:
            # Each record is buffered; the last one removes the others.
            assert set(counts.values()) == {3}
            averages = found(driver, "suppression-buffer-count-avg")
            assert set(averages.values()) == {(1 + 2 + 3 + 1) / 4}
            assert min(sizes.values()) > 0
            assert any("in-memory-suppression-id=" in name for name in driver.metrics())


def test_emission_of_final_results_is_timed_at_debug() -> None:
    builder = StreamsBuilder()
    (
        builder.stream("in").group_by_key().windowed_by(TimeWindows.of(10, grace=0))
        .emit_strategy(EmitStrategy.on_window_close()).count(store="windows", name="count")
        .to_stream().foreach(lambda key, value: None)
    )
    with TopologyTestDriver(builder.build(), config("DEBUG")) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT)
        topic.pipe_input("k", "v", timestamp=0)
        topic.pipe_input("k", "v", timestamp=100)
        assert found(driver, "window-aggregate-final-emit-latency-max")["count"] > 0


@pytest.mark.parametrize("name", scenarios.SCENARIOS)
def test_results_do_not_depend_on_the_recording_level(name: str) -> None:
    for cache_bytes, partitions in ((0, 1), (20_000, 2)):
        plain = scenarios.play(name, cache_bytes, partitions)
        assert scenarios.play(name, cache_bytes, partitions, "DEBUG") == plain
