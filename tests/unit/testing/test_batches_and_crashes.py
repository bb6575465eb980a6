"""`new_batch` recreates tasks; `crash` discards uncommitted work."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    Materialized,
    Processor,
    PunctuationType,
    Record,
    Serdes,
    StoreBuilder,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    TimeWindows,
    Topology,
)
from penstock.dsl.options import BufferConfig
from penstock.errors import InvalidStateStoreException, ProcessingFailedException
from penstock.testing import TopologyTestDriver

CONFIG = StreamsConfig(
    application_id="app", default_key_serde=Serdes.string(), default_value_serde=Serdes.string()
)
UNCACHED = CONFIG.with_(statestore_cache_max_bytes=0)
LONG = Serdes.long()


def counting(**options: Any) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(store=Materialized("counts", **options)).to_stream(
    ).to("out", value=LONG)
    return builder.build()


def suppressing(logging: bool) -> Topology:
    builder = StreamsBuilder()
    buffer = BufferConfig.unbounded()
    if not logging:
        buffer = buffer.with_logging_disabled()
    grouped = builder.stream("in", key=Serdes.string(), value=Serdes.string()).group_by_key()
    grouped.windowed_by(TimeWindows.of(timedelta(seconds=1))).count(store="w").suppress(
        Suppressed.until_window_closes(buffer)
    ).to_stream(lambda windowed, count: windowed.key).to("out", value=LONG)
    return builder.build()


class LifeCycleProcessor(Processor[str, str]):
    """Records init and close, schedules punctuators on both clocks, counts records in a field."""

    calls: list[str]

    def init(self, context: Any) -> None:
        super().init(context)
        self.calls.append("init")
        self.records = 0
        context.schedule(10, PunctuationType.WALL_CLOCK_TIME, lambda now: self.emit("wall", now))
        context.schedule(10, PunctuationType.STREAM_TIME, lambda now: self.emit("stream", now))
        once = context.schedule(
            1, PunctuationType.WALL_CLOCK_TIME, lambda now: (self.emit("once", now), once.cancel())
        )

    def emit(self, what: str, now: int) -> None:
        self.context.forward(Record(what, str(now), now))

    def process(self, record: Record[str, str]) -> None:
        self.records += 1
        self.context.forward(record.with_value(str(self.records)))

    def close(self) -> None:
        self.calls.append("close")


def life_cycle_topology() -> tuple[Topology, list[str]]:
    calls: list[str] = []
    builder = StreamsBuilder()
    builder.stream("in").process(type("W", (LifeCycleProcessor,), {"calls": calls})).to("out")
    return builder.build(), calls


def feed(driver: TopologyTestDriver, *pairs: tuple[str, str], **options: Any) -> None:
    driver.create_input_topic("in").pipe_key_value_list(pairs, **options)


def outputs(driver: TopologyTestDriver, value: Any = LONG) -> list[Any]:
    return driver.create_output_topic("out", value=value).read_key_values_to_list()


# ---- batches -------------------------------------------------------------------------------


def test_new_batch_keeps_the_stores() -> None:
    with TopologyTestDriver(counting(), CONFIG) as driver:
        feed(driver, ("a", "x"), ("a", "y"))
        store = driver.get_key_value_store("counts")
        driver.new_batch()
        with pytest.raises(InvalidStateStoreException, match="is closed"):
            store.get("a")
        assert driver.get_key_value_store("counts")["a"] == 2
        feed(driver, ("a", "z"))
        assert outputs(driver) == [("a", 1), ("a", 2), ("a", 3)]


def test_new_batch_commits_first() -> None:
    with TopologyTestDriver(counting(), CONFIG, auto_commit=False) as driver:
        feed(driver, ("a", "x"), ("a", "y"))
        driver.new_batch()
        assert outputs(driver) == [("a", 2)]


def test_new_batch_recreates_processors_and_keeps_schedules() -> None:
    topology, calls = life_cycle_topology()
    with TopologyTestDriver(topology, CONFIG) as driver:
        feed(driver, ("a", ""), ("a", ""), start=0, advance=1)
        driver.advance_wall_clock_time(4)
        driver.new_batch()
        assert calls == ["init", "close", "init"]
        feed(driver, ("a", ""), start=9)
        driver.advance_wall_clock_time(5)
        driver.new_batch()
        feed(driver, ("a", ""), start=12)
        driver.advance_wall_clock_time(1)
        assert outputs(driver, None) == [
            ("a", "1"), ("stream", "0"), ("a", "2"), ("once", "4"), ("a", "1"), ("a", "1"),
            ("stream", "12"), ("wall", "10"),
        ]
    assert calls == ["init", "close"] * 3


def test_schedules_with_equal_times_keep_their_order() -> None:
    class Five(Processor[str, str]):
        def init(self, context: Any) -> None:
            for name in "ABCDE":
                context.schedule(
                    10, PunctuationType.WALL_CLOCK_TIME,
                    lambda now, name=name: context.forward(Record(name, "", now)),
                )

        def process(self, record: Record[str, str]) -> None:
            pass

    def run(in_batches: bool) -> list[Any]:
        builder = StreamsBuilder()
        builder.stream("in").process(Five).to("out")
        with TopologyTestDriver(builder.build(), CONFIG) as driver:
            for _ in range(5):
                driver.advance_wall_clock_time(10)
                if in_batches:
                    driver.new_batch()
            return outputs(driver, None)

    assert run(in_batches=True) == run(in_batches=False)


class OneShot(Processor[str, str]):
    """Schedules one call for each record."""

    def process(self, record: Record[str, str]) -> None:
        def fire(now: int) -> None:
            schedule.cancel()
            self.context.forward(Record(record.key, "fired", now))

        schedule = self.context.schedule(10, PunctuationType.STREAM_TIME, fire)


@pytest.mark.parametrize("size", [None, 1, 2])
def test_schedules_for_single_records_fire_in_every_batch(size: int | None) -> None:
    builder = StreamsBuilder()
    builder.stream("in").process(OneShot).to("out")
    with TopologyTestDriver(builder.build(), CONFIG, batch_size=size) as driver:
        feed(driver, *[(key, "") for key in "abcde"], start=0, advance=5)
        assert outputs(driver, None) == [(key, "fired") for key in "abcde"]


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("logging", [True, False])
def test_suppress_buffer_survives_a_new_batch(size: int, logging: bool) -> None:
    with TopologyTestDriver(suppressing(logging), UNCACHED, batch_size=size) as driver:
        feed(driver, ("a", ""), ("b", ""), ("a", ""), ("c", ""), start=0, advance=300)
        assert outputs(driver) == []
        feed(driver, ("d", ""), start=1_000)
        assert outputs(driver) == [("a", 2), ("b", 1), ("c", 1)]


def test_batch_size_starts_new_batches() -> None:
    topology, calls = life_cycle_topology()
    with TopologyTestDriver(topology, CONFIG, batch_size=2) as driver:
        feed(driver, *[("a", "")] * 5)
        assert [value for key, value in outputs(driver, None) if key == "a"] == list("12121")
        assert calls.count("init") == 3
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        TopologyTestDriver(topology, CONFIG, batch_size=0)


def test_batch_without_automatic_commits_commits_once() -> None:
    with TopologyTestDriver(counting(), CONFIG, auto_commit=False, batch_size=3) as driver:
        feed(driver, *[("a", "")] * 7)
        assert outputs(driver) == [("a", 3), ("a", 6)]


def test_resource_survives_a_new_batch_but_not_a_crash() -> None:
    class UseResource(Processor[str, str]):
        def init(self, context: Any) -> None:
            super().init(context)
            self.shared = context.resource("list", list)

        def process(self, record: Record[str, str]) -> None:
            self.shared.append(record.value)
            self.context.forward(record.with_value("".join(self.shared)))

    builder = StreamsBuilder()
    builder.stream("in").process(UseResource).to("out")
    with TopologyTestDriver(builder.build(), CONFIG) as driver:
        feed(driver, ("k", "a"))
        driver.new_batch()
        feed(driver, ("k", "b"))
        driver.crash()
        feed(driver, ("k", "c"))
        assert [value for _, value in outputs(driver, None)] == ["a", "ab", "c"]


def test_counters_are_summed_over_batches() -> None:
    with TopologyTestDriver(counting(), CONFIG, batch_size=1) as driver:
        driver.create_input_topic("in").pipe_value_list(["x", "y", "z"])
        assert driver.metrics()["dropped-records-total"] == 3


# ---- crashes -------------------------------------------------------------------------------


@pytest.mark.parametrize("partitions", [None, 3])
@pytest.mark.parametrize("config", [CONFIG, UNCACHED])
def test_uncommitted_work_is_redone_after_a_crash(
    partitions: int | None, config: StreamsConfig
) -> None:
    def run(crash: bool) -> tuple[list[Any], list[Any]]:
        driver = TopologyTestDriver(counting(), config, partitions=partitions, auto_commit=False)
        with driver:
            feed(driver, ("a", ""), ("b", ""), ("a", ""))
            driver.commit()
            feed(driver, ("a", ""), ("c", ""))
            if crash:
                driver.crash()
            driver.commit()
            return outputs(driver), list(driver.get_key_value_store("counts").all())

    assert run(crash=True) == run(crash=False)


def test_crash_before_the_first_commit_starts_over() -> None:
    with TopologyTestDriver(counting(), UNCACHED, auto_commit=False) as driver:
        feed(driver, ("a", ""), ("a", ""))
        driver.crash()
        driver.crash()
        driver.commit()
        assert outputs(driver) == [("a", 1), ("a", 2)]


def test_crash_after_a_commit_changes_nothing() -> None:
    with TopologyTestDriver(counting(), CONFIG) as driver:
        feed(driver, ("a", ""), ("a", ""))
        driver.crash()
        feed(driver, ("a", ""))
        assert outputs(driver) == [("a", 1), ("a", 2), ("a", 3)]


def test_crash_does_not_close_processors() -> None:
    topology, calls = life_cycle_topology()
    driver = TopologyTestDriver(topology, CONFIG)
    driver.crash()
    assert calls == ["init", "init"]
    driver.close()


def test_store_without_a_changelog_survives_a_batch_but_not_a_crash() -> None:
    with TopologyTestDriver(counting(logging=False), CONFIG) as driver:
        feed(driver, ("a", ""))
        driver.new_batch()
        assert driver.get_key_value_store("counts")["a"] == 1
        driver.crash()
        assert list(driver.get_key_value_store("counts").all()) == []


def test_store_is_restored_from_its_source_topic() -> None:
    config = UNCACHED.with_(topology_optimization="all")
    builder = StreamsBuilder()
    builder.table("in", store="table").to_stream().to("out")
    with TopologyTestDriver(builder.build(config), config, auto_commit=False) as driver:
        feed(driver, ("a", "1"), ("b", "1"), ("a", "2"))
        driver.create_input_topic("in").pipe_input(None, "no key")
        driver.commit()
        assert not any("changelog" in topic for topic in driver.produced_topic_names())
        feed(driver, ("b", "2"))
        driver.crash()
        assert dict(driver.get_key_value_store("table").all()) == {"a": "2", "b": "2"}
        driver.commit()
        assert outputs(driver, None) == [("a", "1"), ("b", "1"), ("a", "2"), ("b", "2")]


def test_suppress_buffer_is_restored() -> None:
    with TopologyTestDriver(suppressing(logging=True), UNCACHED) as driver:
        feed(driver, ("a", ""), ("b", ""), ("a", ""), start=0, advance=300)
        driver.crash()
        feed(driver, ("d", ""), start=1_000)
        assert outputs(driver) == [("a", 2), ("b", 1)]


def test_row_that_reenters_the_buffer_is_restored_with_its_new_time() -> None:
    builder = StreamsBuilder()
    builder.table("in").suppress(
        Suppressed.until_time_limit(timedelta(milliseconds=10), BufferConfig.unbounded())
    ).to_stream().to("out")

    def run(crash: bool) -> list[Any]:
        with TopologyTestDriver(builder.build(), UNCACHED, auto_commit=False) as driver:
            feed(driver, ("a", "1"), start=0)
            driver.commit()
            # `a` leaves the buffer and enters it again before the commit.
            feed(driver, ("b", "1"), ("a", "2"), start=20, advance=1)
            driver.commit()
            if crash:
                driver.crash()
            feed(driver, ("c", "1"), start=30)
            driver.commit()
            return outputs(driver, None)

    assert run(crash=True) == run(crash=False) == [("a", "1"), ("b", "1")]


def test_latest_version_older_than_the_history_is_restored() -> None:
    builder = StreamsBuilder()
    builder.table("in", store=Materialized(
        supplier=Stores.persistent_versioned_key_value_store("v", timedelta(milliseconds=100))
    ))
    with TopologyTestDriver(builder.build(), UNCACHED) as driver:
        feed(driver, ("a", "old"), ("b", "new"), start=0, advance=1_000)
        driver.crash()
        store = driver.get_versioned_key_value_store("v")
        assert (store.get("a").value, store.get("b").value) == ("old", "new")


def test_global_stores_are_restored() -> None:
    builder = StreamsBuilder()
    table = builder.global_table("names", store="names")
    builder.stream("in").join(
        table, lambda key, value: value, lambda value, name: f"{value}={name}"
    ).to("out")
    with TopologyTestDriver(builder.build(), UNCACHED, auto_commit=False) as driver:
        names = driver.create_input_topic("names")
        names.pipe_input("1", "one")
        feed(driver, ("k", "1"))
        driver.commit()
        names.pipe_input("1", "uno")
        feed(driver, ("k", "1"))
        names.pipe_input("1", "eins")
        driver.crash()
        driver.commit()
        # The record sees the table as of its arrival.
        assert [value for _, value in outputs(driver, None)] == ["1=one", "1=uno"]
        assert driver.get_key_value_store("names")["1"] == "eins"


class CustomStore:
    """A custom store: a list in memory, with a changelog."""

    persistent = False

    def __init__(self) -> None:
        self.name = "own"
        self.items: list[str] = []
        self.is_open = False

    def init(self, context: Any) -> None:
        self.is_open = True
        self._context = context

    def add(self, item: str) -> None:
        self.items.append(item)
        self._context.log_change(self.name, item.encode(), b"", 0, ())

    def restore(self, key: bytes, value: bytes | None, timestamp: int, headers: Any) -> None:
        self.items.append(key.decode())

    def commit(self) -> None:
        pass

    def close(self) -> None:
        self.is_open = False


@pytest.mark.parametrize("action", ["new_batch", "crash"])
def test_custom_store_is_restored_from_its_changelog(action: str) -> None:
    class Adding(Processor[str, str]):
        def process(self, record: Record[str, str]) -> None:
            self.context.get_state_store("own").add(record.value)

    builder = StreamsBuilder()
    builder.add_state_store(StoreBuilder.custom("own", CustomStore))
    builder.stream("in").process(Adding, "own")
    with TopologyTestDriver(builder.build(), CONFIG) as driver:
        feed(driver, ("k", "a"), ("k", "b"))
        getattr(driver, action)()
        feed(driver, ("k", "c"))
        assert driver.get_state_store("own").items == ["a", "b", "c"]


def test_custom_store_reads_settings_and_measures_itself() -> None:
    class Measured(CustomStore):
        def init(self, context: Any) -> None:
            super().init(context)
            self.settings = context.app_configs_with_prefix("own.")
            self.application = context.app_configs()["application.id"]
            self.directory = context.state_dir
            self._added = context.metrics.add_rate_total_sensor("stores", self.name, "add")

        def add(self, item: str) -> None:
            super().add(item)
            self._added.record()

    class Adding(Processor[str, str]):
        def process(self, record: Record[str, str]) -> None:
            self.context.get_state_store("own").add(record.value)

    builder = StreamsBuilder()
    builder.add_state_store(StoreBuilder.custom("own", Measured))
    builder.stream("in").process(Adding, "own")
    config = CONFIG.with_(extra={"own.limit": 3})
    with TopologyTestDriver(builder.build(), config) as driver:
        feed(driver, ("k", "a"), ("k", "b"))
        store = driver.get_state_store("own")
        assert (store.settings, store.application) == ({"limit": 3}, config.application_id)
        assert Path(store.directory).is_dir()
        assert driver.metrics()["stream-stores-metrics:add-total{stores-id=own}"] == 2


def test_crash_after_a_failure_recovers() -> None:
    class Failing(Processor[str, str]):
        healthy = False

        def process(self, record: Record[str, str]) -> None:
            if record.value == "bad" and not Failing.healthy:
                raise ValueError(record.value)
            self.context.forward(record)

    builder = StreamsBuilder()
    builder.stream("in").process(Failing).to("out")
    with TopologyTestDriver(builder.build(), CONFIG, auto_commit=False) as driver:
        with pytest.raises(ProcessingFailedException):
            feed(driver, ("k", "good"), ("k", "bad"))
        with pytest.raises(ProcessingFailedException):
            driver.crash()
        Failing.healthy = True
        driver.crash()
        driver.commit()
        assert [value for _, value in outputs(driver, None)] == ["good", "bad"]


def test_uncommitted_punctuation_runs_again_after_a_crash() -> None:
    topology, _ = life_cycle_topology()
    with TopologyTestDriver(topology, CONFIG, auto_commit=False) as driver:
        driver.commit()
        driver.advance_wall_clock_time(10)
        driver.crash()
        driver.commit()
        assert outputs(driver, None) == [("once", "10"), ("wall", "10")]
