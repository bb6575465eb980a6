"""Applications that are changed or reset between two runs, without Spark."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Materialized, Serdes, Stores, StreamsBuilder, StreamsConfig
from penstock.engine.inline import start_inline
from penstock.engine.loop import Engine
from penstock.engine.reset import ResetTarget, apply_reset, plan_reset, stopped_application
from penstock.errors import TopologyException
from penstock.log import Log, RecordColumns, open_log

TEXT = Serdes.string()
Define = Callable[[StreamsBuilder], Any]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "log.db") as opened:
        for topic in ("in", "other", "out"):
            opened.create_topic(topic, 2, {"retention.ms": -1})
        yield opened


@pytest.fixture
def run(log: Log, tmp_path: Path) -> Callable[..., list[tuple[str, int]]]:
    """A function that runs an application until it has caught up and returns the new counts."""

    def run_application(
        *definitions: Define, words: str = "", **settings: Any
    ) -> list[tuple[str, int]]:
        for word in words:
            log.append("in", ord(word) % 2, RecordColumns([word.encode()], [b"v"], [1_000]))
        ends = [log.offsets([("out", n)])["out", n].end for n in range(2)]  # type: ignore[list-item]
        builder = StreamsBuilder()
        for define in definitions:
            define(builder)
        config = StreamsConfig(
            application_id="app", state_dir=tmp_path / "state", statestore_cache_max_bytes=0,
            **settings,
        )
        lease = log.take_lease("app")
        engine = Engine(builder.build(), config, log, lease, start_inline)
        try:
            while engine.run_batch() is not None:
                pass
        finally:
            engine.close()
            lease.release()
        return sorted(
            (key.decode(), int.from_bytes(value, "big"))
            for number, end in enumerate(ends) for batch in log.read("out", number, end)
            for rows in [batch.columns()]
            for key, value in zip(rows.keys, rows.values, strict=True)
            if key is not None and value is not None
        )

    return run_application


def counts(b: StreamsBuilder) -> None:
    table = b.stream("in", key=TEXT, value=TEXT).group_by_key().count(
        store=Materialized("counts", key=TEXT)
    )
    table.to_stream().to("out", key=TEXT, value=Serdes.long())


def copies(b: StreamsBuilder) -> None:
    b.stream("other", key=TEXT, value=TEXT).group_by_key().count(
        store=Materialized("others", key=TEXT)
    )


Run = Callable[..., list[tuple[str, int]]]


def test_changed_application_keeps_its_rows(run: Run) -> None:
    assert run(counts, words="ab") == [("a", 1), ("b", 1)]
    # A new sub-topology before it changes the numbers of its tasks.
    assert run(copies, counts, words="ab") == [("a", 2), ("b", 2)]
    assert run(counts, words="a") == [("a", 3)]


def test_incompatible_change_is_refused_and_the_old_version_still_runs(run: Run) -> None:
    def versions(b: StreamsBuilder) -> None:
        supplier = Stores.persistent_versioned_key_value_store("counts", 1_000)
        b.stream("in", key=TEXT, value=TEXT).group_by_key().count(
            store=Materialized(supplier=supplier, key=TEXT)
        )

    assert run(counts, words="a") == [("a", 1)]
    with pytest.raises(TopologyException, match="'counts' was a timestamped key value store and"):
        run(versions)
    assert run(counts, words="a") == [("a", 2)]


@pytest.mark.parametrize("rekeyed", [False, True])
def test_naming_an_unnamed_store_is_refused_because_it_would_lose_rows(
    run: Run, rekeyed: bool
) -> None:
    def counted(store: str | None = None, **options: Any) -> Define:
        def define(b: StreamsBuilder) -> None:
            words = b.stream("in", key=TEXT, value=TEXT)
            group_records = (
                words.group_by(lambda key, _: key, key=TEXT, value=TEXT) if rekeyed
                else words.group_by_key()
            )
            table = group_records.count(store=store, **options)
            table.to_stream().to("out", key=TEXT, value=Serdes.long())

        return define

    assert run(counted(), words="a") == [("a", 1)]
    generated = f"KSTREAM-AGGREGATE-STATE-STORE-000000000{2 if rekeyed else 1}"
    for options in ({}, {"name": "counting"}):
        with pytest.raises(TopologyException, match=f"{generated}' is now named 'c'"):
            run(counted("c", **options))
    assert run(counted(generated), words="a") == [("a", 2)]


def test_rows_are_restored_when_the_store_format_changes(run: Run) -> None:
    # A replica receives the rows of a batch with the next batch. So every format has two batches,
    # and the next format finds the row of "c" unchanged.
    formats: list[dict[str, Any]] = [
        {}, {"dsl_store_format": "HEADERS"}, {"dsl_store_suppliers": "in_memory"}, {},
    ]
    for number, settings in enumerate(formats):
        first = 2 * number + 1
        assert run(counts, words="ac", **settings) == [("a", first), ("c", number + 1)]
        assert run(counts, words="a", **settings) == [("a", first + 1)]


@pytest.mark.parametrize("state", ["kept", "deleted"])
def test_reset_application_starts_from_zero(
    run: Run, log: Log, tmp_path: Path, state: str
) -> None:
    run(counts, words="aab")
    assert run(counts, words="b") == [("b", 2)]
    plan = plan_reset(log, "app", ResetTarget())
    with stopped_application(log, "app") as lease:
        apply_reset(log, plan, lease)
    if state == "deleted":
        shutil.rmtree(tmp_path / "state")
    # Replicas of the previous incarnation may exist on this host, with invalid positions.
    assert run(counts) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    assert run(counts, words="ab") == [("a", 3), ("b", 3)]


def test_added_partitions_are_read_by_a_stateless_application(
    run: Run, log: Log
) -> None:
    def passing(b: StreamsBuilder) -> None:
        b.stream("in", key=TEXT, value=TEXT).map_values(lambda _: 7).to(
            "out", key=TEXT, value=Serdes.long()
        )

    assert run(passing, words="a") == [("a", 7)]
    log.add_partitions("in", 3)
    log.append("in", 2, RecordColumns([b"z"], [b"v"], [1_000]))
    assert run(passing) == [("z", 7)]


def test_recreated_global_topic_is_read_again(run: Run, log: Log) -> None:
    def looked_up(b: StreamsBuilder) -> None:
        table = b.global_table("numbers", key=TEXT, value=Serdes.long(), store="numbers")
        b.stream("in", key=TEXT, value=TEXT).join(table, lambda key, _: key, lambda _, n: n).to(
            "out", key=TEXT, value=Serdes.long()
        )

    def create_numbers(*numbers: int) -> None:
        log.create_topic("numbers", 1, {"retention.ms": -1})
        values = [number.to_bytes(8, "big") for number in numbers]
        log.append("numbers", 0, RecordColumns([b"a"] * len(values), values, [1_000] * len(values)))

    create_numbers(1, 2, 3)
    assert run(looked_up, words="a") == [("a", 3)]
    log.delete_topic("numbers")
    create_numbers(8, 9)
    assert run(looked_up, words="a") == [("a", 9)]
    assert run(looked_up, words="a", dsl_store_format="HEADERS") == [("a", 9)]
