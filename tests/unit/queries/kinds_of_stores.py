"""A topology with one store of each kind, and input for it."""

from __future__ import annotations

from typing import Any

from penstock import (
    Materialized,
    Processor,
    Record,
    SessionWindows,
    Stores,
    StreamsBuilder,
    TimeWindows,
    Topology,
)

#: (topic, key, value, timestamp)
EVENTS = [
    ("words", "ann", "tea", 1_000), ("words", "bob", "milk", 1_500), ("words", "ann", "tea", 2_000),
    ("words", "eve", "tea", 31_000), ("prices", "tea", "3", 1_000), ("prices", "tea", "4", 2_000),
    ("prices", "milk", "1", 2_500), ("names", "1", "one", 100),
]
TOPICS = ("words", "prices", "names")


class Keeper(Processor[str, str, None, None]):
    """Writes every record to the plain store."""

    def init(self, context: Any) -> None:
        self._store = context.get_state_store("plain")

    def process(self, record: Record[str, str]) -> None:
        self._store.put(record.key, record.value)


def all_kinds() -> Topology:
    """Stores 'counts' (timestamped), 'plain', 'windows', 'sessions', 'prices' (versioned) and the
    global store 'names'."""
    builder = StreamsBuilder()
    plain = Stores.key_value_store_builder(Stores.persistent_key_value_store("plain"), str, str)
    builder.add_state_store(plain)
    words = builder.stream("words", key=str, value=str)
    words.process(Keeper, "plain")
    words.group_by(lambda _, word: word, key=str, value=str).count(store="counts")
    by_name = words.group_by_key()
    by_name.windowed_by(TimeWindows.of(10_000, grace=60_000)).count(store="windows")
    by_name.windowed_by(SessionWindows.of(5_000, grace=60_000)).count(store="sessions")
    versioned = Stores.persistent_versioned_key_value_store("prices", 600_000)
    builder.table("prices", store=Materialized(supplier=versioned, key=str, value=str))
    builder.global_table("names", key=str, value=str, store="names")
    return builder.build()
