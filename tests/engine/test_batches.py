"""Batches: clocks, printed and logged lines, limits, topics, stores, global tables."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from engine.harness import OLD_TIMES, ONE_TO_ONE, Application, config_of, topology_of
from penstock import (
    Printed,
    Processor,
    PunctuationType,
    Record,
    Serdes,
    Stores,
    StreamsBuilder,
    Topology,
)
from penstock.engine.packaging.bundle import Bundle
from penstock.engine.worker.outcome import TaskOutcome, decode_outcomes
from penstock.engine.worker.worker import Worker
from penstock.log.errors import LogBusy
from penstock.log.types import StagedRecords, TopicPartition
from penstock.record import TaskId


def by_task(outcomes: list[TaskOutcome]) -> dict[TaskId, TaskOutcome]:
    return {outcome.task_id: outcome for outcome in outcomes}


# ---- clocks ----------------------------------------------------------------------------------


class Ticking(Processor[str, str]):
    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(timedelta(seconds=10), PunctuationType.WALL_CLOCK_TIME, self.tick)

    def process(self, record: Record[str, str]) -> None:
        """Ignores records."""

    def tick(self, now: int) -> None:
        self.context.forward(Record("tick", str(self.context.task_id), now))


def test_wall_clock_punctuation_fires_in_a_batch_without_input(tmp_path: Path) -> None:
    topology = topology_of(lambda builder: builder.stream("in").process(Ticking).to("out"))
    with Application(topology, tmp_path, {"in": 2, "out": 1}) as app:
        app.now = 1000
        assert app.run() == 1
        assert app.planner.next_due == 11_000
        app.now = 10_999
        assert app.run() == 0
        app.now = 11_500
        assert app.run() == 1
        assert sorted(app.texts("out")) == [("tick", "0_0", 11_500), ("tick", "0_1", 11_500)]
        app.crash()
        app.now = 20_999
        app.run()
        assert len(app.rows("out")) == 2
        app.now = 21_000
        app.run()
        assert len(app.rows("out")) == 4


# ---- printed and logged lines ----------------------------------------------------------------


def test_outcome_contains_printed_lines(tmp_path: Path) -> None:
    topology = topology_of(lambda builder: builder.stream("in").print(Printed("seen")))
    with Application(topology, tmp_path, {"in": 1}) as app:
        app.send("in", ("k", "v", 1))
        app.run()
        (outcome,) = app.outcomes
        assert outcome.printed == ((None, "[seen]: k, v"),)
        assert outcome.records_consumed == 1
        assert outcome.read == {"in": (1, outcome.read["in"][1])}


def test_outcome_contains_log_lines_of_user_code(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def log_value(key: str, value: str) -> None:
        logging.getLogger("shop.orders").info("got %s", value)
        logging.getLogger("py4j").warning("noise")

    topology = topology_of(lambda builder: builder.stream("in").foreach(log_value))
    with Application(topology, tmp_path, {"in": 1}, log_level=logging.INFO) as app:
        app.send("in", ("k", "v", 1))
        plan = app.plan()
        assert plan is not None
        worker = Worker(app.bundle)
        before = logging.getLogger().level, list(logging.getLogger().handlers)
        try:
            blocks = [block for _, block in worker.run_lane(0, 0, plan, 1, [])]
        finally:
            worker.close()
        (outcome,) = decode_outcomes(blocks)
        (line,) = outcome.logged
        assert line[:3] == (logging.INFO, "shop.orders", "got v")
        assert (logging.getLogger().level, logging.getLogger().handlers) == before


def test_excess_log_lines_are_dropped_and_counted(tmp_path: Path) -> None:
    def log_value(key: str, value: str) -> None:
        logging.getLogger("shop").warning("x" * 10_000)

    topology = topology_of(lambda builder: builder.stream("in").foreach(log_value))
    with Application(topology, tmp_path, {"in": 1}) as app:
        app.send("in", *[("k", "v", 1)] * 1007)
        plan = app.plan()
        assert plan is not None
        worker = Worker(app.bundle)
        try:
            blocks = [block for _, block in worker.run_lane(0, 0, plan, 1, [])]
        finally:
            worker.close()
        (outcome,) = decode_outcomes(blocks)
        assert len(outcome.logged) == 1001
        assert outcome.logged[-1].text == "7 more log lines of this task are omitted."
        assert len(outcome.logged[0].text) == 8192


# ---- limits ----------------------------------------------------------------------------------


def test_large_results_are_staged(tmp_path: Path) -> None:
    topology = topology_of(lambda builder: builder.table("in", store="kept").to_stream().to("out"))
    with Application(topology, tmp_path, {"in": 1, "out": 1}, staging_threshold_bytes=1000) as app:
        rows = [(f"k{n}", "v" * 100, n) for n in range(50)]
        app.send("in", *rows)
        app.run()
        (outcome,) = app.outcomes
        assert [type(each.records) for each in (*outcome.outputs, *outcome.changes)] == [
            StagedRecords, StagedRecords
        ]
        assert app.texts("out") == rows
        assert app.texts("app-kept-changelog") == rows


def test_task_with_a_large_result_stops_early_but_consumes_shuffled_records(
    tmp_path: Path,
) -> None:
    """The second stage also reads a topic. Only its records can wait for the next batch."""
    builder = StreamsBuilder()
    moved = builder.stream("in").select_key(lambda key, value: value).repartition(name="moved")
    moved.merge(builder.stream("own")).to("out")
    with Application(
        builder.build(), tmp_path, {"in": 1, "own": 1, "out": 1}, max_result_bytes=1
    ) as app:
        app.send("in", *[("k", f"in-{n}", n) for n in range(3000)])
        app.send("own", *[("k", f"own-{n}", n) for n in range(3000)])
        app.run_batch()
        first = by_task(app.outcomes)
        sender, receiver = first[TaskId(0, 0)], first[TaskId(1, 0)]
        assert 0 < sender.offsets["in", 0] < 3000
        assert sum(each.records for each in receiver.consumed) == sender.offsets["in", 0]
        assert receiver.record.shuffled_offsets == {
            "app-moved-repartition": sender.offsets["in", 0]
        }
        assert app.run() > 1
        values = [value for _, value, _ in app.texts("out")]
        assert len(values) == 6000
        for source in ("in", "own"):
            mine = [value for value in values if value.startswith(source)]
            assert mine == [f"{source}-{n}" for n in range(3000)]


def test_end_of_a_range_is_committed_if_compaction_removed_its_records(tmp_path: Path) -> None:
    topology = topology_of(lambda builder: builder.stream("in").to("out"))
    with Application(topology, tmp_path, {"in": 1, "out": 1}, batch=2) as app:
        app.log.alter_topic("in", {"cleanup.policy": "compact"})
        app.send("in", *[("k", str(n), n) for n in range(5)], ("q", "5", 5))
        app.log.clean(["in"], force=True)
        assert [value for _, value, _ in app.texts("in")] == ["4", "5"]
        committed = []
        while (result := app.run_batch()) is not None:
            committed.append(result.offsets["in", 0])
        assert committed == [2, 4, 6]
        assert [value for _, value, _ in app.texts("out")] == ["4", "5"]


# ---- dynamic topics --------------------------------------------------------------------------


def dynamic_topic() -> Topology:
    return topology_of(
        lambda builder: builder.stream("in").to(lambda key, value, context: value)
    )


def test_dynamic_topic_is_looked_up(tmp_path: Path) -> None:
    with Application(dynamic_topic(), tmp_path, {"in": 1, "a": 3, "b": 1}) as app:
        app.send("in", ("k", "a", 1), ("k", "b", 2))
        app.run()
        app.log.create_topic("c", 1, OLD_TIMES)
        app.send("in", ("k", "c", 3))
        app.run()
        assert [len(app.rows(topic)) for topic in "abc"] == [1, 1, 1]


def test_missing_topic_goes_to_the_production_handler(tmp_path: Path) -> None:
    config = config_of(production_exception_handler="continue")
    with Application(dynamic_topic(), tmp_path, {"in": 1, "a": 1}, config=config) as app:
        app.send("in", ("k", "nowhere", 1), ("k", "a", 2))
        app.run()
        assert app.texts("a") == [("k", "a", 2)]
        (outcome,) = app.outcomes
        assert outcome.counters["dropped-records-total"] == 1


def test_too_large_record_goes_to_the_production_handler(tmp_path: Path) -> None:
    config = config_of(production_exception_handler="continue")
    topology = topology_of(lambda builder: builder.stream("in").to("small"))
    with Application(topology, tmp_path, {"in": 1, "small": 1}, config=config) as app:
        app.log.alter_topic("small", {"max.message.bytes": "10"})
        app.send("in", ("k", "x" * 20, 1), ("k", "fits", 2))
        app.run()
        assert app.texts("small") == [("k", "fits", 2)]


# ---- stores ----------------------------------------------------------------------------------


class Numbering(Processor[str, str]):
    """Counts in a store that has no changelog."""

    def process(self, record: Record[str, str]) -> None:
        store = self.context.get_state_store("numbers")
        number = (store.get(record.key) or 0) + 1
        store.put(record.key, number)
        self.context.forward(record.with_value(str(number)))


def numbering() -> Topology:
    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value_store_builder(
        Stores.persistent_key_value_store("numbers"), Serdes.string(), Serdes.long()
    ).with_logging_disabled())
    builder.stream("in").process(Numbering, "numbers").to("out")
    return builder.build()


@pytest.mark.parametrize("new_workers", [False, True])
def test_store_without_a_changelog_is_kept_on_its_host(
    new_workers: bool, tmp_path: Path
) -> None:
    with Application(
        numbering(), tmp_path, ONE_TO_ONE, batch=2, new_workers=new_workers
    ) as app:
        app.send("in", *[("k", "v", n) for n in range(7)])
        plan = app.plan()
        assert plan is not None
        # Results that are not committed have no effect.
        app.compute.compute(plan)
        app.run()
        assert [value for _, value, _ in app.texts("out")] == [str(n) for n in range(1, 8)]


def test_source_topic_can_serve_as_changelog(tmp_path: Path) -> None:
    config = config_of(topology_optimization="all")
    builder = StreamsBuilder(config)
    table = builder.table("table", store="table")
    builder.stream("in").join(table, lambda left, right: f"{left}+{right}").to("out")
    with Application(
        builder.build(), tmp_path, {"in": 1, "table": 1, "out": 1}, config=config,
        new_workers=True,
    ) as app:
        app.send("table", ("k", "1", 0))
        app.run()
        app.send("table", ("k", "2", 10))
        app.send("in", ("k", "a", 5), ("k", "b", 15))
        app.run()
        assert [value for _, value, _ in app.texts("out")] == ["a+1", "b+2"]
        assert "app-table-changelog" not in {topic.name for topic in app.log.topics()}
        record = app.planner.records[TaskId(0, 0)]
        assert record.positions == {"table": 2}


def test_cache_forwards_one_update_per_key_and_batch(tmp_path: Path) -> None:
    config = config_of(statestore_cache_max_bytes=1_000_000)
    topology = topology_of(
        lambda builder: builder.stream("in").group_by_key().count(store="counts")
        .to_stream().map_values(str).to("out")
    )
    with Application(topology, tmp_path, {"in": 1, "out": 1}, config=config) as app:
        app.send("in", *[("k", "v", n) for n in range(5)])
        app.run()
        app.send("in", *[("k", "v", n) for n in range(5)])
        app.run()
        assert [value for _, value, _ in app.texts("out")] == ["5", "10"]


def test_recorded_store_positions_match_the_changelogs(tmp_path: Path) -> None:
    topology = topology_of(lambda builder: builder.table("in", store="kept").to_stream().to("out"))
    with Application(topology, tmp_path, ONE_TO_ONE, batch=5) as app:
        app.send("in", *[(f"k{n}", "v", n) for n in range(20)])
        app.run()
        for task_id, record in app.planner.records.items():
            rows = app.rows("app-kept-changelog", task_id.partition)
            assert record.positions == {"kept": len(rows)}


def test_state_directory_is_resolved_by_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology = topology_of(lambda builder: builder.table("in", store="kept").to_stream().to("out"))
    with Application(topology, tmp_path, {"in": 1, "out": 1}) as app:
        app.send("in", ("k", "v", 1))
        app.run()
        assert (tmp_path / "state" / "app" / "0_0").is_dir()
        monkeypatch.chdir(tmp_path)
        bundle = replace(app.bundle, config=app.config.with_(state_dir="relative"))
        assert bundle.directory == tmp_path / "relative" / "app"
        assert Bundle.load(bundle.dump()).directory == bundle.directory


class WriteFile(Processor[str, str]):
    def process(self, record: Record[str, str]) -> None:
        (Path(self.context.state_dir) / "generation.txt").write_text(record.value)


def test_processor_can_keep_its_own_files(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value_store_builder(
        Stores.persistent_key_value_store("kept"), Serdes.string(), Serdes.string()
    ))
    builder.stream("in").process(WriteFile, "kept")
    with Application(builder.build(), tmp_path, {"in": 1}) as app:
        app.send("in", ("k", "v", 1))
        app.run()
        (found,) = (tmp_path / "state").rglob("generation.txt")
        # Outside of the replica, which deletes unknown files.
        assert found.relative_to(tmp_path) == Path("state/app/0_0/files/generation.txt")


# ---- global tables ---------------------------------------------------------------------------


def test_batch_sees_a_global_table_as_of_its_plan(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    table = builder.global_table("global")
    (builder.stream("in").left_join(table, lambda key, value: value, lambda a, b: f"{a}+{b}")
        .to("out"))
    with Application(builder.build(), tmp_path, {"in": 1, "global": 1, "out": 1}) as app:
        app.send("global", ("g", "1", 0))
        app.send("in", ("k", "g", 1))
        plan = app.plan()
        assert plan is not None
        app.send("global", ("g", "2", 2))
        (outcome,) = decode_outcomes(app.compute.compute(plan))
        (append,) = outcome.outputs
        assert append.records.column("value").to_pylist() == [b"g+1"]  # type: ignore[union-attr]
        later = app.plan()
        assert later is not None
        (outcome,) = decode_outcomes(app.compute.compute(later))
        (append,) = outcome.outputs
        assert append.records.column("value").to_pylist() == [b"g+2"]  # type: ignore[union-attr]


def test_changelog_end_before_the_written_position_is_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker may acknowledge a commit before all partitions show it."""

    def define(builder: StreamsBuilder) -> None:
        counts: Any = builder.stream("in").group_by_key().count(store="counts")
        counts.to_stream().map_values(str).to("out")

    with Application(topology_of(define), tmp_path, {"in": 1, "out": 1}) as app:
        app.send("in", ("a", "x", 1))
        app.run()
        read_offsets = app.log.offsets
        changelog = TopicPartition("app-counts-changelog", 0)
        before = read_offsets([changelog])
        app.send("in", ("a", "x", 2))
        app.run()
        app.send("in", ("a", "x", 3))
        with monkeypatch.context() as patch:
            patch.setattr(app.log, "offsets", lambda wanted: {**read_offsets(wanted), **before})
            with pytest.raises(LogBusy, match="does not show the records yet"):
                app.run_batch()
        app.run()
        assert [value for _, value, _ in app.texts("out")] == ["1", "2", "3"]
