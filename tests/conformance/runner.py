"""Runs one case under penstock's TopologyTestDriver and collects the results: all parts of `expect`
(README.md, section 7)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from conformance.cases import Case, InvalidCase
from conformance.dump import as_join_query, dump_store, is_listed, query_store, store_kind
from conformance.interpreter import Interpreter
from conformance.options import configuration
from conformance.query_api import check_queries
from conformance.wire import decode, encode
from penstock import StreamsBuilder, Topology, TopologyConfig
from penstock.testing import TopologyTestDriver

_APPLICATION = "oracle-"
_EXTRACTOR = re.compile(r"extractor class: [^)]*\)")


@dataclass
class CaseResult:
    """The results of a case. `exception` ended the run if it is not None."""

    found: dict[str, Any] = field(default_factory=dict)
    exception: BaseException | None = None
    #: The index of the event that raised, or "build", "stores", "close".
    at: int | str = "build"


def run_case(case: Case) -> CaseResult:
    """Run a case. Its exception is part of the result."""
    result = CaseResult({"output": {}, "internal_topics": {}})
    try:
        Run(case, result).run()
    except InvalidCase:
        raise
    except Exception as error:  # failures of cases are compared, too
        result.exception = error
    return result


class Run:
    """One run of one case."""

    def __init__(self, case: Case, result: CaseResult) -> None:
        self.case = case
        self.result = result
        self.found = result.found

    def run(self) -> None:
        """Build, feed the events, read the stores."""
        config = configuration(self.case)
        with_config = self.case.get("topology_config")
        builder = StreamsBuilder(config) if with_config else StreamsBuilder()
        steps = Interpreter(builder)
        topology = self._build(builder, steps, config)
        self.found["describe"] = _EXTRACTOR.sub(
            "extractor class: function)", str(topology.describe())
        )
        driver = self._driver(topology, config)
        is_complete = False
        try:
            if steps.branches:
                self.found["branches"] = steps.branches
            self._feed(driver, steps)
            self.result.at = "stores"
            self._read_stores(driver, steps)
            is_complete = True
        finally:
            self.found["dropped"] = int(driver.metrics().get("dropped-records-total", 0))
            self._close(driver, is_complete)
        if steps.prints:
            self.found["printed"] = {
                name: [line for file, line in driver.printed_lines if file == f"print-{name}"]
                for name in steps.prints
            }

    def _driver(self, topology: Topology, config: Any) -> Any:
        """The driver that processes the events."""
        return TopologyTestDriver(
            topology, config, initial_wall_clock=self.case.get("wall", 0), show_printed=False
        )

    def _build(self, builder: StreamsBuilder, steps: Interpreter, config: Any) -> Any:
        for step in self.case.get("topology", ()):
            if not step["op"].startswith("papi_"):
                steps.step(step)
        # Not a StreamsConfig: missing serdes are reported by the driver, as in Kafka Streams.
        topology = builder.build(TopologyConfig(config))
        for step in self.case.get("topology", ()):
            if step["op"].startswith("papi_"):
                steps.processor_api(topology, step)
        return topology

    def _close(self, driver: TopologyTestDriver, is_complete: bool) -> None:
        if is_complete:
            self.result.at = "close"
            driver.close()
            return
        try:
            driver.close()
        except Exception:  # the run has already failed with the error to report
            return

    # ---- events ----

    def _feed(self, driver: TopologyTestDriver, steps: Interpreter) -> None:
        try:
            for index, event in enumerate(self.case.get("input", ())):
                self.result.at = index
                try:
                    self._event(driver, event)
                finally:
                    self._drain(driver, index)
        finally:
            if steps.observed:
                self.found["observed"] = steps.observed

    def _event(self, driver: TopologyTestDriver, event: dict[str, Any]) -> None:
        if "wall" in event:
            driver.advance_wall_clock_time(event["wall"])
            return
        topic = event.get("topic", "")
        headers = [
            (name, None if value is None else value.encode())
            for name, value in event.get("headers", ())
        ]
        driver.pipe(
            topic, self._bytes(event, "key"), self._bytes(event, "value"),
            event.get("ts", 0), headers,
        )

    def _bytes(self, event: dict[str, Any], what: str) -> bytes | None:
        if f"{what}_hex" in event:
            return bytes.fromhex(event[f"{what}_hex"])
        return encode(self._topic_serde(event.get("topic", ""), what), event.get(what))

    def _topic_serde(self, topic: str, what: str) -> Any:
        return self.case.get("topics", {}).get(topic, {}).get(what, "string")

    def _drain(self, driver: TopologyTestDriver, at: int) -> None:
        for topic in sorted(driver.produced_topic_names()):
            records = driver.read_raw(topic)
            if topic.startswith(_APPLICATION):
                counts = self.found["internal_topics"]
                if records:
                    counts[topic] = counts.get(topic, 0) + len(records)
                continue
            out = self.found["output"].setdefault(topic, [])
            for record in records:
                shown = {
                    "key": decode(self._topic_serde(topic, "key"), record.key),
                    "value": decode(self._topic_serde(topic, "value"), record.value),
                    "ts": record.timestamp,
                    "at": at,
                }
                if record.headers:
                    shown["headers"] = [
                        [name, None if value is None else bytes(value).decode(errors="replace")]
                        for name, value in record.headers
                    ]
                out.append(shown)

    # ---- stores ----

    def _read_stores(self, driver: TopologyTestDriver, steps: Interpreter) -> None:
        cached = int(self.case.get("config", {}).get("statestore.cache.max.bytes", 0)) > 0
        keys = [e["key"] for e in self.case.get("input", ()) if e.get("key") is not None]
        all_stores = driver.get_all_state_stores()
        named: dict[str, Any] = {}
        others: dict[str, Any] = {}
        for name in sorted(all_stores):
            if not is_listed(name):
                continue
            own = name in steps.named_stores
            shown = dump_store(all_stores[name], keys, cached=cached, named=own)
            if shown is not None:
                (named if own else others)[name] = shown
        if named:
            self.found["stores"] = named
        if others:
            self.found["internal_stores"] = others
        if "queries" in self.case:
            self.found["queries"] = [
                self._query(driver, all_stores[query["store"]], query, steps)
                for query in self.case["queries"]
            ]

    def _is_queried(self, driver: Any, store: str) -> bool:
        """Whether queries of this store show its last commit."""
        return True

    def _query(
        self, driver: TopologyTestDriver, store: Any, query: dict[str, Any], steps: Interpreter
    ) -> Any:
        found = query_store(store, query)
        # A query does not read the record cache, which may hold rows that have expired below it.
        if not getattr(store, "is_caching", False) and self._is_queried(driver, query["store"]):
            through = check_queries(driver._store_queries, query, store_kind(store) or "")
            # `get` of a versioned store has no end of validity in Kafka; that of a query has.
            is_version = isinstance(found, dict) and "to" in (through or {})
            assert is_version or through == found, f"{query}: {through} instead of {found}"
        if store_kind(store) == "window" and query["store"] not in steps.named_stores:
            return as_join_query(query, found, store.persistent)
        return found
