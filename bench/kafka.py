"""penstock on Kafka beside Java Kafka Streams 4.3.0: one broker, the same topics, one run.

    throughput  W1-W5: penstock (exactly once) on Spark `local[2]`, Java with 2 threads, once with
                exactly_once_v2 and once with at_least_once; all from the first record to the last,
                starting excluded
    latency     from produce to the output that a read_committed consumer sees, at 1,000 records/s,
                penstock and Java with exactly_once_v2

They take turns, so that each has the machine for itself (but for the broker). Needs a JDK.

    python bench/kafka.py [--records 1000000] [--only throughput|latency] [--workloads W1 ...]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import runtime
from confluent_kafka import Consumer, Producer, TopicPartition
from orders import orders

import engine
from penstock import KStream, Serdes, Streams, StreamsBuilder
from penstock.broker.cluster import ClusterStatus, LocalCluster
from penstock.broker.properties import BrokerOptions
from penstock.engine.spark import open_backend
from penstock.log import open_log

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from kafka import java_programs

OUTPUTS = {"W1": "amounts", "W2": "counts", "W3": "windows", "W4": "enriched", "W5": "revenue"}
#: The better round counts, because the machine is shared.
ROUNDS = 2


class KafkaSite(engine.Site):
    """A broker with topics, and the Spark session of all applications on it."""

    def __init__(
        self, folder: Path, context: Any, status: ClusterStatus, class_path: str, execution: str
    ) -> None:
        super().__init__(folder, context, open_log(status.address), execution)
        self.status = status
        self._class_path = class_path

    def new_output(self, name: str) -> str:
        """An empty topic."""
        self._applications += 1
        return self.topic(f"{name}-{self._applications}")

    @contextlib.contextmanager
    def java(self, workload: str, output: str, **settings: str) -> Iterator[subprocess.Popen[str]]:
        """A running Java application; its first line reports when it had caught up."""
        self._applications += 1
        state = self.folder / f"java-{self._applications}"
        given = {
            "num.stream.threads": "2", "state.dir": str(state), "output": output, **settings
        }
        process = subprocess.Popen(
            java_programs.command(
                self._class_path, "RunStreams", self.status.bootstrap_servers,
                f"java-{self._applications}", workload,
                *(f"{name}={value}" for name, value in given.items()),
                flags=("-Xmx2g",),
            ),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            assert process.stdout is not None
            process.stdout.close()
            shutil.rmtree(state, ignore_errors=True)


# ---- throughput ------------------------------------------------------------------------------


def throughput(site: KafkaSite, count: int, names: list[str]) -> dict[str, Any]:
    """Records/s of each workload, and as ratios to Java's."""
    site.fill(site.topic("orders"), orders(count))
    site.fill(site.topic("customers"), runtime.customers())
    for output in OUTPUTS.values():
        site.topic(output)
    engine.warm_up(site)
    figures = {}
    for name in names:
        taken = count + (engine.CUSTOMERS if name == "W4" else 0)
        rates = {"penstock": 0.0, "exactly_once_v2": 0.0, "at_least_once": 0.0}
        for _ in range(ROUNDS):
            rates["penstock"] = max(rates["penstock"], taken / _penstock_seconds(site, name))
            for guarantee in ("exactly_once_v2", "at_least_once"):
                rate = taken / _java_seconds(site, name, guarantee)
                rates[guarantee] = max(rates[guarantee], rate)
        figures[name] = {
            **{name: round(rate) for name, rate in rates.items()},
            "to_exactly_once_v2": round(rates["penstock"] / rates["exactly_once_v2"], 2),
            "to_at_least_once": round(rates["penstock"] / rates["at_least_once"], 2),
        }
        print(
            f"{name}: penstock {rates['penstock']:>9,.0f} records/s; Java exactly once "
            f"{rates['exactly_once_v2']:>9,.0f}, at least once {rates['at_least_once']:>9,.0f}; "
            f"{figures[name]['to_exactly_once_v2']} times Java exactly once (wanted 1)",
            flush=True,
        )
    return figures


def _penstock_seconds(site: KafkaSite, name: str) -> float:
    output = site.new_output(OUTPUTS[name])
    with site.running(_writing(runtime.WORKLOADS[name], output)) as (streams, reports):
        streams.run_until_caught_up()
    return engine.busy_seconds(reports)


def _java_seconds(site: KafkaSite, name: str, guarantee: str) -> float:
    output = site.new_output(OUTPUTS[name])
    with site.java(name, output, **{"processing.guarantee": guarantee}) as process:
        assert process.stdout is not None
        report = json.loads(process.stdout.readline())
    return (report["caught_up_at"] - report["first_record_at"]) / 1000


def _writing(
    build: Callable[[StreamsBuilder], None], output: str
) -> Callable[[StreamsBuilder], None]:
    """The workload with another topic for its output."""

    def built(builder: StreamsBuilder) -> None:
        to = KStream.to
        KStream.to = (  # type: ignore[method-assign]
            lambda stream, topic, **how: to(stream, output, **how)
        )
        try:
            build(builder)
        finally:
            KStream.to = to  # type: ignore[method-assign]

    return built


# ---- latency ---------------------------------------------------------------------------------


