"""Explicit commits: when outputs become visible, and what caches merge."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from penstock import (
    BufferConfig,
    Processor,
    PunctuationType,
    Record,
    Serdes,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    Topology,
)
from penstock.testing import TopologyTestDriver

CACHED = StreamsConfig(
    application_id="app", default_key_serde=Serdes.string(), default_value_serde=Serdes.string()
)
UNCACHED = CACHED.with_(statestore_cache_max_bytes=0)
LONG = Serdes.long()


def counting() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(store="counts").to_stream().to("out", value=LONG)
    return builder.build()


def two_repartitions() -> Topology:
    """Count by value, then count the values with each count."""
    builder = StreamsBuilder()
    (
        builder.stream("in").group_by(lambda key, value: value).count(store="first").to_stream()
        .group_by(lambda key, count: str(count), value=LONG).count(store="second").to_stream()
        .to("out", value=LONG)
    )
    return builder.build()


def outputs(driver: TopologyTestDriver) -> list[Any]:
    return driver.create_output_topic("out", value=LONG).read_key_values_to_list()


def feed(driver: TopologyTestDriver, *pairs: tuple[str, str]) -> None:
    driver.create_input_topic("in").pipe_key_value_list(pairs)


def test_without_a_cache_a_commit_emits_every_update() -> None:
    with TopologyTestDriver(counting(), UNCACHED, auto_commit=False) as driver:
        feed(driver, ("a", "x"), ("a", "y"), ("b", "z"))
        assert outputs(driver) == []
        driver.commit()
        assert outputs(driver) == [("a", 1), ("a", 2), ("b", 1)]


def test_cache_emits_only_the_last_update_of_a_key() -> None:
    with TopologyTestDriver(counting(), CACHED, auto_commit=False) as driver:
        feed(driver, ("a", "x"), ("b", "z"), ("a", "y"))
        driver.commit()
        assert outputs(driver) == [("b", 1), ("a", 2)]
        assert len(driver.read_raw("app-counts-changelog")) == 2


def test_store_shows_uncommitted_values() -> None:
    with TopologyTestDriver(counting(), CACHED, auto_commit=False) as driver:
        feed(driver, ("a", "x"), ("a", "y"))
        assert driver.get_key_value_store("counts")["a"] == 2


@pytest.mark.parametrize("interval", [timedelta(seconds=30), 30_000])
def test_wall_clock_triggers_a_commit_after_the_interval(interval: Any) -> None:
    with TopologyTestDriver(counting(), CACHED, commit_interval=interval) as driver:
        feed(driver, ("a", "x"))
        driver.advance_wall_clock_time(timedelta(seconds=29))
        assert outputs(driver) == []
        driver.advance_wall_clock_time(timedelta(seconds=1))
        assert outputs(driver) == [("a", 1)]
        feed(driver, ("a", "x"))
        driver.advance_wall_clock_time(timedelta(seconds=29))
        assert outputs(driver) == []
        driver.commit()
        assert outputs(driver) == [("a", 2)]
        driver.advance_wall_clock_time(timedelta(seconds=1))
        feed(driver, ("a", "x"))
        driver.advance_wall_clock_time(timedelta(seconds=28))
        assert outputs(driver) == []


def test_timedelta_max_disables_automatic_commits() -> None:
    with TopologyTestDriver(counting(), CACHED, commit_interval=timedelta.max) as driver:
        feed(driver, ("a", "x"))
        driver.advance_wall_clock_time(timedelta(days=10_000))
        assert outputs(driver) == []
        driver.commit()
        assert outputs(driver) == [("a", 1)]


@pytest.mark.parametrize("partitions", [None, 3])
def test_records_reach_other_subtopologies_at_commits_only(partitions: int | None) -> None:
    driver = TopologyTestDriver(
        two_repartitions(), UNCACHED, partitions=partitions, auto_commit=False
    )
    with driver:
        feed(driver, ("1", "x"), ("2", "x"), ("3", "y"))
        assert list(driver.get_key_value_store("first").all()) == []
        driver.commit()
        assert dict(driver.get_key_value_store("first").all()) == {"x": 2, "y": 1}
        assert dict(driver.get_key_value_store("second").all()) == {"1": 2, "2": 1}
        assert dict(outputs(driver)) == {"1": 2, "2": 1}


@pytest.mark.parametrize("partitions", [None, 2])
def test_commit_processes_a_cycle_to_its_end(partitions: int | None) -> None:
    builder = StreamsBuilder()
    # The topology reads its own output; values get shorter by one each time.
    builder.stream("in").map_values(lambda value: value[1:]).filter(
        lambda key, value: bool(value)
    ).to("in")
    driver = TopologyTestDriver(
        builder.build(), UNCACHED, partitions=partitions, auto_commit=False
    )
    with driver:
        feed(driver, ("a", "wxyz"))
        assert driver.produced_topic_names() == set()
        driver.commit()
        assert driver.create_output_topic("in").read_values_to_list() == ["xyz", "yz", "z"]


def test_processor_can_request_a_commit() -> None:
    class RequestCommit(Processor[str, str]):
        def process(self, record: Record[str, str]) -> None:
            self.context.forward(record)
            if record.value == "now":
                self.context.commit()

    builder = StreamsBuilder()
    builder.stream("in").process(RequestCommit).to("out")
    with TopologyTestDriver(builder.build(), CACHED, auto_commit=False) as driver:
        out = driver.create_output_topic("out")
        feed(driver, ("a", "wait"))
        assert out.is_empty
        feed(driver, ("a", "now"))
        assert out.read_values_to_list() == ["wait", "now"]


def test_output_of_a_wall_clock_punctuator_is_visible_after_the_commit() -> None:
    class Ticking(Processor[str, str]):
        def init(self, context: Any) -> None:
            super().init(context)
            context.schedule(10, PunctuationType.WALL_CLOCK_TIME, self.tick)

        def process(self, record: Record[str, str]) -> None:
            pass

        def tick(self, now: int) -> None:
            self.context.forward(Record("tick", str(now), now))

    builder = StreamsBuilder()
    builder.stream("in").process(Ticking).to("out")
    with TopologyTestDriver(builder.build(), CACHED, commit_interval=25) as driver:
        out = driver.create_output_topic("out")
        driver.advance_wall_clock_time(10)
        driver.advance_wall_clock_time(10)
        assert out.is_empty
        driver.advance_wall_clock_time(5)
        assert out.read_values_to_list() == ["10", "20"]


@pytest.mark.parametrize(
    ("guarantee", "at_once"), [("at_least_once", True), ("exactly_once", False)]
)
def test_dead_letter_of_a_waiting_task_needs_a_commit_in_a_transaction_only(
    guarantee: str, at_once: bool
) -> None:
    """The task waits for topic "b", so it neither processes nor commits."""
    builder = StreamsBuilder()
    builder.stream("a", key=LONG).merge(builder.stream("b", key=LONG)).to("out", key=LONG)
    config = UNCACHED.with_(
        processing_guarantee=guarantee, max_task_idle_ms=5,
        deserialization_exception_handler="continue",
        errors_dead_letter_queue_topic_name="dead",
    )
    with TopologyTestDriver(builder.build(), config) as driver:
        driver.create_input_topic("a").pipe_input("not a long", "x")
        assert [record.value for record in driver.read_raw("dead")] == [b"x"] * at_once
        driver.advance_wall_clock_time(5)
        assert [record.value for record in driver.read_raw("dead")] == [b"x"] * (not at_once)


def test_dead_letter_of_a_suppressed_row_has_its_source_record() -> None:
    def fail(value: str) -> str:
        raise ValueError(value)

    builder = StreamsBuilder()
    rows = builder.table("in").suppress(Suppressed.until_time_limit(5, BufferConfig.unbounded()))
    rows.map_values(fail).to_stream().to("out")
    config = UNCACHED.with_(
        processing_exception_handler="continue", errors_dead_letter_queue_topic_name="dead"
    )
    with TopologyTestDriver(builder.build(), config) as driver:
        topic = driver.create_input_topic("in")
        topic.pipe_input("a", "x", timestamp=1)
        topic.pipe_input("b", "y", timestamp=10)
        assert [(each.key, each.value) for each in driver.read_raw("dead")] == [(b"a", b"x")]
