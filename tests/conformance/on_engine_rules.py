"""The expected results of a case on the engine.

The results in a case come from Kafka's test driver. The driver has one task, hence one stream time
for all sub-topologies; it commits after every record, and its processors and caches live as long as
the driver. The engine, like Kafka on a cluster, has a task for each sub-topology and partition; it
commits once a batch, and processors and caches live as long as a batch. Where a case shows these
differences, the reference is penstock's test driver, configured to commit as the engine does.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from conformance.cases import (
    CASES,
    Case,
    case_files,
    case_id,
    in_sample,
    is_themed,
    read_cases,
)
from conformance.compare import EVERYTHING, first_difference, java_names
from conformance.runner import CaseResult, Run
from penstock import Topology
from penstock.log.errors import InvalidTopic
from penstock.testing import TopologyTestDriver

#: Without `observed`, because `peek` runs in another process, and `internal_topics`, because
#: repartitioned records are in the shuffle and not in the log.
PARTS = tuple(part for part in EVERYTHING if part not in {"observed", "internal_topics"})

_MAX_HOPS = 8
_TIES = ("corner-ties-", "corner-fan-ties")

#: The setting for the topic of dead letters.
_DEAD_LETTERS = "errors.dead.letter.queue.topic.name"
#: The headers of a dead letter that name its record.
_POSITION = tuple(f"__streams.errors.{name}" for name in ("topic", "partition", "offset"))
#: Single cases that do not apply to the engine, with the reason.
_KNOWN = {
    "random-public-plain-0739":
        "A foreign-key join of a table with itself: its responses arrive with the next batch, when "
        "the table has changed again, so outdated responses are dropped. The aggregate keeps an "
        "empty string for each response.",
    "options-stream-stream-join-1-406":
        "Two topics have records with the same timestamp; see _TIES.",
    "small-cache-random-8101-cached-0254":
        "A cache of 150 bytes. In a test driver it holds rows read by earlier events and evicts "
        "others sooner; on the engine it is empty at the start of every batch.",
    "options-tables-1-297":
        "The store is restored from its source topic, whose records have headers. Kafka's driver "
        "never restores and returns rows of the cache.",
}


#: Themes in which the engine differs most from the test driver.
THEMES = ("join-foreign-key", "suppress", "caching", "join-global", "processors")
#: Single cases that run on Spark even in `make test`.
SMOKE = ("order-through-two-repartitions", "sink-topic-is-also-source")
_SPARK_SAMPLE = 20
#: One in so many of the other cases runs in `make test`, and in `make test-rest`. A case takes
#: about a third of a second here; the test driver runs them all.
_QUICK_SAMPLE, _SAMPLE = 16, 8


def cases_for_spark() -> list[Case]:
    """The themes, the smoke cases, and one in twenty generated cases with several tasks."""
    themes = [case for theme in THEMES for case in read_cases(CASES / f"{theme}.jsonl.gz")]
    themes += [
        case for theme in ("topology", "stateless")
        for case in read_cases(CASES / f"{theme}.jsonl.gz") if case["name"] in SMOKE
    ]
    generated = [
        case for case in read_cases(CASES / "random-plain.jsonl.gz")
        if in_sample(case, _SPARK_SAMPLE) and has_hops(case)
    ]
    return [case for case in themes + generated if exemption(case) is None]


def engine_parameters(except_for: Collection[str] = ()) -> list[Any]:
    """All cases for the engine in this process, with the markers of their tiers."""
    def marks(path: Path, case: Case) -> Any:
        if case["theme"] in THEMES or in_sample(case, _QUICK_SAMPLE):
            return ()
        is_full = is_themed(path) or in_sample(case, _SAMPLE)
        return pytest.mark.full if is_full else pytest.mark.exhaustive

    return [
        pytest.param(case, id=case_id(path, case), marks=marks(path, case))
        for path in case_files([CASES])
        for case in read_cases(path)
        if exemption(case) is None and case["name"] not in except_for
    ]


def exemption(case: Case) -> str | None:
    """The reason why a case does not apply to the engine, or None if it does."""
    config = case.get("config", {})
    if case["name"].startswith(_TIES):
        return "Several topics have records with the same timestamp: their order is not defined."
    if case["name"] in _KNOWN:
        return _KNOWN[case["name"]]
    if any(event.get("ts", 0) < 0 for event in case.get("input", ())):
        return "Logs, like Kafka, reject records with a negative timestamp."
    if int(config.get("max.task.idle.ms", 0)) > 0 and _has_several_tasks(case):
        return "A task waits for its own topics, not for those of other tasks."
    return None


def has_hops(case: Case) -> bool:
    """Whether records pass between sub-topologies, or return to the same one through a topic."""
    steps = case.get("topology", ())
    written = {step["topic"] for step in steps if "topic" in step and "on" in step}
    read = {step.get("topic") for step in steps if "on" not in step}
    internal = case["expect"].get("internal_topics", {})
    return bool(written & read) or any("-changelog" not in topic for topic in internal)


def _has_several_tasks(case: Case) -> bool:
    return has_hops(case) or "Sub-topology: 1" in case["expect"].get("describe", "")


def parts_of(case: Case) -> tuple[str, ...]:
    """The parts that can be compared."""
    parts = PARTS
    if _has_global_tables(case):
        # A record of a global table is read, and dropped, when the next batch needs the table.
        parts = tuple(part for part in parts if part != "dropped")
    if int(case.get("config", {}).get("statestore.cache.max.bytes", 0)) and _has(
        case, "supplier", "persistent_kv"
    ):
        # The store keeps no timestamps; Kafka's results show those of its cache.
        parts = tuple(part for part in parts if part not in {"stores", "queries"})
    return parts


def difference(case: Case, result: CaseResult, *, continuous: bool = False) -> str | None:
    """The first difference in the engine's results, or None."""
    parts = parts_of(case)
    case, result = _without_repartition_positions(case, result)
    result = _without_last_dead_letters(case, result)
    found = first_difference(case, result, parts)
    if found is None or _is_refused_or_later(case, result):
        return None
    for commits in (0, _MAX_HOPS):
        other = CaseResult({"output": {}, "internal_topics": {}})
        try:
            BatchRun(case, other, commits, new_batches=not continuous).run()
        except Exception as error:
            other.exception = error
        if _same_end(other, result) and first_difference(
            _with_expected(case, other), result, parts
        ) is None:
            return None
    if result.exception is None and _has(case, "fk") and first_difference(
        _ends(case), _ends_of(result), ("output", "stores", "queries")
    ) is None:
        # A batch lies between the two sides of a foreign-key join: intermediate results may differ,
        # final results may not.
        return None
    return found