def latency(site: KafkaSite) -> dict[str, Any]:
    """p50 and p99 of both sides; the better round counts, because the broker is cold at first."""
    source = site.topic("timed-orders")
    rounds = [
        {"penstock": _penstock_waits(site, source), "java": _java_waits(site, source)}
        for _ in range(ROUNDS)
    ]
    figures: dict[str, Any] = {
        side: min((each[side] for each in rounds), key=lambda waits: waits["p50_ms"])
        for side in ("penstock", "java")
    }
    figures["p50_ratio"] = round(figures["penstock"]["p50_ms"] / figures["java"]["p50_ms"], 2)
    figures["rounds"] = rounds
    for side in ("penstock", "java"):
        print(f"latency at 1,000 records/s, {side}: p50 {figures[side]['p50_ms']:.0f} ms, p99 "
              f"{figures[side]['p99_ms']:.0f} ms", flush=True)
    return figures


def _penstock_waits(site: KafkaSite, source: str) -> dict[str, Any]:
    target = site.new_output("timed")

    def build(builder: StreamsBuilder) -> None:
        serde = Serdes.string()
        builder.stream(source, key=serde, value=serde).map_values(str).to(
            target, key=serde, value=serde
        )

    with site.running(build) as (streams, _):
        _await_running(streams)
        return _waits(site, source, target)


def _java_waits(site: KafkaSite, source: str) -> dict[str, Any]:
    target = site.new_output("timed")
    settings = {"processing.guarantee": "exactly_once_v2", "follow": "true"}
    with site.java("copy", target, **settings) as process:
        assert process.stdout is not None
        process.stdout.readline()
        return _waits(site, source, target)


def _await_running(streams: Streams) -> None:
    deadline = time.monotonic() + 60
    while streams.state.name != "RUNNING":
        if time.monotonic() > deadline:
            raise TimeoutError("The application did not start.")
        time.sleep(0.05)


def _waits(
    site: KafkaSite, source: str, target: str, seconds: int = 20, rate: int = 1_000
) -> dict[str, Any]:
    """Send records at a rate and wait for their outputs; a warm-up of 5 s is excluded."""
    producer = Producer({"bootstrap.servers": site.status.bootstrap_servers, "linger.ms": 5})
    sent: dict[bytes, float] = {}
    seen: dict[bytes, float] = {}
    total = (seconds + 5) * rate
    run = f"{time.time_ns()}"
    reading = threading.Thread(
        target=_read, args=(site, target, run.encode(), seen, total, seconds + 60)
    )
    reading.start()
    begun = time.perf_counter()
    for number in range(total):
        pause = begun + number / rate - time.perf_counter()
        if pause > 0.001:
            producer.poll(0)
            time.sleep(pause)
        name = f"{run}-{number}".encode()
        sent[name] = time.perf_counter()
        producer.produce(source, name, name)
    producer.flush(30)
    reading.join()
    counted = list(sent)[5 * rate:]
    waits = sorted((seen[name] - sent[name]) * 1000 for name in counted if name in seen)
    return {
        "p50_ms": round(waits[len(waits) // 2], 1),
        "p99_ms": round(waits[len(waits) * 99 // 100], 1),
        "seen": len(waits), "sent": len(counted),
    }


def _read(
    site: KafkaSite, target: str, run: bytes, seen: dict[bytes, float], total: int, patience: float
) -> None:
    """Record when each record of this run becomes visible; records of earlier runs may exist."""
    consumer = Consumer({
        "bootstrap.servers": site.status.bootstrap_servers, "group.id": "bench-reader",
        "isolation.level": "read_committed", "enable.auto.commit": False, "fetch.wait.max.ms": 5,
        "fetch.queue.backoff.ms": 1,
    })
    consumer.assign([TopicPartition(target, n, 0) for n in range(engine.PARTITIONS)])
    deadline = time.monotonic() + patience
    while len(seen) < total and time.monotonic() < deadline:
        for message in consumer.consume(500, 0.05):
            if message.error() is None and (message.value() or b"").startswith(run):
                seen.setdefault(message.value(), time.perf_counter())
    consumer.close()


# ---- the run ---------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--only", choices=("throughput", "latency"))
    parser.add_argument("--workloads", nargs="+", default=list(runtime.WORKLOADS))
    parser.add_argument("--execution", choices=("batch", "continuous"), default="batch")
    options = parser.parse_args()
    backend = open_backend(runtime.config().with_(log="bench.db"), master="local[2]")
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        class_path = java_programs.compile_programs(Path(folder) / "classes")
        cluster = LocalCluster(Path(folder) / "kafka")
        with cluster.for_this_process(BrokerOptions(port=0, heap_mb=1024)) as status:
            site = KafkaSite(
                Path(folder), backend.context, status, class_path, options.execution
            )
            if options.only != "latency":
                figures["throughput"] = throughput(site, options.records, options.workloads)
            if options.only != "throughput":
                figures["latency"] = latency(site)
            site.log.close()
    backend.close()
    print(json.dumps({
        "bench": "kafka", "execution": options.execution, "records": options.records,
        "python": platform.python_version(), "master": "local[2]", "java_threads": 2, **figures,
    }))


if __name__ == "__main__":
    main()
