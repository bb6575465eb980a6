"""`Flow`: the rates of nodes and topics in the last seconds, and the hot spots among them.

Metrics and logs count from the start. Their rates cover the last minute, or do not exist. The page
shows what happens now, so this module keeps the totals of the last documents and subtracts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.web.arrow_rates import arrow_rates
from penstock.web.durations import duration
from penstock.web.graph import NodeGraph
from penstock.web.node_times import busy_nodes, node_times
from penstock.web.summary import Summary

#: Rates are averages over this time.
RATE_S = 5.0
#: The lag of a topic is compared with its lag this long ago.
GROWTH_S = 10.0
#: A node is a hot spot if its records are so much older than at the inputs of the application,
#: and by so large a share of their age there. Averages of old records differ by less.
HOT_GROWTH_MS = 1_000.0
HOT_GROWTH_SHARE = 0.1
#: Records that are older when they are read have old event times. Their latency says nothing.
OLD_MS = 3_600_000.0


class _Sample(NamedTuple):
    time_s: float
    #: A node, topic, edge or the whole instance -> records so far.
    totals: dict[Any, float]
    #: Topic -> records that are not processed yet.
    lags: dict[str, int]


class Flow:
    """Compares a document with the earlier ones. One thread uses it at a time."""

    def __init__(self, graph: NodeGraph | None = None) -> None:
        self._graph = graph or NodeGraph()
        self._samples: deque[_Sample] = deque()

    def describe(
        self, summary: Summary, topics: Sequence[Mapping[str, Any]], now: float,
        lanes: Sequence[Sequence[str]] = (),
    ) -> dict[str, Any]:
        """Return the nodes, the edges between topics and nodes, the topics, and the hot spots.

        Args:
            summary: The metrics.
            topics: Rows with `name`, `end` and `lag`.
            now: Seconds of a monotonic clock.
            lanes: The tasks of each lane.
        """
        totals: dict[Any, float] = {
            **{("node", name): total for name, total in summary.totals.items()},
            **{("topic", row["name"]): row["end"] for row in topics},
            # A reader of the state runs no tasks and has no metrics.
            **({"all": summary.thread["records"]} if "records" in summary.thread else {}),
            **{("edge", *ends): total for ends, total in summary.edges.items()},
        }
        sample = _Sample(now, totals, {row["name"]: row["lag"] or 0 for row in topics})
        while self._samples and self._samples[0].time_s < now - GROWTH_S - 1:
            self._samples.popleft()
        rates = self._rates(sample)
        node_rates = {
            **summary.rates, **{name: rates["node", name] for name in summary.totals
                                if ("node", name) in rates},
        }
        latencies = self._graph.latencies(summary.latencies)
        ages = self._graph.input_ages(latencies)
        rows = [{**row, "rate": _rounded(rates.get(("topic", row["name"])))} for row in topics]
        times = node_times(summary, lanes)
        hot = [
            *self._growing(sample, rows), *busy_nodes(times, "lane" if lanes else "task"),
            *_slowest(latencies, ages),
        ]
        self._samples.append(sample)
        return {
            "records_per_s": _rounded(rates.get("all", summary.thread.get("records_per_s"))),
            "latency_ms": _rounded(max(
                (each for name, each in latencies.items() if ages.get(name, 0.0) < OLD_MS),
                default=None,
            )),
            "nodes": {
                name: {
                    "rate": _rounded(node_rates.get(name)),
                    "latency_ms": _rounded(latencies.get(name)),
                    **({"time_ms": times[name].each_ms, "share": round(times[name].share, 4)}
                       if name in times else {}),
                }
                for name in {**summary.totals, **node_rates, **latencies, **times}
            },
            "topics": rows, "hot": hot, "old": [*self._old_inputs(latencies)],
            "edges": [
                [topic, node, _rounded(rates.get(("edge", topic, node))),
                 _rounded(latencies.get(node))]
                for topic, node in summary.edges
            ],
            "arrows": self._arrows(node_rates, latencies),
        }

    def _arrows(
        self, node_rates: Mapping[str, float], latencies: Mapping[str, float]
    ) -> list[list[Any]]:
        """Between nodes: both ends, records/s, and the latency of the node that it leaves."""
        rates = arrow_rates(self._graph, node_rates)
        return [
            [*ends, _rounded(rates.get(ends)), _rounded(latencies.get(ends[0]))]
            for ends in self._graph.arrows
        ]

    def _old_inputs(self, latencies: Mapping[str, float]) -> Iterator[dict[str, str]]:
        """Inputs whose records were old when they were read."""
        for name, topics in self._graph.topics_of_inputs().items():
            if latencies.get(name, 0.0) >= OLD_MS:
                yield {
                    "name": ", ".join(topics) or name,
                    "reason": f"event time is {duration(latencies[name])} old",
                }

    def _rates(self, sample: _Sample) -> dict[Any, float]:
        last = self._samples[-1] if self._samples else None
        start = next(
            (each for each in self._samples if each.time_s >= sample.time_s - RATE_S - 0.5), last
        )
        if start is None or start.time_s >= sample.time_s:
            return {}
        seconds = sample.time_s - start.time_s
        # A total that is lower than before counts from a new start of the application.
        return {
            key: max(0.0, total - start.totals[key]) / seconds
            for key, total in sample.totals.items() if key in start.totals
        }

    def _growing(
        self, sample: _Sample, topics: Sequence[Mapping[str, Any]]
    ) -> Iterator[dict[str, str]]:
        """Topics whose lag is larger than before, and larger than what is written in a second."""
        if not self._samples or sample.time_s - self._samples[0].time_s < GROWTH_S / 2:
            return
        earlier = self._samples[0]
        for row in topics:
            name, lag = row["name"], row["lag"] or 0
            growth = lag - earlier.lags.get(name, lag)
            if growth > 0 and lag > max(row["rate"] or 0, 1):
                seconds = sample.time_s - earlier.time_s
                yield {
                    "kind": "topic", "name": name,
                    "reason": f"lag {lag:,}, {growth:,} more than {seconds:.0f} s ago",
                }


def _slowest(
    latencies: Mapping[str, float], ages: Mapping[str, float]
) -> Iterator[dict[str, str]]:
    """The node whose records have become older since they were read than those of other nodes."""
    growth = {name: latencies[name] - ages[name] for name in latencies if name in ages}
    name = max(growth, key=growth.__getitem__, default=None)
    if name is None:
        return
    if growth[name] >= max(HOT_GROWTH_MS, HOT_GROWTH_SHARE * ages[name]):
        yield {
            "kind": "node", "name": name,
            "reason": f"latency {duration(latencies[name])}, "
            f"{duration(growth[name])} more than at the input",
        }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
