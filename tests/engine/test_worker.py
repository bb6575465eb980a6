"""Topologies on the engine, batch by batch, without Spark: the same as under the test driver."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from engine.harness import Application, config_of
from engine.topologies import CASES, Case
from penstock.testing import TopologyTestDriver

#: (topic, partition) -> its records.
Written = dict[tuple[str, int], list[tuple[Any, ...]]]


def under_the_driver(case: Case) -> Written:
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


def on_the_engine(case: Case, app: Application) -> Written:
    return {
        (topic, partition): rows
        for topic in (*case.outputs, *case.changelogs)
        for partition in range(app.log.topic(topic).partitions)
        if (rows := app.rows(topic, partition))
    }


def feed(case: Case, app: Application) -> None:
    for topic, key, value, time in case.events:
        app.send(topic, (key, value, time))


def told(case: Case, written: Written) -> Any:
    """What must be the same: everything, or the last word on every key."""
    if not case.last_only:
        return written
    return {where: {key: value for key, value, _ in rows} for where, rows in written.items()}


@pytest.mark.parametrize("parallelism", [1, 2, 5])
@pytest.mark.parametrize("name", CASES)
def test_one_batch_gives_what_the_driver_gives(
    name: str, parallelism: int, tmp_path: Path
) -> None:
    case = CASES[name]()
    with Application(case.topology, tmp_path, case.topics, parallelism=parallelism) as app:
        feed(case, app)
        app.run()
        assert told(case, on_the_engine(case, app)) == told(case, under_the_driver(case))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("batch", [3, 17])
def test_it_does_not_matter_where_batches_are_cut(
    name: str, batch: int, tmp_path: Path
) -> None:
    case = CASES[name]()
    with Application(case.topology, tmp_path, case.topics, batch=batch) as app:
        feed(case, app)
        assert app.run() > 2
        assert told(case, on_the_engine(case, app)) == told(case, under_the_driver(case))


@pytest.mark.parametrize("name", CASES)
def test_every_batch_may_run_in_a_new_worker(name: str, tmp_path: Path) -> None:
    case = CASES[name]()
    with Application(
        case.topology, tmp_path, case.topics, batch=11, new_workers=True
    ) as app:
        feed(case, app)
        app.run()
        assert told(case, on_the_engine(case, app)) == told(case, under_the_driver(case))


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_lost_when_all_but_the_log_is(name: str, tmp_path: Path) -> None:
    """A batch is computed and forgotten, the state is deleted, and everything begins anew."""
    case = CASES[name]()
    with Application(case.topology, tmp_path, case.topics, batch=11) as app:
        feed(case, app)
        while app.run_batch() is not None:
            plan = app.plan()
            if plan is not None:
                app.compute.compute(plan)
            app.crash()
            shutil.rmtree(app.config.state_dir, ignore_errors=True)
            # The first plan after a start lets every task run, so there is always one.
            if not any(task.ranges for task in app.plan().tasks.values()):  # type: ignore[union-attr]
                break
        assert told(case, on_the_engine(case, app)) == told(case, under_the_driver(case))
