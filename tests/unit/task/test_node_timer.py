"""The time that nodes need for a record, without their children."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from penstock import (
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Serdes,
    StreamsBuilder,
    StreamsConfig,
)
from penstock.task import node_timer
from penstock.testing import TopologyTestDriver

TEXT = Serdes.string()
GROUP = "stream-processor-node-metrics"


class SlowClock:
    """A clock of seconds that only moves when a function takes time."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds

    def takes(self, milliseconds: float, result: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A function of a value that takes so long."""
        def work(value: Any) -> Any:
            self.seconds += milliseconds / 1000
            return result(value)

        return work


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SlowClock:
    clock = SlowClock()
    monkeypatch.setattr(node_timer, "perf_counter", clock)
    return clock


def config(level: str, **settings: Any) -> StreamsConfig:
    return StreamsConfig(
        application_id="timed", default_key_serde=TEXT, default_value_serde=TEXT,
        metrics_recording_level=level, **settings,
    )


def times(driver: TopologyTestDriver, metric: str) -> dict[str, float]:
    """Node -> the value of a metric of nodes."""
    return {
        name.partition("processor-node-id=")[2].rstrip("}"): value
        for name, value in driver.metrics().items()
        if name.startswith(f"{GROUP}:{metric}{{") and isinstance(value, float)
    }


def slow_topology(clock: SlowClock) -> StreamsBuilder:
    builder = StreamsBuilder()
    words = builder.stream("in").map_values(clock.takes(5, str.upper), name="upper")
    words.filter(lambda key, word: clock.takes(2, bool)(word), name="known").to("out", name="end")
    words.map_values(clock.takes(40, len), name="slow").foreach(lambda *_: None, name="ignore")
    return builder


def test_node_is_charged_for_its_own_time_alone(clock: SlowClock) -> None:
    builder = slow_topology(clock)
    with TopologyTestDriver(builder.build(), config("DEBUG"), initial_wall_clock=0) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT)
        for _ in range(10):
            topic.pipe_input("k", "barley")
        driver.advance_wall_clock_time(timedelta(seconds=1))
        averages = times(driver, "process-latency-avg")
        assert averages == pytest.approx(
            {"upper": 5, "known": 2, "end": 0, "slow": 40, "ignore": 0}, abs=1e-6
        )
        assert times(driver, "process-latency-max")["slow"] == pytest.approx(40)
        # 10 records of 40 ms in one second.
        assert times(driver, "process-ratio")["slow"] == pytest.approx(0.4)


def test_time_before_an_error_counts_and_the_parent_is_not_charged(clock: SlowClock) -> None:
    def fail(_: Any) -> Any:
        raise ValueError("no number")

    builder = StreamsBuilder()
    builder.stream("in").map_values(clock.takes(3, str.upper), name="upper") \
        .map_values(clock.takes(20, fail), name="fail").to("out")
    settings = config("DEBUG", processing_exception_handler="continue")
    with TopologyTestDriver(builder.build(), settings, initial_wall_clock=0) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("k", "v")
        averages = times(driver, "process-latency-avg")
        assert (averages["upper"], averages["fail"]) == pytest.approx((3, 20))


def test_nodes_below_a_cache_are_timed_when_it_is_flushed(clock: SlowClock) -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(store="counts").to_stream() \
        .map_values(clock.takes(7, str), name="text").to("out")
    with TopologyTestDriver(builder.build(), config("DEBUG"), initial_wall_clock=0) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("k", "v")
        averages = times(driver, "process-latency-avg")
        assert averages["text"] == pytest.approx(7)
        assert averages["KSTREAM-AGGREGATE-0000000001"] == pytest.approx(0, abs=1e-6)


class Ticking(Processor[str, str, str, str]):
    """Forwards a record every second. Its clock is a class attribute: tasks create processors."""

    clock: SlowClock

    def init(self, context: ProcessorContext[str, str]) -> None:
        context.schedule(timedelta(seconds=1), PunctuationType.WALL_CLOCK_TIME, self.tick)
        self.context = context

    def tick(self, now: int) -> None:
        self.clock.seconds += 0.03
        self.context.forward(Record("k", "tick", now))

    def process(self, record: Record[str, str]) -> None:
        pass


def test_punctuators_are_timed_without_the_nodes_to_which_they_forward(clock: SlowClock) -> None:
    Ticking.clock = clock
    builder = StreamsBuilder()
    builder.stream("in").process(Ticking, name="ticking") \
        .map_values(clock.takes(9, str.upper), name="upper").to("out")
    with TopologyTestDriver(builder.build(), config("DEBUG"), initial_wall_clock=0) as driver:
        for _ in range(10):
            driver.advance_wall_clock_time(timedelta(seconds=1))
        # 30 ms in each second.
        assert times(driver, "punctuate-ratio") == pytest.approx({"ticking": 0.03})
        assert times(driver, "process-ratio")["upper"] == pytest.approx(0.009)


def test_time_is_not_measured_at_info(clock: SlowClock) -> None:
    builder = slow_topology(clock)
    with TopologyTestDriver(builder.build(), config("INFO"), initial_wall_clock=0) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("k", "v")
        assert times(driver, "process-latency-avg") == {}
