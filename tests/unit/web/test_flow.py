"""Rates of nodes and topics, hot spots, and the progress of restores, from maps of metrics."""

from __future__ import annotations

from typing import Any

from penstock.web.flow import Flow
from penstock.web.overview import RestoreProgress
from penstock.web.summary import summarize
from unit.web.metric_maps import Metrics, metric, node, task, topic


def counters(records: int) -> Metrics:
    return {
        **topic("in", "records-consumed-total", records, "source"),
        **topic("in", "records-consumed-total", records, "source", "0_1"),
        **topic("out", "records-produced-total", records / 2, "sink"),
        **node("filter", "process-total", records), **node("filter", "process-rate", 7.0),
        **node("filter", "process-total", records, "0_1"),
        **node("filter", "process-rate", 5.0, "0_1"),
        **metric("thread", "process-total", 2 * records),
    }


def rows(end: int, lag: int | None = 0) -> list[dict[str, Any]]:
    return [{"name": "in", "end": end, "lag": lag}]


def test_totals_of_nodes_are_summed_over_tasks() -> None:
    found = summarize({
        **counters(10), **task("0_0", "process-total", 10),
        **task("0_0", "dropped-records-total", 1),
        **metric("join", "matched-total", 3, task_id="0_0", processor_node_id="joined"),
        **metric("join", "matched-total", 4, task_id="0_1", processor_node_id="joined"),
        **node("source", "record-e2e-latency-avg", 12.0),
        **node("source", "record-e2e-latency-avg", 30.0, "0_1"),
        **node("sink", "record-e2e-latency-avg", float("nan")),
        **metric("thread", "state", "RUNNING"),
    })
    # Sources and sinks have no counter of their own: those of their topics are taken.
    assert found.totals == {"source": 20, "filter": 20, "sink": 5}
    assert found.rates == {"filter": 12.0}
    assert found.latencies == {"source": 30.0}
    assert found.edges == {("in", "source"): 20, ("out", "sink"): 5}
    assert found.tasks == {"0_0": {"records": 10, "dropped": 1}}
    assert found.joins == {"joined": {"matched": 7}}


def test_own_counter_of_a_source_is_not_added_to_that_of_its_topic() -> None:
    found = summarize({**counters(10), **node("source", "process-total", 21)})
    assert found.totals["source"] == 21


def test_rates_are_those_of_the_last_seconds() -> None:
    flow = Flow()
    first = flow.describe(summarize(counters(100)), rows(200), 50.0)
    # Nothing to compare with: the rate of the metric is taken, if there is one.
    assert first["nodes"]["filter"]["rate"] == 12.0
    assert first["nodes"]["source"]["rate"] is None
    found = flow.describe(summarize(counters(150)), rows(300), 52.0)
    assert {name: each["rate"] for name, each in found["nodes"].items()} == {
        "source": 50.0, "filter": 50.0, "sink": 12.5,
    }
    assert found["edges"] == [["in", "source", 50.0], ["out", "sink", 12.5]]
    assert found["topics"] == [{"name": "in", "end": 300, "lag": 0, "rate": 50.0}]
    assert found["records_per_s"] == 50.0
    # Of the last five seconds, not of the whole time.
    for second in range(53, 63):
        found = flow.describe(summarize(counters(150)), rows(300), float(second))
    assert found["nodes"]["filter"]["rate"] == 0.0


def test_restarted_counter_has_no_negative_rate() -> None:
    flow = Flow()
    flow.describe(summarize(counters(100)), rows(200), 1.0)
    found = flow.describe(summarize(counters(3)), rows(200), 2.0)
    assert found["nodes"]["filter"]["rate"] == 0.0


def test_topic_with_a_growing_lag_is_a_hot_spot() -> None:
    flow = Flow()
    for second in range(11):
        found = flow.describe(summarize({}), rows(1000 * second, 1500 * second), float(second))
    [hot] = found["hot"]
    assert (hot["kind"], hot["name"]) == ("topic", "in")
    assert hot["reason"] == "lag 15,000, 15,000 more than 10 s ago"
    # The lag shrinks again.
    for second in range(11, 30):
        found = flow.describe(summarize({}), rows(11_000, 30_000 - 1_000 * second), float(second))
    assert found["hot"] == []


def test_lag_of_less_than_a_second_is_no_hot_spot() -> None:
    flow = Flow()
    for second in range(11):
        found = flow.describe(summarize({}), rows(1000 * second, 10 * second), float(second))
    assert found["hot"] == []


def test_node_with_the_highest_latency_is_a_hot_spot() -> None:
    slow = summarize({
        **node("source", "record-e2e-latency-avg", 1500.0),
        **node("sink", "record-e2e-latency-avg", 2500.0),
    })
    assert Flow().describe(slow, [], 0.0)["hot"] == [
        {"kind": "node", "name": "sink", "reason": "the highest latency, 2.5 s"}
    ]
    fast = summarize(node("source", "record-e2e-latency-avg", 999.0))
    assert Flow().describe(fast, [], 0.0)["hot"] == []


def test_progress_of_a_restore_counts_from_its_start() -> None:
    progress = RestoreProgress()
    found = summarize({
        **task("0_0", "restore-total", 300),
        **task("0_0", "restore-remaining-records-total", 700),
    }).tasks["0_0"]
    assert progress.of("0_0", found["restored"], found["remaining"]) == [300, 1000]
    assert progress.of("0_0", 900, 100) == [900, 1000]
    assert progress.of("0_0", 1000, 0) is None
    # The next restore of the task. The total grows when a restore is complete, or before.
    assert progress.of("0_0", 1000, 500) == [0, 500]
    assert progress.of("0_0", 1000, 200) == [300, 500]
    assert progress.of("0_0", 1400, 100) == [400, 500]
    assert progress.of("0_1", 0, 0) is None
