"""penstock on Kafka beside Java Kafka Streams 4.3.0: one broker, the same topics, one run.

    throughput  W1-W5: penstock (exactly once) in both modes on Spark `local[2]`, Java with 2
                threads, once with exactly_once_v2 and once with at_least_once; all from the first
                record to the last, starting excluded
    latency     from produce to the output that a read_committed consumer sees, at 1,000 records/s,
                penstock in both modes and Java with exactly_once_v2

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
from penstock import KStream, Serdes, StreamsBuilder
from penstock.broker.cluster import ClusterStatus, LocalCluster
from penstock.broker.properties import BrokerOptions
from penstock.engine.spark import open_backend
from penstock.log import open_log

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from kafka import java_programs

GUARANTEES = ("exactly_once_v2", "at_least_once")
OUTPUTS = {"W1": "amounts", "W2": "counts", "W3": "windows", "W4": "enriched", "W5": "revenue"}


class KafkaSite(engine.Site):
    """A broker with topics, and the Spark session of all applications on it."""

    def __init__(
        self, folder: Path, context: Any, status: ClusterStatus, class_path: str
    ) -> None:
        super().__init__(folder, context, open_log(status.address))
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


def throughput(
    site: KafkaSite, count: int, names: list[str], modes: list[str], rounds: int
) -> dict[str, Any]:
    """Records/s of each workload, and as ratios to Java's."""
    site.fill(site.topic("orders"), orders(count))
    site.fill(site.topic("customers"), runtime.customers())
    for output in OUTPUTS.values():
        site.topic(output)
    engine.warm_up(site, modes)
    figures: dict[str, Any] = {}
    for name in names:
        taken = count + (engine.CUSTOMERS if name == "W4" else 0)
        rates = dict.fromkeys((*modes, *GUARANTEES), 0.0)
        for _ in range(rounds):
            for mode in modes:
                rates[mode] = max(rates[mode], taken / _penstock_seconds(site, name, mode))
            for guarantee in GUARANTEES:
                rate = taken / _java_seconds(site, name, guarantee)
                rates[guarantee] = max(rates[guarantee], rate)
        figures[name] = {side: round(rate) for side, rate in rates.items()} | {
            f"{mode}_to_{guarantee}": round(rates[mode] / rates[guarantee], 2)
            for mode in modes for guarantee in GUARANTEES
        }
        print(f"{name}: " + "; ".join(
            f"{side} {rate:,.0f} records/s" for side, rate in rates.items()
        ) + "; " + ", ".join(
            f"{mode} {figures[name][f'{mode}_to_at_least_once']}x Java at_least_once"
            for mode in modes
        ), flush=True)
    return figures


def _penstock_seconds(site: KafkaSite, name: str, mode: str) -> float:
    output = site.new_output(OUTPUTS[name])
    build = _writing(runtime.WORKLOADS[name], output)
    with site.running(build, execution=mode) as (streams, reports):
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


def latency(site: KafkaSite, modes: list[str], rounds: int) -> dict[str, Any]:
    """p50 and p99 of all sides; the better round counts, because the broker is cold at first."""
    source = site.topic("timed-orders")
    found = [
        {mode: _penstock_waits(site, source, mode) for mode in modes}
        | {"java": _java_waits(site, source)}
        for _ in range(rounds)
    ]
    sides = (*modes, "java")
    figures: dict[str, Any] = {
        side: min((each[side] for each in found), key=lambda waits: waits["p50_ms"])
        for side in sides
    }
    for side in sides:
        waits = figures[side]
        for percentile in ("p50", "p99"):
            ratio = waits[f"{percentile}_ms"] / figures["java"][f"{percentile}_ms"]
            waits[f"{percentile}_to_java"] = round(ratio, 2)
        print(f"latency at 1,000 records/s, {side}: p50 {waits['p50_ms']:.0f} ms, p99 "
              f"{waits['p99_ms']:.0f} ms", flush=True)
    figures["rounds"] = found
    return figures


def _penstock_waits(site: KafkaSite, source: str, mode: str) -> dict[str, Any]:
    target = site.new_output("timed")

    def build(builder: StreamsBuilder) -> None:
        serde = Serdes.string()
        builder.stream(source, key=serde, value=serde).map_values(str).to(
            target, key=serde, value=serde
        )

    with site.running(build, execution=mode) as (streams, _):
        engine.await_running(streams)
        return _waits(site, source, target)


def _java_waits(site: KafkaSite, source: str) -> dict[str, Any]:
    target = site.new_output("timed")
    settings = {"processing.guarantee": "exactly_once_v2", "follow": "true"}
    with site.java("copy", target, **settings) as process:
        assert process.stdout is not None
        process.stdout.readline()
        return _waits(site, source, target)


def _waits(
    site: KafkaSite, source: str, target: str, seconds: int = 20, rate: int = 1_000
) -> dict[str, Any]:
    """Send records at a rate and wait for their outputs; the warm-up is excluded."""
    producer = Producer({"bootstrap.servers": site.status.bootstrap_servers, "linger.ms": 5})
    sent: dict[bytes, float] = {}
    seen: dict[bytes, float] = {}
    total = (seconds + engine.WARM_UP_S) * rate
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
    return engine.percentiles(sent, seen, rate)


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
        first = consumer.poll(0.05)
        if first is None:
            continue
        # `consume` with a timeout would wait for all 500, or for the whole timeout.
        for message in (first, *consumer.consume(500, 0)):
            if message.error() is None and (message.value() or b"").startswith(run):
                seen.setdefault(message.value(), time.perf_counter())
    consumer.close()


# ---- the run ---------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--only", choices=("throughput", "latency"))
    parser.add_argument("--workloads", nargs="+", default=list(runtime.WORKLOADS))
    parser.add_argument(
        "--execution", nargs="+", choices=engine.MODES, default=list(engine.MODES)
    )
    parser.add_argument(
        "--rounds", type=int, default=2,
        help="The better round counts, because the machine is shared.",
    )
    options = parser.parse_args()
    backend = open_backend(runtime.config().with_(log="bench.db"), master="local[2]")
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        class_path = java_programs.compile_programs(Path(folder) / "classes")
        cluster = LocalCluster(Path(folder) / "kafka")
        with cluster.for_this_process(BrokerOptions(port=0, heap_mb=1024)) as status:
            site = KafkaSite(Path(folder), backend.context, status, class_path)
            if options.only != "latency":
                figures["throughput"] = throughput(
                    site, options.records, options.workloads, options.execution, options.rounds
                )
            if options.only != "throughput":
                figures["latency"] = latency(site, options.execution, options.rounds)
            site.log.close()
    backend.close()
    print(json.dumps({
        "bench": "kafka", "records": options.records, "rounds": options.rounds,
        "python": platform.python_version(), "master": "local[2]", "java_threads": 2, **figures,
    }))


if __name__ == "__main__":
    main()
