"""`Flow`: the rates of nodes and topics in the last seconds, and the hot spots among them.

Metrics and logs count from the start. Their rates cover the last minute, or do not exist. The page
shows what happens now, so this module keeps the totals of the last documents and subtracts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.web.summary import Summary

#: Rates are averages over this time.
RATE_S = 5.0
#: The lag of a topic is compared with its lag this long ago.
GROWTH_S = 10.0
#: A node with a lower latency is not a hot spot.
HOT_LATENCY_MS = 1_000.0


class _Sample(NamedTuple):
    time_s: float
    #: A node, topic, edge or the whole instance -> records so far.
    totals: dict[Any, float]
    #: Topic -> records that are not processed yet.
    lags: dict[str, int]


class Flow:
    """Compares a document with the earlier ones. One thread uses it at a time."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque()

    def describe(
        self, summary: Summary, topics: Sequence[Mapping[str, Any]], now: float
    ) -> dict[str, Any]:
        """Return the nodes, the edges between topics and nodes, the topics, and the hot spots.

        Args:
            summary: The metrics.
            topics: Rows with `name`, `end` and `lag`.
            now: Seconds of a monotonic clock.
        """
        totals: dict[Any, float] = {
            **{("node", name): total for name, total in summary.totals.items()},
            **{("topic", row["name"]): row["end"] for row in topics},
            "all": summary.thread.get("records", 0),
            **{("edge", *ends): total for ends, total in summary.edges.items()},
        }
        sample = _Sample(now, totals, {row["name"]: row["lag"] or 0 for row in topics})
        while self._samples and self._samples[0].time_s < now - GROWTH_S - 1:
            self._samples.popleft()
        rates = self._rates(sample)
        nodes = {
            name: {
                "rate": _rounded(rates.get(("node", name), summary.rates.get(name))),
                "latency_ms": _rounded(summary.latencies.get(name)),
            }
            for name in {**summary.totals, **summary.rates, **summary.latencies}
        }
        rows = [{**row, "rate": _rounded(rates.get(("topic", row["name"])))} for row in topics]
        hot = [*self._growing(sample, rows), *_slowest(summary.latencies)]
        self._samples.append(sample)
        return {
            "records_per_s": _rounded(rates.get("all", summary.thread.get("records_per_s"))),
            "nodes": nodes, "topics": rows, "hot": hot,
            "edges": [
                [topic, node, _rounded(rates.get(("edge", topic, node)))]
                for topic, node in summary.edges
            ],
        }

    def _rates(self, sample: _Sample) -> dict[Any, float]:
        start = next(
            (each for each in self._samples if each.time_s >= sample.time_s - RATE_S - 0.5), None
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


def _slowest(latencies: Mapping[str, float]) -> Iterator[dict[str, str]]:
    """The node with the highest latency, if that is a second or more."""
    name = max(latencies, key=latencies.__getitem__, default=None)
    if name is not None and latencies[name] >= HOT_LATENCY_MS:
        yield {
            "kind": "node", "name": name,
            "reason": f"the highest latency, {latencies[name] / 1000:,.1f} s",
        }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
