"""What the engine's answer to a case is compared with.

The answers come from Kafka's test driver. It has one task for everything, hence one stream time for
all sub-topologies; it commits after every record, and its processors and caches live as long as the
driver. The engine, like Kafka on a cluster, has a task for each sub-topology and partition; it
commits once a batch, and processors and caches live as long as a batch. Where that shows in a case,
penstock's own driver says what is right: it gives Kafka's answers where Kafka's can
be asked, and can be told to do what the engine does.
"""

from __future__ import annotations

import json
from typing import Any

from conformance.cases import KEPT, Case, in_sample, read_cases
from conformance.compare import EVERYTHING, first_difference, java_names
from conformance.runner import Answer, Run
from penstock import Topology
from penstock.log.errors import InvalidTopic
from penstock.testing import TopologyTestDriver

#: Peeking and printing into lists happens in another process; a repartition topic is in the
#: shuffle, not in the log.
PARTS = tuple(part for part in EVERYTHING if part not in {"observed", "internal_topics"})

_MOST_HOPS = 8
_TIES = ("corner-ties-", "corner-fan-ties")

#: Single cases that say nothing about the engine, and why.
_KNOWN = {
    "random-public-plain-0739":
        "A join of a table with itself, by a foreign key: its answers come with the next batch, "
        "when the table has changed again, so one that is out of date by then is not sent on. "
        "An aggregate keeps an empty text for each of those that were.",
    "options-stream-stream-join-1-406":
        "Two topics that were waited for have records of the same time; see _TIES.",
    "small-cache-random-8101-cached-0254":
        "A cache of 150 bytes. In a driver it holds rows that earlier events have read, and lets "
        "others go sooner; on the engine it begins empty with every batch.",
    "options-tables-1-297":
        "The store is restored from its source topic, whose records have headers. Kafka's driver "
        "never restores, and shows its cache.",
}


#: Themes in which the engine differs most from the test driver.
THEMES = ("join-foreign-key", "suppress", "caching", "join-global", "processors")
#: Single cases that run on Spark even in `make test`.
SMOKE = ("order-through-two-repartitions", "sink-topic-is-also-source")
_SPARK_SAMPLE = 5


def cases_for_spark() -> list[Case]:
    """The themes, the smoke cases, and one in five generated cases with several sub-topologies."""
    themes = [case for theme in THEMES for case in read_cases(KEPT / f"{theme}.jsonl.gz")]
    themes += [
        case for theme in ("topology", "stateless")
        for case in read_cases(KEPT / f"{theme}.jsonl.gz") if case["name"] in SMOKE
    ]
    generated = [
        case for case in read_cases(KEPT / "random-plain.jsonl.gz")
        if in_sample(case, _SPARK_SAMPLE) and has_hops(case)
    ]
    return [case for case in themes + generated if exemption(case) is None]


def exemption(case: Case) -> str | None:
    """Why a case says nothing about the engine, None if it does."""
    config = case.get("config", {})
    if case["name"].startswith(_TIES):
        return "Several topics have records of the same time: the log does not say which is first."
    if case["name"] in _KNOWN:
        return _KNOWN[case["name"]]
    if any(event.get("ts", 0) < 0 for event in case.get("input", ())):
        return "A log, as Kafka, takes no record with a negative timestamp."
    if int(config.get("max.task.idle.ms", 0)) > 0 and _has_several_tasks(case):
        return "A task waits for the topics that it reads, not for those of other tasks."
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
    if found is None or _is_refused_or_later(case, answer):
        return None
    for commits in (0, _MOST_HOPS):
        other = Answer({"output": {}, "internal_topics": {}})
        try:
            ByBatch(case, other, commits).run()
        except Exception as error:
            other.exception = error
        if _same_end(other, answer) and first_difference(
            _answered(case, other), answer, parts
        ) is None:
            return None
    if answer.exception is None and _has(case, "fk") and first_difference(
        _ends(case), _ends_of(answer), ("output", "stores", "queries")
    ) is None:
        # Between the two sides of a join by foreign keys lies a batch: what comes out meanwhile
        # may differ, what it comes to does not.
        return None
    return found


def _is_refused_or_later(case: Case, answer: Answer) -> bool:
    """Whether the failure is the right one for a log, though not for Kafka's driver."""
    expected = case["expect"].get("error")
    if isinstance(answer.exception, InvalidTopic):
        # Kafka's driver has no topics that could refuse their names.
        return True
    # A record of a global table is read when the next batch needs the table, not at once.
    return (
        expected is not None and answer.exception is not None and _has_global_tables(case)
        and expected["type"] in java_names(answer.exception)
    )


def _same_end(one: Answer, other: Answer) -> bool:
    return type(one.exception) is type(other.exception) and (
        one.exception is None or one.at == other.at
    )


class ByBatch(Run):
    """What the engine does, by penstock's driver: a task for each sub-topology, a batch an event.

    With `commits` of 0 there is one after every record, otherwise so many after each event: each
    lets records make one hop.
    """

    def __init__(self, case: Case, answer: Answer, commits: int) -> None:
        super().__init__(case, answer)
        self._commits = commits

    def _driver(self, topology: Topology, config: Any) -> Any:
        return TopologyTestDriver(
            topology, config, self.case.get("wall", 0), partitions=1,
            auto_commit=not self._commits, show_printed=False,
        )

    def _event(self, driver: TopologyTestDriver, event: dict[str, Any]) -> None:
        super()._event(driver, event)
        for _ in range(self._commits):
            driver.commit()
        driver.new_batch()


def _answered(case: Case, answer: Answer) -> Case:
    """The case with another answer to what several tasks may answer in their own way."""
    theirs = ("output", "stores", "queries", "dropped", "printed", "internal_stores")
    expect = {**case["expect"], **{part: answer.found.get(part) for part in theirs}}
    if answer.exception is not None:
        kind = next(iter(java_names(answer.exception)))
        expect["error"] = {"type": kind, "at": answer.at}
    else:
        expect.pop("error", None)
    return {**case, "expect": expect}


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
