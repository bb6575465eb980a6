"""Tail readers and writers on Kafka: the clients in C against those in Python, on one broker.

    write      transactions of 20,000 records of 130 bytes, with offsets
    read       the same records with `TailReader.poll`, from `add` to the last record
    range      the same records with `Log.read`, one partition after the other, as columns
    commit     median and p99 of transactions of one record with an offset

Both kinds of clients take turns in one process. `_us` is the CPU time of the calling thread per
record: what a lane loses for its own work. `_process_us` includes the threads of librdkafka.
Figures are those of the best round; the ratios of all rounds are listed. Needs Java and the jars of
Kafka. Bounded: about a minute.

    python bench/kafka_io.py [--records 400000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
from log import order

from penstock import native
from penstock.broker.cluster import LocalCluster
from penstock.broker.properties import BrokerOptions
from penstock.log import Lease, Log, RecordColumns, TopicPartition, open_log

PARTITIONS = 4
TRANSACTION_RECORDS = 20_000
SMALL_TRANSACTIONS = 150
POLL_RECORDS = 20_000
Figures = dict[str, float]
Times = tuple[float, float, float]


def now() -> Times:
    """Return wall-clock time, CPU time of this thread, and of the process."""
    return time.perf_counter(), time.thread_time(), time.process_time()


def per_record(name: str, start: Times, count: int) -> Figures:
    wall, thread, process = (after - before for after, before in zip(now(), start, strict=True))
    return {
        f"{name}_per_s": count / wall, f"{name}_us": thread / count * 1e6,
        f"{name}_process_us": process / count * 1e6,
    }


def columns(count: int) -> RecordColumns:
    rng = random.Random(4)
    time_ms = time.time_ns() // 1_000_000
    return RecordColumns(
        [b"store_%04d" % rng.randrange(10_000) for _ in range(count)],
        [order(rng) for _ in range(count)],
        [time_ms + number // 100 for number in range(count)],
    )


def write(log: Log, lease: Lease, topic: str, records: RecordColumns, count: int) -> Figures:
    writer = log.open_writer(lease.create_writer(), lease.member_token)
    with writer.transaction() as first:
        # Metadata and the coordinator are found before the measurement.
        first.append(f"{topic}-small", 0, RecordColumns([b""], [b""]))
        first.commit_offsets(lease.name, {TopicPartition(f"{topic}-small", 0): 0})
    start = now()
    for number in range(count // TRANSACTION_RECORDS):
        with writer.transaction() as transaction:
            transaction.append(topic, number % PARTITIONS, records)
            transaction.commit_offsets(lease.name, {TopicPartition(f"{topic}-small", 0): number})
    figures = per_record("write", start, count)
    millis = []
    for number in range(SMALL_TRANSACTIONS):
        begin = time.perf_counter()
        with writer.transaction() as transaction:
            transaction.append(f"{topic}-small", 0, RecordColumns([b"k"], [b"v"]))
            transaction.commit_offsets(lease.name, {TopicPartition(f"{topic}-small", 0): number})
        millis.append((time.perf_counter() - begin) * 1000)
    writer.close()
    cuts = statistics.quantiles(millis, n=100)
    return {**figures, "commit_ms_p50": cuts[49], "commit_ms_p99": cuts[98]}


def read(log: Log, topic: str, count: int) -> Figures:
    reader = log.tail()
    start = now()
    reader.add({TopicPartition(topic, number): 0 for number in range(PARTITIONS)})
    left = count
    while left:
        left -= sum(map(len, reader.poll(0.5, POLL_RECORDS)))
    figures = per_record("read", start, count)
    reader.close()
    return figures


def read_ranges(log: Log, topic: str, count: int) -> Figures:
    start = now()
    records = 0
    for partition in range(PARTITIONS):
        records += sum(len(batch.columns()) for batch in log.read(topic, partition, 0))
    assert records == count
    return per_record("range", start, count)


def measure(address: str, kind: str, number: int, count: int) -> Figures:
    """Return the figures of one kind of clients in one round."""
    extension = native.rdkafka
    if kind == "python":
        native.rdkafka = lambda: None
    try:
        topic = f"{kind}-{number}"
        with open_log(address) as log:
            log.create_topic(topic, PARTITIONS)
            log.create_topic(f"{topic}-small")
            # Nothing renews the lease, so it must not time out.
            candidate = log.candidate(topic, timeout_ms=600_000)
            while (lease := candidate.try_acquire()) is None:
                time.sleep(0.01)
            figures = write(log, lease, topic, columns(TRANSACTION_RECORDS), count)
            figures |= read(log, topic, count)
            figures |= read_ranges(log, topic, count)
            lease.release()
            return figures
    finally:
        native.rdkafka = extension


def summary(rounds: list[dict[str, Figures]]) -> Iterator[tuple[str, object]]:
    for name in rounds[0]["native"]:
        choose = max if name.endswith("_per_s") else min
        best = {kind: choose(one[kind][name] for one in rounds) for kind in rounds[0]}
        for kind, value in best.items():
            yield f"{kind}_{name}", round(value) if name.endswith("_per_s") else round(value, 2)
        yield f"{name}_ratio", round(best["native"] / best["python"], 2)
        yield f"{name}_ratio_of_rounds", [
            round(one["native"][name] / one["python"][name], 2) for one in rounds
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Kafka I/O in C and in Python.")
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    assert native.rdkafka() is not None, "the extension for Kafka is not built"
    load = os.getloadavg()
    rounds = []
    with tempfile.TemporaryDirectory() as directory:
        cluster = LocalCluster(Path(directory) / "broker")
        with cluster.for_this_process(BrokerOptions(port=0)) as status:
            measure(status.address, "native", -1, TRANSACTION_RECORDS)  # Warms up the broker.
            for number in range(options.rounds):
                # Each kind is first in every other round.
                kinds = ["native", "python"][::1 if number % 2 else -1]
                figures = {
                    kind: measure(status.address, kind, number, options.records)
                    for kind in kinds
                }
                for kind, each in figures.items():
                    print(kind, {name: round(value, 2) for name, value in each.items()})
                rounds.append(figures)
    found = dict(summary(rounds))
    for name, value in found.items():
        print(f"{name:32} {value}")
    print(json.dumps({
        "bench": "kafka_io", "records": options.records, "partitions": PARTITIONS, **found,
        "python": platform.python_version(), "confluent_kafka": confluent_kafka.__version__,
        "load_average_before": [round(value, 2) for value in load],
    }))


if __name__ == "__main__":
    main()
