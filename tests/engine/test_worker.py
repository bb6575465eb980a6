"""Topologies on the engine, without Spark, have the results of the test driver."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from engine.harness import ONE_TO_ONE, Application, config_of, topology_of
from engine.open_files import open_files
from engine.topologies import CASES, Case
from penstock import Materialized, Serdes
from penstock.engine.worker.replica_pool import MappedMemory
from penstock.testing import TopologyTestDriver

#: (topic, partition) -> its records.
Written = dict[tuple[str, int], list[tuple[Any, ...]]]


def run_on_driver(case: Case) -> Written:
    found: Written = {}
    with TopologyTestDriver(case.topology, config_of(), partitions=case.topics) as driver:
        for topic, key, value, time in case.events:
            driver.pipe(topic, _raw(key), _raw(value), time)
        for topic in (*case.outputs, *case.changelogs):
            for record in driver.read_raw(topic):
                found.setdefault((topic, record.partition), []).append(
                    (record.key, record.value, record.timestamp)
                )
    return found


def _raw(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def written_by_engine(case: Case, app: Application) -> Written:
    return {
        (topic, partition): rows
        for topic in (*case.outputs, *case.changelogs)
        for partition in range(app.log.topic(topic).partitions)
        if (rows := app.rows(topic, partition))
    }


def feed(case: Case, app: Application) -> None:
    for topic, key, value, time in case.events:
        app.send(topic, (key, value, time))


def comparable(case: Case, written: Written) -> Any:
    """Reduce records to the part that must be equal: all, or the last value of each key."""
    if not case.last_only:
        return written
    return {where: {key: value for key, value, _ in rows} for where, rows in written.items()}


def assert_equals_driver(case: Case, app: Application) -> None:
    found, expected = written_by_engine(case, app), run_on_driver(case)
    assert comparable(case, found) == comparable(case, expected)


@pytest.mark.parametrize("parallelism", [1, 2, 5])
@pytest.mark.parametrize("name", CASES)
def test_one_batch_equals_the_test_driver(
    name: str, parallelism: int, tmp_path: Path
) -> None:
    case = CASES[name]()
    with Application(case.topology, tmp_path, case.topics, parallelism=parallelism) as app:
        feed(case, app)
        app.run()
        assert_equals_driver(case, app)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("batch", [3, 17])
def test_results_do_not_depend_on_the_batch_size(
    name: str, batch: int, tmp_path: Path
) -> None:
    case = CASES[name]()
    with Application(case.topology, tmp_path, case.topics, batch=batch) as app:
        feed(case, app)
        assert app.run() > 2
        assert_equals_driver(case, app)


@pytest.mark.parametrize("name", CASES)
def test_each_batch_may_run_in_a_new_worker(name: str, tmp_path: Path) -> None:
    case = CASES[name]()
    with Application(
        case.topology, tmp_path, case.topics, batch=11, new_workers=True
    ) as app:
        feed(case, app)
        app.run()
        assert_equals_driver(case, app)


@pytest.mark.parametrize("name", CASES)
def test_state_is_restored_from_the_log_alone(name: str, tmp_path: Path) -> None:
    """After each batch, an uncommitted run, a crash, and the deletion of all local state."""
    case = CASES[name]()
    with Application(case.topology, tmp_path, case.topics, batch=11) as app:
        feed(case, app)
        while app.run_batch() is not None:
            plan = app.plan()
            if plan is not None:
                app.compute.compute(plan)
            app.crash()
            shutil.rmtree(app.config.state_dir, ignore_errors=True)
            # The first plan after a start contains every task, so it is never None.
            if not any(task.ranges for task in app.plan().tasks.values()):  # type: ignore[union-attr]
                break
        assert_equals_driver(case, app)


@pytest.mark.parametrize(("logged", "counts"), [(True, [1, 2, 3]), (False, [1, 2, 1])])
def test_state_directory_may_be_deleted_during_a_batch(
    logged: bool, counts: list[int], tmp_path: Path
) -> None:
    def delete(value: str) -> str:
        if value == "delete":
            shutil.rmtree(tmp_path / "state")
        return value

    count = Materialized[Any, Any]("n", logging=logged)
    topology = topology_of(
        lambda builder: builder.stream("in").map_values(delete).group_by_key().count(store=count)
        .to_stream().to("out", value=Serdes.long())
    )
    with Application(topology, tmp_path, ONE_TO_ONE) as app:
        for time, value in enumerate(["a", "delete", "b"]):
            app.send("in", ("k", value, time))
            app.run()
        assert [int.from_bytes(value, "big") for _, value, _ in app.rows("out")] == counts


def test_worker_closes_all_files_above_the_memory_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(builder: Any) -> None:
        names = builder.global_table("names", store="names")
        joined = builder.stream("in").join(names, lambda key, value: value, lambda _, name: name)
        joined.group_by_key().count(store="n")
        joined.to("out")

    with Application(topology_of(build), tmp_path, {"names": 1, **ONE_TO_ONE}) as app:
        for time, name in enumerate(["first", "second"]):
            app.send("names", ("k", name, time))
            app.send("in", ("k", "k", time))
            app.run()
            if time == 0:
                assert open_files(tmp_path / "state" / "app" / "global")
                monkeypatch.setattr(MappedMemory, "exceeds_limit", lambda memory: True)
        assert open_files(tmp_path / "state") == []
        assert [value for _, value, _ in app.texts("out")] == ["first", "second"]