def _without_repartition_positions(
    case: Case, result: CaseResult
) -> tuple[Case, CaseResult]:
    """Both, without the positions of dead letters whose record Kafka read from a repartition topic.

    Such a topic does not exist in the log, so the engine names the record of a source topic.
    """
    topic = case.get("config", {}).get(_DEAD_LETTERS)
    sources = {event["topic"] for event in case.get("input", ()) if "topic" in event}
    expect, found = json.loads(json.dumps((case["expect"], result.found)))
    letters = (each.get("output", {}).get(topic, ()) for each in (expect, found))
    for expected, actual in zip(*letters, strict=False):
        if (
            _source_record(expected)[0].endswith("-repartition")
            and _source_record(actual)[0] in sources
        ):
            expected["headers"] = _without_position(expected["headers"])
            actual["headers"] = _without_position(actual["headers"])
    return {**case, "expect": expect}, CaseResult(found, result.exception, result.at)


def _without_position(headers: list[list[str]]) -> list[list[str]]:
    return [each for each in headers if each[0] not in _POSITION]


def _without_last_dead_letters(case: Case, result: CaseResult) -> CaseResult:
    """The result without the dead letters of the record that stopped the application: one of each
    handler that was called.

    The engine writes them in a transaction of its own. Kafka's driver raises before it collects
    outputs.
    """
    topic = case.get("config", {}).get(_DEAD_LETTERS)
    letters = result.found["output"].get(topic, [])
    expected = len(case["expect"].get("output", {}).get(topic, ()))
    last = letters[expected:]
    if result.exception is None or not last or len({_source_record(each) for each in last}) > 1:
        return result
    output = {**result.found["output"], topic: letters[:expected]}
    if not expected:
        del output[topic]
    return CaseResult({**result.found, "output": output}, result.exception, result.at)


