"""`StoreRows`: the stores of an application, how far they are behind, and how often they change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.queries.state_reader import StateReader

#: Lags by store and partition, with the members `position` and `end`.
Lags = Mapping[str, Mapping[int, Any]]


class StoreRows:
    """Compares the ends of changelogs with those of the last call. One thread uses it at a time."""

    def __init__(self) -> None:
        #: Store -> the sum of the committed ends of its changelog.
        self._ends: dict[str, int] = {}
        self._read_at = 0.0

    def read(self, reader: StateReader, now: float) -> list[dict[str, Any]]:
        """Return a row for each store. `now`: seconds of a monotonic clock."""
        lags: Lags = reader.lags()
        ends = {name: sum(each.end for each in lag.values()) for name, lag in lags.items()}
        rates = self._rates(ends, now)
        self._ends, self._read_at = ends, now
        return [
            {
                "name": name, "kind": store.kind, "partitions": len(store.partitions),
                "lag": sum(
                    max(0, each.end - each.position) for each in lags.get(name, {}).values()
                ),
                "changes_per_s": rates.get(name),
            }
            for name, store in sorted(reader.stores().items())
        ]

    def _rates(self, ends: Mapping[str, int], now: float) -> dict[str, float]:
        """Store -> changes per second since the last call. Changelogs do not shrink."""
        seconds = now - self._read_at
        return {
            name: round(max(0, end - self._ends[name]) / seconds, 2)
            for name, end in ends.items() if name in self._ends
        }
