"""Rates, latencies, hot spots, and the progress of restores, from maps of metrics."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import StreamsBuilder, Topology
from penstock.web.durations import duration
from penstock.web.flow import Flow
from penstock.web.graph import NodeGraph
from penstock.web.overview import restore_of
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
        **metric("state", "get-rate", 2.0, task_id="0_0", lmdb_state_id="counts"),
        **metric("state", "put-rate", 1.5, task_id="0_0", lmdb_state_id="counts"),
        **metric("state", "put-rate", 1.0, task_id="0_1", lmdb_state_id="counts"),
        **metric("state", "fetch-rate", 4.0, task_id="0_0", lmdb_window_state_id="hourly"),
        **metric("state", "put-latency-avg", 9.0, task_id="0_0", lmdb_state_id="counts"),
    })
    assert found.stores == {
        "counts": {"reads_per_s": 2.0, "writes_per_s": 2.5},
        "hourly": {"reads_per_s": 4.0, "writes_per_s": 0.0},
    }
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
    assert found["edges"] == [["in", "source", 50.0, None], ["out", "sink", 12.5, None]]
    assert found["topics"] == [{"name": "in", "end": 300, "lag": 0, "rate": 50.0}]
    assert found["records_per_s"] == 50.0
    # Of the last five seconds, not of the whole time.
    for second in range(53, 63):
        found = flow.describe(summarize(counters(150)), rows(300), float(second))
    assert found["nodes"]["filter"]["rate"] == 0.0


def test_reader_without_metrics_has_no_rate() -> None:
    flow = Flow()
    flow.describe(summarize({}), rows(200), 1.0)
    assert flow.describe(summarize({}), rows(300), 2.0)["records_per_s"] is None


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


def two_parts() -> Topology:
    """orders -> filter -> repartition -> count -> totals."""
    builder = StreamsBuilder()
    builder.stream("orders", key=str, value=str, name="read") \
        .filter(lambda key, value: True, name="valid") \
        .group_by(lambda key, value: value, name="by-value", key=str) \
        .count(store="counts", name="count").to_stream(name="changes").to("totals", name="write")
    return builder.build()


def latencies(**measured: float) -> Metrics:
    found: Metrics = {}
    for name, value in measured.items():
        found |= node(name.replace("_", "-"), "record-e2e-latency-avg", value)
    return found


def described(metrics: Metrics, topology: Topology | None = None) -> dict[str, Any]:
    graph = NodeGraph((topology or two_parts()).nodes)
    return Flow(graph).describe(summarize(metrics), [], 0.0)


def test_inner_nodes_and_arrows_have_the_latency_of_their_source() -> None:
    found = described(latencies(
        read=10.0, by_value_repartition_sink=12.0, by_value_repartition_source=30.0, write=35.0,
    ))
    shown = {name: each["latency_ms"] for name, each in found["nodes"].items()}
    assert (shown["valid"], shown["by-value-repartition-sink"]) == (10.0, 12.0)
    assert (shown["count"], shown["changes"], shown["write"]) == (30.0, 30.0, 35.0)
    arrows = {(start, end): latency for start, end, _, latency in found["arrows"]}
    assert arrows["read", "valid"] == 10.0
    assert arrows["changes", "write"] == 30.0
    assert found["latency_ms"] == 35.0


def test_node_whose_records_have_become_old_in_the_application_is_a_hot_spot() -> None:
    [hot] = described(latencies(
        read=1_500.0, by_value_repartition_sink=1_600.0, by_value_repartition_source=2_600.0,
        write=4_000.0,
    ))["hot"]
    assert hot == {
        "kind": "node", "name": "write", "reason": "latency 4 s, 2.5 s more than at the input",
    }
    assert described(latencies(read=3_000.0, write=3_999.0))["hot"] == []


def test_old_event_times_are_noted_but_are_no_hot_spot() -> None:
    """The averages of nodes cover other records, so they differ."""
    days = 86_400_000.0
    found = described(latencies(
        read=1_444 * days, by_value_repartition_source=1_445 * days, write=1_446 * days,
    ))
    assert found["hot"] == []
    assert found["old"] == [{"name": "orders", "reason": "event time is 1,444 days old"}]
    assert found["latency_ms"] is None


def test_idle_application_has_no_latency() -> None:
    assert described({})["latency_ms"] is None


def busy(name: str, ratio: float, task: str = "0_0", rate: float = 100.0) -> Metrics:
    """A node that takes a share of the time of a task."""
    return {
        **node(name, "process-ratio", ratio, task), **node(name, "process-rate", rate, task),
    }


def test_time_of_a_node_is_that_of_one_record_over_all_tasks() -> None:
    metrics = {
        **busy("slow", 0.3), **busy("slow", 0.1, "0_1", rate=300.0), **busy("fast", 0.1),
        **busy("idle", 0.0, rate=0.0),
    }
    nodes = Flow().describe(summarize(metrics), [], 0.0)["nodes"]
    # 0.4 s for 400 records in each second.
    assert (nodes["slow"]["time_ms"], nodes["slow"]["share"]) == pytest.approx((1.0, 0.8))
    assert nodes["fast"]["share"] == pytest.approx(0.2)
    assert (nodes["idle"]["time_ms"], nodes["idle"]["share"]) == (None, 0)


def test_node_that_keeps_a_lane_busy_is_hot() -> None:
    metrics = {**busy("slow", 0.3), **busy("slow", 0.3, "0_1"), **busy("fast", 0.2)}
    apart = Flow().describe(summarize(metrics), [], 0.0, [["0_0"], ["0_1"]])
    assert apart["hot"] == []
    # The same lane runs both tasks, one after the other.
    together = Flow().describe(summarize(metrics), [], 0.0, [["0_0", "0_1"], []])
    assert together["hot"] == [{
        "kind": "node", "name": "slow",
        "reason": "takes 60% of the time of a lane, 3 ms for a record",
    }]
    # In batch mode, tasks run side by side.
    assert Flow().describe(summarize(metrics), [], 0.0)["hot"] == []
    [hot] = Flow().describe(summarize(busy("slow", 0.9)), [], 0.0)["hot"]
    assert hot["reason"] == "takes 90% of the time of a task, 9 ms for a record"


def test_punctuators_keep_a_lane_busy_and_take_no_time_of_records() -> None:
    metrics = {**busy("scan", 0.2), **node("scan", "punctuate-ratio", 0.4), **busy("fast", 0.2)}
    found = Flow().describe(summarize(metrics), [], 0.0, [["0_0"]])
    assert (found["nodes"]["scan"]["time_ms"], found["nodes"]["scan"]["share"]) \
        == pytest.approx((2.0, 0.75))
    [hot] = found["hot"]
    assert hot["reason"] == "takes 60% of the time of a lane, 2 ms for a record"


def test_nodes_have_no_time_if_it_is_not_measured() -> None:
    nodes = Flow().describe(summarize(counters(10)), rows(10), 0.0)["nodes"]
    assert all("time_ms" not in each and "share" not in each for each in nodes.values())


def test_durations_are_readable() -> None:
    lengths = (0, 0.0123, 12.34, 999, 4_200, 90_000, 3_600_000, 124_780_568_300)
    assert [duration(each) for each in lengths] \
        == ["0 ms", "12 µs", "12 ms", "999 ms", "4.2 s", "1.5 min", "1 h", "1,444 days"]


def test_progress_of_a_restore_is_known_without_its_start() -> None:
    found = summarize({
        **task("0_0", "restore-remaining-records-total", 500),
        **task("0_0", "restore-progress", 0.5),
    }).tasks["0_0"]
    assert restore_of(found) == [500, 1000]
    assert restore_of({"remaining": 700, "progress": 0.0}) == [0, 700]
    assert restore_of({"remaining": 0, "progress": 1.0}) is None
    assert restore_of({}) is None
