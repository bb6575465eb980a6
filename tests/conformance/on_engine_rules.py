"""What the engine's answer to a case is compared with.

The answers come from Kafka's test driver. It has one task for everything, hence one stream time for
all sub-topologies, and it commits after every record. The engine, like Kafka on a cluster, has a
task for each sub-topology and partition, and commits once a batch. Where a case has several
sub-topologies and that shows, penstock's own driver says what is right, with a task for each of
them; it gives Kafka's answers where Kafka's driver can be asked.
"""

from __future__ import annotations

import json
from typing import Any

from conformance.cases import Case
from conformance.compare import EVERYTHING, first_difference
from conformance.runner import Answer, Run
from penstock import Topology
from penstock.testing import TopologyTestDriver

#: Peeking and printing into lists happens in another process; a repartition topic is in the
#: shuffle, not in the log.
PARTS = tuple(part for part in EVERYTHING if part not in {"observed", "internal_topics"})

_MOST_HOPS = 8


def exemption(case: Case) -> str | None:
    """Why a case says nothing about the engine, None if it does."""
    config = case.get("config", {})
    if any(event.get("ts", 0) < 0 for event in case.get("input", ())):
        return "A log, as Kafka, takes no record with a negative timestamp."
    if _has(case, "limit"):
        return "A processor lives for one batch: it cannot count in a field of its own."
    if int(config.get("statestore.cache.max.bytes", 0)) and has_hops(case):
        return "A cache is emptied once a batch, not after every hop of a record."
    return None


def has_hops(case: Case) -> bool:
    """Whether records go from one sub-topology to another, or back to where they came from."""
    steps = case.get("topology", ())
    written = {step["topic"] for step in steps if "topic" in step and "on" in step}
    read = {step.get("topic") for step in steps if "on" not in step}
    internal = case["expect"].get("internal_topics", {})
    return bool(written & read) or any("-changelog" not in topic for topic in internal)


def _has_several_tasks(case: Case) -> bool:
    return has_hops(case) or "Sub-topology: 1" in case["expect"].get("describe", "")


def parts_of(case: Case) -> tuple[str, ...]:
    """What is compared."""
    parts = PARTS
    if _has_global_tables(case):
        # Their rows are read by every worker, so what they drop is counted by none.
        parts = tuple(part for part in parts if part != "dropped")
    if int(case.get("config", {}).get("statestore.cache.max.bytes", 0)) and _has(
        case, "supplier", "persistent_kv"
    ):
        # The store keeps no timestamps; Kafka's answer shows those of its cache.
        parts = tuple(part for part in parts if part not in {"stores", "queries"})
    return parts


def difference(case: Case, answer: Answer) -> str | None:
    """The first thing that is wrong in the engine's answer, None if nothing is."""
    parts = parts_of(case)
    found = first_difference(case, answer, parts)
    if found is None or answer.exception is not None or not _has_several_tasks(case):
        return found
    for reference in (ByTask, ByBatch):
        other = Answer({"output": {}, "internal_topics": {}})
        try:
            reference(case, other).run()
        except Exception:  # then it is no reference
            continue
        if first_difference(_answered(case, other), answer, parts) is None:
            return None
    if _has(case, "fk") and first_difference(
        _ends(case), _ends_of(answer), ("output", "stores", "queries")
    ) is None:
        # Between the two sides of a join by foreign keys lies a batch: what comes out meanwhile
        # may differ, what it comes to does not.
        return None
    return found


class ByTask(Run):
    """A task for each sub-topology; a commit after every record, as in Kafka's driver."""

    def _driver(self, topology: Topology, config: Any) -> Any:
        return TopologyTestDriver(
            topology, config, self.case.get("wall", 0), partitions=1, show_printed=False
        )


class ByBatch(Run):
    """A task for each sub-topology; a commit when all tasks have taken what there was."""

    def _driver(self, topology: Topology, config: Any) -> Any:
        return TopologyTestDriver(
            topology, config, self.case.get("wall", 0), partitions=1, auto_commit=False,
            show_printed=False,
        )

    def _event(self, driver: TopologyTestDriver, event: dict[str, Any]) -> None:
        super()._event(driver, event)
        for _ in range(_MOST_HOPS):
            driver.commit()


def _answered(case: Case, answer: Answer) -> Case:
    """The case with another answer to what several tasks may answer in their own way."""
    theirs = ("output", "stores", "queries", "dropped", "printed", "internal_stores")
    return {**case, "expect": {
        **case["expect"], **{part: answer.found.get(part) for part in theirs}
    }}


def _ends(case: Case) -> Case:
    return {**case, "expect": {
        **case["expect"], "output": _last_of_each_key(case["expect"].get("output", {}))
    }}


def _ends_of(answer: Answer) -> Answer:
    return Answer(
        {**answer.found, "output": _last_of_each_key(answer.found["output"])},
        answer.exception, answer.at,
    )


def _last_of_each_key(output: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    return {
        topic: [last for _, last in sorted(
            {json.dumps(each["key"], sort_keys=True): each for each in records}.items()
        )]
        for topic, records in output.items() if records
    }


def _has_global_tables(case: Case) -> bool:
    return any(
        step["op"] in {"global_table", "add_global_store"} for step in case.get("topology", ())
    )


def _has(node: Any, name: str, value: str | None = None) -> bool:
    """Whether anything in a case is given under that name, and is that value if one is wanted."""
    if isinstance(node, list):
        return any(_has(each, name, value) for each in node)
    if not isinstance(node, dict):
        return False
    if name in node and (value is None or node[name] == value):
        return True
    return any(_has(each, name, value) for key, each in node.items() if key != "expect")