def _source_record(letter: dict[str, Any]) -> tuple[str, ...]:
    """The position of the record that a dead letter is about."""
    headers = dict(letter["headers"])
    return tuple(str(headers.get(name)) for name in _POSITION)


def _is_refused_or_later(case: Case, result: CaseResult) -> bool:
    """Whether the failure is correct on a log, although Kafka's driver has another one."""
    expected = case["expect"].get("error")
    if isinstance(result.exception, InvalidTopic):
        # Kafka's driver has no topics, hence no invalid topic names.
        return True
    # A record of a global table is read when the next batch needs the table. The engine raises the
    # error with the position of the record, Kafka's driver the error itself.
    return (
        expected is not None and result.exception is not None and _has_global_tables(case)
        and expected["type"] in java_names(result.exception.__cause__ or result.exception)
    )


def _same_end(one: CaseResult, other: CaseResult) -> bool:
    return type(one.exception) is type(other.exception) and (
        one.exception is None or one.at == other.at
    )


class BatchRun(Run):
    """Runs a case on penstock's driver as the engine does, with a task for each sub-topology and a
    batch for each event.

    With 0 `commits` the driver commits after every record, otherwise that often after each event:
    with each commit records move to the next sub-topology.
    """

    def __init__(
        self, case: Case, result: CaseResult, commits: int, *, new_batches: bool
    ) -> None:
        """`new_batches`: processors and caches live for one event, as in batch mode."""
        super().__init__(case, result)
        self._commits = commits
        self._new_batches = new_batches

    def _driver(self, topology: Topology, config: Any) -> Any:
        return TopologyTestDriver(
            topology, config, self.case.get("wall", 0), partitions=1,
            auto_commit=not self._commits, show_printed=False,
        )

    def _event(self, driver: TopologyTestDriver, event: dict[str, Any]) -> None:
        super()._event(driver, event)
        for _ in range(self._commits):
            driver.commit()
        if self._new_batches:
            driver.new_batch()


def _with_expected(case: Case, result: CaseResult) -> Case:
    """The case with other expected results for the parts that depend on the number of tasks."""
    theirs = ("output", "stores", "queries", "dropped", "printed", "internal_stores")
    expect = {**case["expect"], **{part: result.found.get(part) for part in theirs}}
    if result.exception is not None:
        kind = next(iter(java_names(result.exception)))
        expect["error"] = {"type": kind, "at": result.at}
    else:
        expect.pop("error", None)
    return {**case, "expect": expect}


def _ends(case: Case) -> Case:
    return {**case, "expect": {
        **case["expect"], "output": _last_of_each_key(case["expect"].get("output", {}))
    }}


def _ends_of(result: CaseResult) -> CaseResult:
    return CaseResult(
        {**result.found, "output": _last_of_each_key(result.found["output"])},
        result.exception, result.at,
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
    """Whether a case has a field with that name, and that value if one is given, at any depth."""
    if isinstance(node, list):
        return any(_has(each, name, value) for each in node)
    if not isinstance(node, dict):
        return False
    if name in node and (value is None or node[name] == value):
        return True
    return any(_has(each, name, value) for key, each in node.items() if key != "expect")
