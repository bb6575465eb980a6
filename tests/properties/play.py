"""Plays a conformance case under the test driver while things happen to it."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from conformance.cases import KEPT, Case, read_cases
from conformance.dump import dump_store, is_listed
from conformance.interpreter import Interpreter
from conformance.options import configuration
from conformance.runner import Answer, Run
from penstock import StreamsBuilder
from penstock.testing import TopologyTestDriver


def random_cases() -> list[Case]:
    """The random topologies and their inputs, but for those that nothing is promised for.

    A cache is empty in a new batch. A map of the least recently used rows does not keep which ones
    were read. Waiting for a topic without records begins anew in a new batch.
    """
    return [
        case for kind in ("random-*", "own-options*", "own-stores*")
        for path in sorted(KEPT.glob(kind)) for case in read_cases(path) if _is_kept(case)
    ]


def sample(cases: Sequence[Case], count: int, seed: int) -> list[Case]:
    """Some of the cases, the same ones every time."""
    return random.Random(seed).sample(cases, min(count, len(cases)))


def _is_kept(case: Case) -> bool:
    config = case.get("config", {})
    return (
        "error" not in case["expect"]
        and not int(config.get("statestore.cache.max.bytes", 0))
        and "max.task.idle.ms" not in config
        and "lru" not in json.dumps(case["topology"])
    )


def can_be_restored(case: Case) -> bool:
    """Whether all stores have changelogs."""
    return '"logging": false' not in json.dumps(case["topology"])


def has_hops(case: Case) -> bool:
    """Whether records go from one sub-topology to another, or back to where they came from."""
    written = {step["topic"] for step in case["topology"] if "topic" in step and "on" in step}
    read = {step.get("topic") for step in case["topology"] if "on" not in step}
    internal = case["expect"].get("internal_topics", {})
    return bool(written & read) or any("-changelog" not in topic for topic in internal)


class Play(Run):
    """One run of a case, in which after each event something may happen (a method of the driver).

    With `auto_commit=False` there is a commit around every move of the wall clock, so that no
    punctuation is lost, and at the end.
    """

    def __init__(
        self, case: Case, happenings: Mapping[int, Sequence[str]], *, auto_commit: bool = True,
        partitions: int | None = None,
    ) -> None:
        super().__init__(case, Answer({"output": {}, "internal_topics": {}}))
        self._happenings = happenings
        self._auto_commit = auto_commit
        self._partitions = partitions

    def run(self) -> None:
        config = configuration(self.case)
        with_config = self.case.get("topology_config")
        builder = StreamsBuilder(config) if with_config else StreamsBuilder()
        steps = Interpreter(builder)
        topology = self._build(builder, steps, config)
        driver = TopologyTestDriver(
            topology, config, self.case.get("wall", 0), partitions=self._partitions,
            auto_commit=self._auto_commit, show_printed=False,
        )
        with driver:
            for index, event in enumerate(self.case["input"]):
                self._happen(driver, index, event)
                self._drain(driver, index)
            driver.commit()
            self._drain(driver, len(self.case["input"]))
            if self._partitions is None:
                self._read_stores(driver, steps)
            else:
                self._read_partitions(driver)
            self.found["dropped"] = driver.metrics()["dropped-records-total"]
        if steps.branches:
            self.found["branches"] = steps.branches

    def _happen(self, driver: TopologyTestDriver, index: int, event: dict[str, Any]) -> None:
        moves_clock = "wall" in event and not self._auto_commit
        if moves_clock:
            driver.commit()
        self._event(driver, event)
        if moves_clock:
            driver.commit()
        for happening in self._happenings.get(index, ()):
            getattr(driver, happening)()

    def _read_partitions(self, driver: TopologyTestDriver) -> None:
        keys = [e["key"] for e in self.case["input"] if e.get("key") is not None]
        self.found["stores"] = {
            f"{name}/{partition}": dump_store(store, keys, cached=False, named=True)
            for name in driver.get_all_state_stores() if is_listed(name)
            for partition, store in driver._stores_of(name).items()
        }


def play(case: Case, happenings: Mapping[int, Sequence[str]], **options: Any) -> Answer:
    """What comes out of a case to which things happen."""
    run = Play(case, happenings, **options)
    run.run()
    return run.answer


def without_times_of_day(found: dict[str, Any]) -> dict[str, Any]:
    """Outputs without the event at which they came out: that is when the commit was."""
    output = {
        topic: [{part: record[part] for part in record if part != "at"} for record in records]
        for topic, records in found.get("output", {}).items()
    }
    return {**found, "output": output}
