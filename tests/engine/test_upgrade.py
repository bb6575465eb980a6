"""Plans of upgrades, and upgrades that are interrupted, repeated or not possible."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from engine.instances import TEXT
from penstock import Materialized, Serdes, Stores, StreamsBuilder, StreamsConfig, Topology
from penstock.engine import upgrade
from penstock.engine.inline import start_inline
from penstock.engine.loop import Engine
from penstock.engine.reset import ApplicationRunning
from penstock.engine.upgrade import StoreChange, apply_upgrade, plan_upgrade
from penstock.errors import StreamsException, TopologyException
from penstock.log import Log, RecordColumns, TopicPartition

Define = Callable[[StreamsBuilder], Any]


def generated(number: int) -> str:
    return f"KSTREAM-AGGREGATE-STATE-STORE-{number:010}"


@pytest.fixture
def config(tmp_path: Any) -> StreamsConfig:
    return StreamsConfig(
        application_id="app", state_dir=str(tmp_path / "state"), statestore_cache_max_bytes=0
    )


def build(define: Define) -> Topology:
    builder = StreamsBuilder()
    define(builder)
    return builder.build()


def run(log: Log, config: StreamsConfig, define: Define, words: str = "") -> None:
    for word in words:
        log.append("in", 0, RecordColumns([word.encode()], [b"v"], [0]))
    lease = log.take_lease("app")
    try:
        engine = Engine(build(define), config, log, lease, start_inline)
        while engine.run_batch() is not None:
            pass
        engine.close()
    finally:
        lease.release()


def results(log: Log) -> list[tuple[str, int]]:
    return [
        (key.decode(), int.from_bytes(value))
        for batch in log.read("out", 0, 0) for rows in [batch.columns()]
        for key, value in zip(rows.keys, rows.values, strict=True)
        if key is not None and value is not None
    ]


def counts(*labels: str, **options: Any) -> Define:
    """Count the words once for each label."""

    def define(builder: StreamsBuilder) -> None:
        words = builder.stream("in", key=TEXT, value=TEXT)
        for label in labels:
            counted = words.group_by_key().count(**options)
            counted.to_stream(lambda key, _, label=label: label + key).to(
                "out", key=TEXT, value=Serdes.long()
            )

    return define


def filtered_first(*labels: str, steps: int = 1) -> Define:
    """Count the words after another step."""

    def define(builder: StreamsBuilder) -> None:
        words = builder.stream("in", key=TEXT, value=TEXT)
        for _ in range(steps):
            words.filter(lambda value: True)
        counts(*labels)(builder)

    return define


def written(log: Log) -> dict[str, int]:
    """Return topic -> its number of records."""
    return {
        topic.name: sum(
            each.end for each in log.offsets(
                TopicPartition(topic.name, number) for number in range(topic.partitions)
            ).values()
        )
        for topic in log.topics()
    }


def test_plan_lists_every_store_and_writes_nothing(log: Log, config: StreamsConfig) -> None:
    def old(builder: StreamsBuilder) -> None:
        counts("x")(builder)
        counts("y", store="named")(builder)
        counts("z", store="gone")(builder)

    def new(builder: StreamsBuilder) -> None:
        filtered_first("x")(builder)
        counts("y", store="named")(builder)
        supplier = Stores.persistent_versioned_key_value_store("fresh", 1_000)
        builder.stream("in", key=TEXT, value=TEXT).to_table(
            store=Materialized(supplier=supplier, key=TEXT, value=TEXT)
        )

    run(log, config, old, "ab")
    before = written(log)
    plan = plan_upgrade(log, build(new), config)
    assert written(log) == before
    assert [(each.store, each.becomes, each.outcome, each.records) for each in plan.stores] == [
        (generated(1), (generated(3),), "moved", 2),
        ("gone", (), "removed", 2),
        ("named", ("named",), "kept", 2),
        (None, ("fresh",), "new", None),
    ]
    assert plan.stores[0].code == f"store='{generated(1)}'"
    assert plan.warnings[0].startswith("Store 'gone' is no longer used.")
    assert not plan.refused
    assert not plan.is_compatible


def test_stores_move_one_after_the_other_if_a_name_is_taken(
    log: Log, config: StreamsConfig
) -> None:
    # A count and the steps after it take five numbers, as many as the new steps.
    run(log, config, counts("x", "y"), "a")
    new = filtered_first("x", "y", steps=4)
    plan = plan_upgrade(log, build(new), config)
    assert plan.moves == {generated(6): generated(11), generated(1): generated(6)}
    apply_upgrade(log, build(new), config, plan)
    run(log, config, new, "a")
    assert results(log) == [("xa", 1), ("ya", 1), ("xa", 2), ("ya", 2)]
    assert f"app-{generated(1)}-changelog" not in written(log)


def test_advice_for_names_that_move_up_keeps_all_rows(
    log: Log, config: StreamsConfig
) -> None:
    def new(*stores: str | None) -> Define:
        def define(builder: StreamsBuilder) -> None:
            words = builder.stream("in", key=TEXT, value=TEXT)
            for _ in range(4):
                words.filter(lambda value: True)
            for label, store in zip("xy", stores, strict=True):
                counts(label, store=store)(builder)

        return define

    run(log, config, counts("x", "y"), "a")
    with pytest.raises(TopologyException) as refused:
        run(log, config, new(None, None))
    advised = dict(re.findall(
        r"Give the step '(KSTREAM-AGGREGATE-\d+)' its old store name: store='([^']+)'",
        str(refused.value),
    ))
    run(log, config, new(*(advised[step] for step in sorted(advised))), "a")
    assert results(log) == [("xa", 1), ("ya", 1), ("xa", 2), ("ya", 2)]


def test_interrupted_upgrade_can_be_repeated(
    log: Log, config: StreamsConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(log, config, counts("x", "y"), "a")
    new = filtered_first("x", "y", steps=4)
    copy = upgrade._StoreMover._copy

    def fail(mover: Any, source: str, target: str) -> None:
        copy(mover, source, target)
        if source.endswith("1-changelog"):
            raise RuntimeError("power failure")

    plan = plan_upgrade(log, build(new), config)
    with monkeypatch.context() as patch:
        patch.setattr(upgrade._StoreMover, "_copy", fail)
        with pytest.raises(RuntimeError):
            apply_upgrade(log, build(new), config, plan)
    with pytest.raises(TopologyException, match="is now named"):
        run(log, config, new)
    plan = plan_upgrade(log, build(new), config)
    assert plan.moves == {generated(1): generated(6)}
    apply_upgrade(log, build(new), config, plan)
    run(log, config, new, "a")
    assert results(log) == [("xa", 1), ("ya", 1), ("xa", 2), ("ya", 2)]


def test_previous_version_returns_with_an_upgrade_in_the_other_direction(
    log: Log, config: StreamsConfig
) -> None:
    run(log, config, counts("x"), "a")
    for define in (filtered_first("x"), counts("x")):
        with pytest.raises(TopologyException, match="is now named"):
            run(log, config, define)
        apply_upgrade(log, build(define), config, plan_upgrade(log, build(define), config))
        run(log, config, define, "a")
    assert results(log) == [("xa", 1), ("xa", 2), ("xa", 3)]


def test_user_decides_which_of_several_equal_steps_is_new(
    log: Log, config: StreamsConfig
) -> None:
    run(log, config, counts("x", "y"), "a")
    new = counts("new", "x", "y")
    with pytest.raises(TopologyException, match="Numbers do not tell which step is new"):
        run(log, config, new)
    assert plan_upgrade(log, build(new), config).refused
    keep = {generated(1): generated(6), generated(6): generated(11)}
    plan = plan_upgrade(log, build(new), config, keep=keep)
    assert plan.refused == ()
    apply_upgrade(log, build(new), config, plan)
    run(log, config, new, "a")
    assert results(log)[2:] == [("newa", 1), ("xa", 2), ("ya", 2)]


def test_store_of_the_user_gets_another_name(log: Log, config: StreamsConfig) -> None:
    run(log, config, counts("x", store="old"), "a")
    new = counts("x", store="new")
    with pytest.raises(TopologyException, match="--keep old=new"):
        run(log, config, new)
    plan = plan_upgrade(log, build(new), config)
    assert plan.stores == (
        StoreChange("old", ("new",), "unclear", 1, "KSTREAM-AGGREGATE-0000000001", "store='old'"),
    )
    with pytest.raises(TopologyException, match="--keep old=new"):
        apply_upgrade(log, build(new), config, plan)
    plan = plan_upgrade(log, build(new), config, keep={"old": "new"})
    apply_upgrade(log, build(new), config, plan)
    run(log, config, new, "a")
    assert results(log) == [("xa", 1), ("xa", 2)]


def test_dropped_store_starts_empty_under_the_same_name(
    log: Log, config: StreamsConfig
) -> None:
    run(log, config, counts("x", store="counts"), "a")
    plan = plan_upgrade(log, build(counts("x", store="counts")), config, drop=["counts"])
    assert [each.outcome for each in plan.stores] == ["dropped", "new"]
    apply_upgrade(log, build(counts("x", store="counts")), config, plan)
    run(log, config, counts("x", store="counts"), "a")
    assert results(log) == [("xa", 1), ("xa", 1)]


def test_rows_without_a_changelog_do_not_move(log: Log, config: StreamsConfig) -> None:
    def unlogged(builder: StreamsBuilder) -> None:
        counts("x", store=Materialized(logging=False))(builder)

    def renumbered(builder: StreamsBuilder) -> None:
        builder.stream("in", key=TEXT, value=TEXT).filter(lambda value: True)
        unlogged(builder)

    run(log, config, unlogged, "a")
    with pytest.raises(TopologyException, match="is now named"):
        run(log, config, renumbered)
    plan = plan_upgrade(log, build(renumbered), config)
    assert [each.outcome for each in plan.stores] == ["lost"]
    assert "It has no changelog, so its rows are lost." in plan.warnings[0]
    apply_upgrade(log, build(renumbered), config, plan)
    run(log, config, renumbered, "a")
    assert results(log) == [("xa", 1), ("xa", 1)]


def test_store_with_another_format_is_refused(log: Log, config: StreamsConfig) -> None:
    run(log, config, counts("x", store="counts"), "a")
    supplier = Stores.persistent_versioned_key_value_store("counts", 1_000)
    new = counts("x", store=Materialized(supplier=supplier, key=TEXT))
    plan = plan_upgrade(log, build(new), config)
    assert [each.outcome for each in plan.stores] == ["refused"]
    assert "It cannot read the existing rows." in plan.refused[0]


def test_stores_that_exchange_their_names_are_refused(log: Log, config: StreamsConfig) -> None:
    def named(first: str, second: str) -> Define:
        def define(builder: StreamsBuilder) -> None:
            counts("x", store=first)(builder)
            counts("y", store=second)(builder)

        return define

    run(log, config, named("p", "q"), "a")
    plan = plan_upgrade(log, build(named("p", "q")), config, keep={"p": "q", "q": "p"})
    assert plan.refused == (
        "Stores p, q exchange their names, so their rows cannot be moved. Give the steps their old "
        "store names.",
    )


@pytest.mark.parametrize(
    ("decisions", "message"),
    [
        ({"drop": ["x"]}, "'x' does not exist in the earlier version. Stores: 'counts'"),
        ({"keep": {"x": "counts"}}, "'x' does not exist in the earlier version"),
        ({"keep": {"counts": "x"}}, "'x' does not exist in the new topology. Stores: 'counts'"),
        ({"keep": {"counts": "counts"}, "drop": ["counts"]}, "cannot be kept and dropped"),
    ],
)
def test_decisions_about_unknown_stores_are_refused(
    log: Log, config: StreamsConfig, decisions: dict[str, Any], message: str
) -> None:
    run(log, config, counts("x", store="counts"), "a")
    with pytest.raises(StreamsException, match=message):
        plan_upgrade(log, build(counts("x", store="counts")), config, **decisions)


def test_application_without_state_needs_no_upgrade(log: Log, config: StreamsConfig) -> None:
    with pytest.raises(StreamsException, match="Any topology can start"):
        plan_upgrade(log, build(counts("x")), config)


def test_running_application_is_not_upgraded(
    log: Log, config: StreamsConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(log, config, counts("x"), "a")
    new = filtered_first("x")
    plan = plan_upgrade(log, build(new), config)
    log.take_lease("app")
    monkeypatch.setattr("penstock.engine.reset.ACQUIRE_TIMEOUT_MS", 0)
    with pytest.raises(ApplicationRunning, match="Stop all its instances first"):
        apply_upgrade(log, build(new), config, plan)
