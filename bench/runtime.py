"""The cost of a task, as a ratio to a loop that only decodes the same JSON.

The reference loop only calls the JSON decoder for every value. The second figure is the ratio to a
loop that calls the deserializer of the serde, which also handles errors.

    W1  stateless: filter, map_values, write
    W2  count by key (100,000 keys)
    W3  count in windows of 15 s
    W4  stream-table join
    W5  re-key and aggregate: two sub-topologies

Serdes, store layers, changelogs, caches and counters are enabled, as in production. The reference
loop runs before every workload in the same process. The best round counts for both.

    python bench/runtime.py [--records 250000] [--rounds 3] [--only W2] [--profile]
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import json
import platform
import pstats
import time
from collections.abc import Callable
from typing import Any

import msgspec
from orders import Orders, orders

from penstock import Serdes, StreamsBuilder, StreamsConfig, TimeWindows, Topology, native
from penstock.record import PartitionColumns, TaskId
from penstock.task.blueprint import Blueprint
from penstock.task.queue import RecordRange
from penstock.task.result import TaskResult
from penstock.task.task import Task

STRING, JSON, DOUBLE = Serdes.string(), Serdes.json(), Serdes.double()
LIMITS = {"W1": 3.5, "W2": 5.0, "W3": 8.0, "W4": 8.0, "W5": 8.0}


def stateless(builder: StreamsBuilder) -> None:
    (
        builder.stream("orders", key=STRING, value=JSON)
        .filter(lambda key, order: order["orderType"] == "GENERAL")
        .map_values(lambda order: order["finalAmount"])
        .to("amounts", key=STRING, value=DOUBLE)
    )


def count(builder: StreamsBuilder) -> None:
    (
        builder.stream("orders", key=STRING, value=JSON)
        .group_by_key()
        .count(store="counts")
        .to_stream()
        .to("counts", key=STRING, value=Serdes.long())
    )


def windows(builder: StreamsBuilder) -> None:
    (
        builder.stream("orders", key=STRING, value=JSON)
        .group_by_key()
        .windowed_by(TimeWindows.of(15_000, grace=5_000))
        .count(store="windows")
        .to_stream()
        .to("windows")
    )


def stream_table_join(builder: StreamsBuilder) -> None:
    customers = builder.table("customers", key=STRING, value=JSON, store="customers")
    (
        builder.stream("orders", key=STRING, value=JSON)
        .join(customers, lambda order, customer: {**order, "name": customer["name"]})
        .to("enriched", key=STRING, value=JSON)
    )


def rekey_and_aggregate(builder: StreamsBuilder) -> None:
    (
        builder.stream("orders", key=STRING, value=JSON)
        .select_key(lambda key, order: order["locationId"])
        .group_by_key(key=STRING, value=JSON)
        .aggregate(
            lambda: {"count": 0, "revenue": 0.0},
            lambda key, order, total: {
                "count": total["count"] + 1, "revenue": total["revenue"] + order["finalAmount"],
            },
            store="revenue",
        )
        .to_stream()
        .to("revenue", key=STRING, value=JSON)
    )


WORKLOADS: dict[str, Callable[[StreamsBuilder], None]] = {
    "W1": stateless, "W2": count, "W3": windows, "W4": stream_table_join,
    "W5": rekey_and_aggregate,
}


def config() -> StreamsConfig:
    return StreamsConfig(
        application_id="bench", default_key_serde=STRING, default_value_serde=JSON
    )


def task_of(topology: Topology, group: int) -> Task:
    """A started task of one sub-topology, subscribed to its topics."""
    blueprint = Blueprint.of(topology, config(), [group])
    task = Task(blueprint, TaskId(group, 0))
    task.start()
    for source in blueprint.sources:
        for topic in source.topics:
            task.subscribe(source.name, blueprint.topic(topic), 0)
    return task


def range_of(topic: str, records: Orders) -> RecordRange:
    return RecordRange(PartitionColumns(
        topic=topic, partition=0, offsets=range(len(records.keys)),
        timestamps=records.timestamps, keys=records.keys, values=records.values,
    ))


def customers() -> Orders:
    keys = [b"customer_%d" % number for number in range(100_000)]
    return Orders(keys, [b'{"name":"%b"}' % key for key in keys], [0] * len(keys))


def run_workload(
    name: str, records: Orders, clock: Callable[[], float] = time.perf_counter
) -> tuple[float, int]:
    """Seconds and outputs of one batch over all records."""
    builder = StreamsBuilder()
    WORKLOADS[name](builder)
    topology = builder.build()
    task = task_of(topology, 0)
    if name == "W4":
        task.run({("customers", 0): range_of("customers", customers())})
        task.advance()
    batch = range_of("orders", records)
    gc.collect()
    begun = clock()
    result = _done(task.run({("orders", 0): batch}))
    if name == "W5":
        result = _second_stage(topology, result)
    return clock() - begun, len(result.outputs)


def _second_stage(topology: Topology, first: TaskResult) -> TaskResult:
    """Run the second sub-topology on the outputs of the first."""
    task = task_of(topology, 1)
    rows = first.outputs
    topic = rows[0][0]
    batch = RecordRange(PartitionColumns(
        topic=topic, partition=0, offsets=range(len(rows)), timestamps=[row[4] for row in rows],
        keys=[row[2] for row in rows], values=[row[3] for row in rows],
    ))
    return _done(task.run({(topic, 0): batch}))


def _done(result: TaskResult) -> TaskResult:
    if result.failure is not None:
        raise result.failure
    return result


def bare_decoding(records: Orders, decode: Callable[[bytes], Any]) -> float:
    gc.collect()
    begun = time.perf_counter()
    for value in records.values:
        decode(value)
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=250_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=WORKLOADS)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    records = orders(options.records)
    figures: dict[str, Any] = {}
    for name in [options.only] if options.only else WORKLOADS:
        if options.profile:
            with cProfile.Profile() as profile:
                run_workload(name, records)
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)
            continue
        bare, by_serde, spent, outputs = float("inf"), float("inf"), float("inf"), 0
        for _ in range(options.rounds):
            bare = min(bare, bare_decoding(records, msgspec.json.Decoder().decode))
            by_serde = min(by_serde, bare_decoding(records, JSON.deserialize))
            seconds, outputs = run_workload(name, records)
            spent = min(spent, seconds)
        figures[name] = {
            "ratio": round(spent / bare, 2), "limit": LIMITS[name],
            "ratio_to_serde": round(spent / by_serde, 2),
            "records_per_second": round(options.records / spent),
            "microseconds": round(spent / options.records * 1e6, 2), "outputs": outputs,
        }
        print(
            f"{name}: {spent / bare:5.2f}x bare decoding (limit {LIMITS[name]}), "
            f"{spent / by_serde:5.2f}x the serde, "
            f"{options.records / spent:>9,.0f} records/s, {outputs:,} outputs"
        )
    print(json.dumps({
        "bench": "runtime", "records": options.records, "rounds": options.rounds,
        "python": platform.python_version(), "core": native.in_use(), "workloads": figures,
    }))


if __name__ == "__main__":
    main()
