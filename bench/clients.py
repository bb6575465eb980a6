"""`penstock.clients` against confluent-kafka's clients, on one broker of this machine.

    produce    records of 130 bytes from the first `produce` to the return of `flush`
    consume    the same records with `consume(500)`, from `assign` to the last record
    poll       the same with one `poll` per record
    sync       median time of `produce` and `flush` for a single record

Both produce with acks=all and idempotence, and read committed records of 4 partitions as bytes.
They take turns. Throughput is that of the best round; the ratios of all rounds are listed, because
the machine is shared. The CPU time per record is that of this process with all its threads, without
the broker; it depends less on other load. The embedded log is measured too, for comparison. Needs
Java and the jars of Kafka.

    python bench/clients.py [--records 200000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
from log import order

import penstock.clients
from penstock.broker.cluster import LocalCluster
from penstock.broker.properties import BrokerOptions
from penstock.log import open_log

PARTITIONS = 4
SYNC_RECORDS = 30
TIMEOUT_S = 120
Records = list[tuple[bytes, bytes]]
#: Wall-clock time and CPU time of this process, in seconds.
Times = tuple[float, float]
PRODUCER = {"acks": "all", "enable.idempotence": True, "partitioner": "murmur2_random"}
CONSUMER = {
    "group.id": "bench", "auto.offset.reset": "earliest", "enable.auto.commit": False,
    "isolation.level": "read_committed",
}


def now() -> Times:
    return time.perf_counter(), time.process_time()


def since(start: Times) -> Times:
    wall, cpu = now()
    return wall - start[0], cpu - start[1]


class Library:
    """One implementation of the clients, on one log."""

    def __init__(self, module: Any, log: dict[str, str]) -> None:
        self._module = module
        self._log = log

    def measure(self, topic: str, records: Records) -> dict[str, float]:
        """Return throughput, CPU time per record, and the time of a synchronous send."""
        count = len(records)
        figures = {}
        for name, (wall, cpu) in {
            "produce": self._produce(topic, records),
            "consume": self._consume(topic, count),
            "poll": self._poll(topic, count),
        }.items():
            figures[f"{name}_per_s"] = count / wall
            figures[f"{name}_cpu_us"] = cpu / count * 1e6
        return {**figures, "sync_ms": self._sync(f"{topic}-sync", records) * 1000}

    def _produce(self, topic: str, records: Records) -> Times:
        producer = self._module.Producer({**self._log, **PRODUCER})
        # Metadata and the producer id are fetched before the measurement.
        producer.produce(f"{topic}-sync", b"", b"")
        assert producer.flush(TIMEOUT_S) == 0
        start = now()
        for key, value in records:
            while True:
                try:
                    producer.produce(topic, value, key)
                    break
                except BufferError:
                    producer.poll(0.01)
        assert producer.flush(TIMEOUT_S) == 0
        times = since(start)
        producer.close()
        return times

    def _consume(self, topic: str, count: int) -> Times:
        with self._consumer(topic) as (consumer, start):
            read = 0
            while read < count:
                messages = consumer.consume(500, 1.0)
                read += sum(len(message.value()) > 0 for message in messages)
            return since(start)

    def _poll(self, topic: str, count: int) -> Times:
        with self._consumer(topic) as (consumer, start):
            read = 0
            while read < count:
                message = consumer.poll(1.0)
                read += message is not None and len(message.value()) > 0
            return since(start)

    @contextlib.contextmanager
    def _consumer(self, topic: str) -> Iterator[tuple[Any, Times]]:
        consumer = self._module.Consumer({**self._log, **CONSUMER})
        start = now()
        consumer.assign([
            self._module.TopicPartition(topic, number, self._module.OFFSET_BEGINNING)
            for number in range(PARTITIONS)
        ])
        try:
            yield consumer, start
        finally:
            consumer.close()

    def _sync(self, topic: str, records: Records) -> float:
        producer = self._module.Producer({**self._log, **PRODUCER, "linger.ms": 0})
        seconds = []
        for key, value in records[:SYNC_RECORDS]:
            start = time.perf_counter()
            producer.produce(topic, value, key)
            producer.flush(TIMEOUT_S)
            seconds.append(time.perf_counter() - start)
        producer.close()
        return statistics.median(seconds)


def run(libraries: dict[str, Library], logs: dict[str, str], records: Records, rounds: int
        ) -> list[dict[str, dict[str, float]]]:
    """Return the figures of each round by library."""
    results = []
    for number in range(rounds):
        figures = {}
        for name, library in libraries.items():
            topic = f"{name}-{number}"
            with open_log(logs[name]) as log:
                for topic_name in (topic, f"{topic}-sync"):
                    log.create_topic(topic_name, PARTITIONS)
            figures[name] = library.measure(topic, records)
            print(name, {key: round(value, 1) for key, value in figures[name].items()}, flush=True)
        results.append(figures)
    return results


def summary(rounds: list[dict[str, dict[str, float]]]) -> Iterator[tuple[str, object]]:
    """Yield the best figures of each library, and penstock's ratios to confluent-kafka."""
    best: dict[str, dict[str, float]] = {}
    for library, figures in rounds[0].items():
        best[library] = {
            name: (max if name.endswith("_per_s") else min)(one[library][name] for one in rounds)
            for name in figures
        }
        for name, value in best[library].items():
            yield f"{library}_{name}", round(value) if name.endswith("_per_s") else round(value, 1)
    for name in ("produce", "consume", "poll"):
        for unit in ("per_s", "cpu_us"):
            key = f"{name}_{unit}"
            yield f"{key}_ratio", round(best["penstock"][key] / best["confluent"][key], 2)
            yield f"{key}_ratio_of_rounds", [
                round(one["penstock"][key] / one["confluent"][key], 2) for one in rounds
            ]


def main() -> None:
    parser = argparse.ArgumentParser(description="penstock.clients against confluent-kafka.")
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rng = random.Random(4)
    records = [
        (b"store_%04d" % rng.randrange(10_000), order(rng)) for _ in range(options.records)
    ]
    with tempfile.TemporaryDirectory() as directory:
        cluster = LocalCluster(Path(directory) / "broker")
        with cluster.for_this_process(BrokerOptions(port=0)) as status:
            servers = {"bootstrap.servers": status.bootstrap_servers}
            file = f"{directory}/embedded.db"
            libraries = {
                "penstock": Library(penstock.clients, servers),
                "confluent": Library(confluent_kafka, servers),
                "embedded": Library(penstock.clients, {"log": file}),
            }
            logs = {"penstock": status.address, "confluent": status.address, "embedded": file}
            rounds = run(libraries, logs, records, options.rounds)
    figures = dict(summary(rounds))
    for name, value in figures.items():
        print(f"{name:32} {value}")
    print(json.dumps({
        "bench": "clients", "records": options.records, "partitions": PARTITIONS, **figures,
        "python": platform.python_version(), "confluent_kafka": confluent_kafka.__version__,
    }))


if __name__ == "__main__":
    main()
