"""Runs a conformance case on the test driver with commits, new batches and crashes."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from conformance.cases import CASES, Case, read_cases
from conformance.dump import dump_store, is_listed
from conformance.interpreter import Interpreter
from conformance.options import configuration
from conformance.runner import CaseResult, Run
from penstock import StreamsBuilder
from penstock.testing import TopologyTestDriver


def random_cases() -> list[Case]:
    """The generated cases whose results do not depend on batches.

    Excluded: caches are empty in a new batch, an LRU store does not persist which rows were read,
    and waiting for a topic without records restarts in a new batch.
    """
    return [
        case for kind in ("random-*", "own-options*", "own-stores*")
        for path in sorted(CASES.glob(kind)) for case in read_cases(path) if _is_eligible(case)
    ]


def sample(cases: Sequence[Case], count: int, seed: int) -> list[Case]:
    """A fixed sample of the cases."""
    return random.Random(seed).sample(cases, min(count, len(cases)))


def _is_eligible(case: Case) -> bool:
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
    """Whether records pass between sub-topologies, or return to the same one through a topic."""
    written = {step["topic"] for step in case["topology"] if "topic" in step and "on" in step}
    read = {step.get("topic") for step in case["topology"] if "on" not in step}
    internal = case["expect"].get("internal_topics", {})
    return bool(written & read) or any("-changelog" not in topic for topic in internal)


class ActionRun(Run):
    """Runs a case and calls methods of the driver, the actions, after its events.

    With `auto_commit=False` it commits before and after every wall-clock event, so that no
    punctuation is lost, and at the end.
    """

    def __init__(
        self, case: Case, actions: Mapping[int, Sequence[str]], *, auto_commit: bool = True,
        partitions: int | None = None,
    ) -> None:
        super().__init__(case, CaseResult({"output": {}, "internal_topics": {}}))
        self._actions = actions
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
                self._step(driver, index, event)
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

    def _step(self, driver: TopologyTestDriver, index: int, event: dict[str, Any]) -> None:
        moves_clock = "wall" in event and not self._auto_commit
        if moves_clock:
            driver.commit()
        self._event(driver, event)
        if moves_clock:
            driver.commit()
        for action in self._actions.get(index, ()):
            getattr(driver, action)()

    def _read_partitions(self, driver: TopologyTestDriver) -> None:
        keys = [e["key"] for e in self.case["input"] if e.get("key") is not None]
        self.found["stores"] = {
            f"{name}/{partition}": dump_store(store, keys, cached=False, named=True)
            for name in driver.get_all_state_stores() if is_listed(name)
            for partition, store in driver._stores_of(name).items()
        }


def run_with_actions(
    case: Case, actions: Mapping[int, Sequence[str]], **options: Any
) -> CaseResult:
    """Run a case with actions and return its results."""
    run = ActionRun(case, actions, **options)
    run.run()
    return run.result


def without_event_indices(found: dict[str, Any]) -> dict[str, Any]:
    """The results without the indices of events, which depend on commits."""
    output = {
        topic: [{part: record[part] for part in record if part != "at"} for record in records]
        for topic, records in found.get("output", {}).items()
    }
    return {**found, "output": output}
