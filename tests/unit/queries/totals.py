"""A custom store, its type for `Streams.store` and its query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock import (
    Processor,
    Query,
    QueryableStoreType,
    QueryConfig,
    QueryResult,
    Record,
    StateStoreProvider,
    StoreBuilder,
    StreamsBuilder,
    Topology,
)
from penstock.queries import PositionBound


@dataclass(frozen=True)
class TopQuery(Query[list[tuple[str, int]]]):
    """The most frequent words of a partition."""

    number: int


class Totals:
    """A custom store that counts words."""

    name = "totals"
    persistent = False

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.is_open = False

    def init(self, context: Any) -> None:
        self.context = context
        self.is_open = True

    def add(self, word: str) -> None:
        self.counts[word] += 1
        count = str(self.counts[word]).encode()
        current = self.context.current
        self.context.log_change(self.name, word.encode(), count, current.timestamp, ())

    def restore(self, key: bytes, value: bytes | None, timestamp: int, headers: Any) -> None:
        assert value is not None
        self.counts[key.decode()] = int(value)

    def query(self, query: Query[Any], bound: PositionBound, config: QueryConfig) -> Any:
        if not isinstance(query, TopQuery):
            return QueryResult.for_unknown_query_type(query, self.name)
        if query.number == 0:
            return []
        result = QueryResult.for_result(self.counts.most_common(query.number))
        if config.is_collect_execution_info:
            result.add_execution_info(f"{len(self.counts)} words")
        return result

    def commit(self) -> None:
        pass

    def advance(self) -> None:
        pass

    def clocks(self) -> dict[str, int]:
        return {}

    def set_clocks(self, clocks: Mapping[str, int]) -> None:
        pass

    def close(self) -> None:
        self.is_open = False


class ReadOnlyTotals:
    """The counts of all partitions."""

    def __init__(self, provider: StateStoreProvider) -> None:
        self._provider = provider

    def __getitem__(self, word: str) -> int:
        total = 0
        for partition in self._provider.partitions:
            with self._provider.open(partition) as store:
                total += store.counts[word]
        return total


class TotalsType(QueryableStoreType[ReadOnlyTotals]):
    """The type of the store."""

    def accepts(self, kind: str) -> bool:
        return kind == "custom"

    def create(self, provider: StateStoreProvider) -> ReadOnlyTotals:
        return ReadOnlyTotals(provider)


class CountWords(Processor[str, str, None, None]):
    """Adds every value to the store."""

    def process(self, record: Record[str, str]) -> None:
        self.context.get_state_store("totals").add(record.value)


def totals_topology() -> Topology:
    """A topology that counts the values of `words` in a custom store."""
    builder = StreamsBuilder()
    builder.add_state_store(StoreBuilder.custom("totals", Totals))
    stream = builder.stream("words", key=str, value=str)
    stream.process(CountWords, "totals")
    stream.to_table(store="latest")
    return builder.build()
