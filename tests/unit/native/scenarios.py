"""Topologies over records of all kinds; prints all results of their tasks.

Run by `test_both_ways.py` with and without the native core: the lines must be the same.

    python scenarios.py [--rounds 1]
"""

from __future__ import annotations

import argparse
import logging
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from penstock import Materialized, Serdes, Stores, StreamsBuilder, StreamsConfig, TimeWindows
from penstock.record import NO_HEADERS, Headers, PartitionColumns, TaskId
from penstock.task.blueprint import Blueprint
from penstock.task.queue import RecordRange
from penstock.task.record_limits import RecordLimits
from penstock.task.runtime import Environment
from penstock.task.task import Task
from penstock.timestamps import LogAndSkipOnInvalidTimestamp
from penstock.windows import SessionWindows, SlidingWindows

STRING, JSON, LONG, DOUBLE = Serdes.string(), Serdes.json(), Serdes.long(), Serdes.double()
SHARED: dict[str, Any] = {"seen": 0}


def failing(key: Any, value: Any) -> bool:
    if value is not None and value["n"] % 7 == 3:
        raise ValueError(f"seven: {value['n']}")
    return value is None or bool(value["n"] % 2)


def stateless(builder: StreamsBuilder) -> None:
    orders = builder.stream("orders", key=STRING, value=JSON)
    orders.filter(failing).map_values(lambda value: value and value["amount"]).to(
        "amounts", key=STRING, value=DOUBLE
    )
    orders.filter_not(lambda key, value: value is None).map_values(
        lambda key, value: [key, value["n"]]
    ).to("pairs", key=STRING, value=JSON)


def counts(builder: StreamsBuilder) -> None:
    builder.stream("orders", key=STRING, value=JSON).group_by_key().count(
        store="counts"
    ).to_stream().to("counts", key=STRING, value=LONG)


def counts_with_old_values(builder: StreamsBuilder) -> None:
    (
        builder.stream("orders", key=STRING, value=JSON).group_by_key().count(store="counts")
        .group_by(lambda key, count: (str(count), key), key=STRING, value=STRING)
        .count(store="counts-of-counts").to_stream().to("counts", key=STRING, value=LONG)
    )


def sums(builder: StreamsBuilder) -> None:
    builder.stream("orders", key=STRING, value=JSON).group_by_key().aggregate(
        lambda: 0.0, lambda key, value, total: None if total > 900 else total + value["amount"],
        store=Materialized("sums", key=STRING, value=DOUBLE),
    ).to_stream().to("sums", key=STRING, value=DOUBLE)


def totals(key: Any, value: Any, total: Any) -> Any:
    """Aggregates that are changed, shared, kept, dropped and different from their JSON."""
    kind = value["n"] % 6
    if kind == 0:
        total["n"] += 1
        return total
    if kind == 1:
        total["last"] = value
        return total
    if kind == 2:
        return {**total, "pair": (1, [2, {"three": 3}])}
    if kind == 3:
        total["n"] = -1
        raise ValueError("changed, then failed")
    if kind == 4:
        SHARED["seen"] += 1
        return SHARED
    return None if value["n"] % 5 == 0 else {"n": total["n"] + 1, "amount": value["amount"]}


def aggregates(builder: StreamsBuilder) -> None:
    (
        builder.stream("orders", key=STRING, value=JSON).select_key(lambda key, value: key)
        .group_by_key(key=STRING, value=JSON)
        .aggregate(lambda: {"n": 0}, totals, store=Materialized("totals", key=STRING, value=JSON))
        .to_stream().to("totals", key=STRING, value=JSON)
    )


def windows(*, memory: bool, advance: int) -> Callable[[StreamsBuilder], None]:
    def say(builder: StreamsBuilder) -> None:
        store = Materialized("windows", key=STRING)
        if memory:
            store = Materialized(
                key=STRING, supplier=Stores.in_memory_window_store("windows", 60_000, 1_000)
            )
        (
            builder.stream("orders", key=STRING, value=JSON).group_by_key()
            .windowed_by(TimeWindows.of(1_000, grace=500).advance_by(advance))
            .count(store=store).to_stream().to("windows")
        )

    return say


def other_windows(builder: StreamsBuilder) -> None:
    grouped = builder.stream("orders", key=STRING, value=JSON).group_by_key()
    grouped.windowed_by(SlidingWindows.of(700, grace=300)).count(store="sliding")
    grouped.windowed_by(SessionWindows.of(200, grace=300)).count(store="sessions")
    grouped.reduce(lambda one, other: other, store="newest").to_stream().to("newest")


def joins(*, left: bool) -> Callable[[StreamsBuilder], None]:
    def say(builder: StreamsBuilder) -> None:
        table = builder.table("customers", key=STRING, value=JSON, store="customers")
        orders = builder.stream("orders", key=STRING, value=JSON)
        join = orders.left_join if left else orders.join
        join(table, lambda order, customer: [order["n"], customer]).to(
            "joined", key=STRING, value=JSON
        )

    return say


SCENARIOS: dict[str, Callable[[StreamsBuilder], None]] = {
    "stateless": stateless, "counts": counts, "old values": counts_with_old_values, "sums": sums,
    "aggregates": aggregates, "tumbling": windows(memory=False, advance=1_000),
    "hopping": windows(memory=False, advance=300), "in memory": windows(memory=True, advance=300),
    "other windows": other_windows, "join": joins(left=False), "left join": joins(left=True),
}


def records(
    chance: random.Random, topic: str, first: int, count: int, begin: int
) -> RecordRange:
    """Null keys and values, invalid JSON, timestamps out of order, headers."""
    numbers = range(first, first + count)
    times = [begin + n * 20 + chance.randrange(-3_000, 400) * (chance.random() < 0.2)
             for n in numbers]
    keys = [None if chance.random() < 0.03 else b"k\xc3\xa9%d" % chance.randrange(25)
            for _ in numbers]
    values = [
        None if chance.random() < 0.03 else b"{" if chance.random() < 0.02
        else b'{"n":%d,"amount":%.2f}' % (n, chance.random() * 100) for n in numbers
    ]
    headers = [Headers([("h", b"%d" % n)]) if chance.random() < 0.1 else NO_HEADERS
               for n in numbers]
    return RecordRange(PartitionColumns(
        topic=topic, partition=0, offsets=numbers, timestamps=times, keys=keys, values=values,
        headers=headers if chance.random() < 0.5 else None,
    ))


def play(name: str, cache_bytes: int, partitions: int, level: str = "INFO") -> list[str]:
    """The results of a task for four batches, including records that topics reject."""
    builder = StreamsBuilder()
    SCENARIOS[name](builder)
    config = StreamsConfig(
        application_id="both", default_key_serde=STRING, default_value_serde=JSON,
        statestore_cache_max_bytes=cache_bytes, deserialization_exception_handler="continue",
        processing_exception_handler="continue", production_exception_handler="continue",
        metrics_recording_level=level,
    )
    # Records with negative timestamps are skipped, or absent.
    begin = 10_000
    if partitions == 2:
        config = replace(config, default_timestamp_extractor=LogAndSkipOnInvalidTimestamp())
        begin = 1_000
    SHARED["seen"] = 0
    chance = random.Random(f"{name}{cache_bytes}")
    lines = []
    blueprint = Blueprint.of(builder.build(), config)
    environment = Environment(
        partitions_of=lambda topic: partitions,
        limits_of=lambda topic: (
            RecordLimits(40, topic == "pairs", begin, begin + 20_000) if partitions > 2
            else None
        ),
    )
    task = Task(blueprint, TaskId(0, 0), environment)
    task.start()
    topics = [blueprint.topic(topic) for source in blueprint.sources for topic in source.topics]
    for source in blueprint.sources:
        for topic in source.topics:
            task.subscribe(source.name, blueprint.topic(topic), 0)
    rerouted: dict[str, list[tuple[Any, ...]]] = {topic: [] for topic in topics}
    for batch in range(4):
        ranges = {}
        for topic in topics:
            if topic in ("orders", "customers"):
                count = chance.choice((1, 60, 1_500 if topic == "orders" else 50))
                ranges[topic, 0] = records(chance, topic, batch * 2_000, count, begin)
            elif rows := rerouted[topic]:
                ranges[topic, 0] = RecordRange(PartitionColumns(
                    topic=topic, partition=0, offsets=range(len(rows)),
                    timestamps=[row[4] for row in rows], keys=[row[2] for row in rows],
                    values=[row[3] for row in rows], headers=[row[5] for row in rows],
                ))
        result = task.run(ranges)
        task.advance()
        for topic in topics:
            rerouted[topic] = [row for row in result.outputs if row[0] == topic]
        place = f"{name}, {cache_bytes} bytes, {partitions} partitions, batch {batch}"
        parts = (*result.outputs, *result.changelog, result.offsets, result.state,
                 result.counters, result.failure, task.runtime.cache.evictions)
        lines += [f"{place}: {part!r}" for part in parts]
    for store in task.runtime.stores.values():
        if not hasattr(store, "all"):
            continue
        lines += [f"{name}, {store.name}: {row!r}" for row in store.all()]
    task.close()
    return lines


def play_all() -> list[str]:
    """Run every scenario without a cache, with small ones and with a large one."""
    return [
        line for name in SCENARIOS
        for cache_bytes, partitions in ((0, 1), (2_000, 3), (20_000, 2), (10_000_000, 1))
        for line in play(name, cache_bytes, partitions)
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=1)
    # Silences the messages about skipped records.
    logging.disable(logging.CRITICAL)
    for _ in range(parser.parse_args().rounds):
        played = play_all()
    print("\n".join(played))
