"""The engine on Spark with the embedded log: W1-W5, small batches, latency, restore.

    throughput  records/s over all orders in both modes, their ratio, and the ratio of batch mode to
                the task alone on one core
    small       a batch of 100 records in 4 tasks, as a ratio to an empty Spark job with 4 Python
                tasks (for two stages: to an empty job of two such stages)
    latency     from produce to visible output, at 1,000 records/s, in both modes
    restore     restoring a changelog into empty replicas, and the cost of a batch on large ones

Everything is measured in one run on one Spark session, `local[2]`. Starting it and its Python
workers is not included.

    python bench/engine.py [--records 1000000] [--only throughput ...] [--workloads W1 ...]
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import runtime
from orders import Orders, orders

from penstock import Serdes, Streams, StreamsBuilder, StreamsConfig
from penstock.engine.batch_report import BatchReport
from penstock.engine.spark import open_backend
from penstock.log import Log, RecordColumns, open_log
from penstock.partitioning import partition_of

PARTITIONS = 4
CUSTOMERS = 100_000
KEPT = {"retention.ms": "-1"}
#: The first seconds of latency measurements, which do not count.
WARM_UP_S = 5
#: The minimum ratio of the engine on two cores to the task alone on one core.
LIMITS = {"W1": 0.6, "W2": 0.6, "W3": 0.6, "W4": 0.6, "W5": 0.35}
MODES = ("batch", "continuous")


class Site:
    """A folder with a log, and the Spark session of all applications on it."""

    def __init__(self, folder: Path, context: Any, log: Log | None = None) -> None:
        self.folder = folder
        self.context = context
        self.log: Log = open_log(str(folder / "bench.db")) if log is None else log
        self._applications = 0

    def config(self, **settings: Any) -> StreamsConfig:
        self._applications += 1
        settings.setdefault("application_id", f"bench-{self._applications}")
        settings.setdefault("execution", "batch")
        return runtime.config().with_(
            log=self.log.address, state_dir=str(self.folder / "state"), num_stream_threads=2,
            # In a session of the user, continuous mode would leave one slot to other jobs.
            extra={"auto.offset.reset": "earliest", "penstock.parallelism": "2"}, **settings,
        )

    def topic(self, name: str, partitions: int = PARTITIONS) -> str:
        self.log.create_topic(name, partitions, KEPT)
        return name

    def fill(self, topic: str, records: Orders, chunk: int = 200_000) -> None:
        """Append records to their partitions, as Kafka's producer would."""
        parts: list[list[int]] = [[] for _ in range(PARTITIONS)]
        for number, key in enumerate(records.keys):
            parts[partition_of(key, PARTITIONS)].append(number)
        for partition, numbers in enumerate(parts):
            for first in range(0, len(numbers), chunk):
                some = numbers[first:first + chunk]
                self.log.append(topic, partition, RecordColumns(
                    [records.keys[n] for n in some], [records.values[n] for n in some],
                    [records.timestamps[n] for n in some],
                ))

    @contextmanager
    def running(
        self, build: Callable[[StreamsBuilder], None], **settings: Any
    ) -> Iterator[tuple[Streams, list[tuple[float, BatchReport]]]]:
        """A running application, and (end time, report) of each of its batches."""
        builder = StreamsBuilder()
        build(builder)
        reports: list[tuple[float, BatchReport]] = []
        streams = Streams(
            builder.build(), self.config(**settings), spark=self.context,
            on_batch=lambda report: reports.append((time.perf_counter(), report)),
        )
        with streams:
            yield streams, reports


# ---- throughput ------------------------------------------------------------------------------


def throughput(site: Site, count: int, names: list[str], modes: list[str]) -> dict[str, Any]:
    """Records/s of each workload."""
    records = orders(count)
    site.fill(site.topic("orders"), records)
    site.fill(site.topic("customers"), runtime.customers())
    warm_up(site, modes)
    sample = Orders(*(column[:250_000] for column in records))
    figures: dict[str, Any] = {}
    for name in names:
        # The machine is shared: all sides are measured alternately, and the median counts.
        turns = [
            _one_turn(site, name, count, sample, modes)
            for _ in range(1 if count > 1_000_000 else 3)
        ]
        alone = _median([turn.pop("task_alone") for turn in turns])
        figures[name] = {
            mode: sorted(
                (turn[mode] for turn in turns), key=lambda turn: turn["records_per_second"]
            )[len(turns) // 2]
            for mode in modes
        }
        for figure in figures[name].values():
            figure["to_task_alone"] = round(figure["records_per_second"] / alone, 2)
        figures[name] |= {"task_alone": round(alone), "limit": LIMITS[name]}
        if len(modes) > 1:
            figures[name]["continuous_to_batch"] = round(_median([
                turn["continuous"]["records_per_second"] / turn["batch"]["records_per_second"]
                for turn in turns
            ]), 2)
        print(f"{name} {count:,} orders: {_describe(figures[name], modes)}", flush=True)
    return figures


def _median(found: list[float]) -> float:
    return sorted(found)[len(found) // 2]


def _describe(figures: dict[str, Any], modes: list[str]) -> str:
    parts = [
        f"{mode} {figures[mode]['records_per_second']:,} records/s "
        f"({figures[mode]['to_task_alone']}x the task alone, {figures[mode]['commits']} commits)"
        for mode in modes
    ]
    if len(modes) > 1:
        parts.append(f"continuous {figures['continuous_to_batch']}x batch (wanted 1)")
    return "; ".join(parts)


def _one_turn(
    site: Site, name: str, count: int, sample: Orders, modes: list[str]
) -> dict[str, Any]:
    """Run a workload in each mode, and before and after it on one core without the engine."""

    def seconds_alone() -> float:
        return runtime.run_workload(name, sample)[0]

    before = seconds_alone()
    turn: dict[str, Any] = {mode: _run(site, name, count, mode) for mode in modes}
    turn["task_alone"] = 2 * len(sample.keys) / (before + seconds_alone())
    return turn


def _run(site: Site, name: str, count: int, mode: str) -> dict[str, Any]:
    with site.running(runtime.WORKLOADS[name], execution=mode) as (streams, reports):
        streams.run_until_caught_up()
    seconds = busy_seconds(reports)
    # The records that the first stage reads, for W4 including the customers.
    rate = (count + (CUSTOMERS if name == "W4" else 0)) / seconds
    # In continuous mode, both lanes compute and commit at the same time.
    return {
        "records_per_second": round(rate), "commits": len(reports), "seconds": round(seconds, 2),
        "computing": round(sum(report.compute_seconds for _, report in reports), 2),
        "committing": round(sum(report.commit_seconds for _, report in reports), 2),
    }


def busy_seconds(reports: list[tuple[float, BatchReport]]) -> float:
    """The time from the first record to the last commit."""
    busy = [(end, report) for end, report in reports if report.records]
    return busy[-1][0] - min(end - report.seconds for end, report in busy)


def warm_up(site: Site, modes: list[str]) -> None:
    """Start Spark's Python workers and warm up the JVM; this is not measured."""
    site.fill(site.topic("orders-before"), orders(50_000))
    for mode in modes:
        for name in ("W1", "W5"):
            build = _reading(runtime.WORKLOADS[name], "orders-before")
            with site.running(build, execution=mode) as (streams, _):
                streams.run_until_caught_up()


# ---- small batches ---------------------------------------------------------------------------


def small_batches(site: Site, rounds: int = 60) -> dict[str, Any]:
    """Compare a batch of 100 records with an empty job, with one stage and with two."""
    context = site.context
    base = context.parallelize(range(PARTITIONS), PARTITIONS)
    # Tasks must read all their input, otherwise Spark does not reuse the worker.
    one = base.mapPartitions(lambda rows: iter(list(rows)[:0]))

    def empty_one() -> None:
        one.collect()

    def empty_two() -> None:
        pairs = base.mapPartitions(lambda rows: iter([(row, b"") for row in rows]))
        pairs.partitionBy(PARTITIONS, lambda lane: lane).mapPartitions(
            lambda rows: iter(list(rows)[:0])
        ).collect()

    figures = {}
    for stages, build, empty in (
        (1, runtime.stateless, empty_one), (2, runtime.rekey_and_aggregate, empty_two)
    ):
        topic = "orders-small"
        if stages == 1:
            site.topic(topic)
        with site.running(_reading(build, topic)) as (streams, reports):
            streams.run_until_caught_up()
            batch: list[float] = []
            bare: list[float] = []
            for number in range(rounds):
                site.fill(topic, orders(100, keys=1000, seed=number))
                streams.run_until_caught_up()
                batch.append(reports[-1][1].seconds)
                begun = time.perf_counter()
                empty()
                bare.append(time.perf_counter() - begun)
        mine, theirs = statistics.median(batch[10:]), statistics.median(bare[10:])
        figures[f"stages_{stages}"] = {
            "batch_ms": round(mine * 1000, 1), "empty_job_ms": round(theirs * 1000, 1),
            "ratio": round(mine / theirs, 2), "limit": 1.5,
        }
        print(
            f"small batch, {stages} stage(s): {mine * 1000:.1f} ms, {mine / theirs:.2f}x an "
            f"empty job ({theirs * 1000:.1f} ms; limit 1.5)", flush=True,
        )
    return figures


def _reading(
    build: Callable[[StreamsBuilder], None], topic: str
) -> Callable[[StreamsBuilder], None]:
    """The workload on another topic of orders."""

    def built(builder: StreamsBuilder) -> None:
        stream = builder.stream
        builder.stream = (  # type: ignore[method-assign]
            lambda name, **how: stream(topic if name == "orders" else name, **how)
        )
        build(builder)

    return built


# ---- latency ---------------------------------------------------------------------------------


def await_running(streams: Streams) -> None:
    """Wait until all tasks run: without input, `run_until_caught_up` returns before that."""
    deadline = time.monotonic() + 60
    while streams.state.name != "RUNNING":
        if time.monotonic() > deadline:
            raise TimeoutError("The application did not start.")
        time.sleep(0.05)


def latency(site: Site, mode: str, seconds: int = 20, rate: int = 1_000) -> dict[str, Any]:
    """The time from the append of an order until its output is visible to a reader.

    A warm-up of 5 s is excluded.
    """
    source, target = site.topic(f"{mode}-timed-orders"), site.topic(f"{mode}-timed-outputs")

    def build(builder: StreamsBuilder) -> None:
        serde = Serdes.string()
        builder.stream(source, key=serde, value=serde).map_values(str).to(
            target, key=serde, value=serde
        )

    sent: dict[bytes, float] = {}
    seen: dict[bytes, float] = {}
    total = (seconds + WARM_UP_S) * rate
    reader = open_log(site.log.address)

    def read() -> None:
        positions = [0] * PARTITIONS
        deadline = time.monotonic() + seconds + WARM_UP_S + 60
        while len(seen) < total and time.monotonic() < deadline:
            reader.wait_for_change(1.0)
            for partition in range(PARTITIONS):
                reading = reader.read(target, partition, positions[partition])
                for batch in reading:
                    now = time.perf_counter()
                    for value in batch.columns().values:
                        seen.setdefault(value, now)
                positions[partition] = reading.position

    with site.running(build, execution=mode) as (streams, _):
        await_running(streams)
        watching = threading.Thread(target=read)
        watching.start()
        begun = time.perf_counter()
        burst = rate // 100
        for first in range(0, total, burst):
            pause = begun + first / rate - time.perf_counter()
            if pause > 0:
                time.sleep(pause)
            names = [b"%d" % number for number in range(first, first + burst)]
            now = time.perf_counter()
            sent.update(dict.fromkeys(names, now))
            site.log.append(source, first // burst % PARTITIONS, RecordColumns(names, names))
        watching.join()
    reader.close()
    figures = percentiles(sent, seen, rate)
    print(f"latency at {rate} records/s, {mode}: p50 {figures['p50_ms']} ms, "
          f"p99 {figures['p99_ms']} ms, longest {figures['max_ms']} ms "
          f"({figures['seen']:,} of {figures['sent']:,} seen)", flush=True)
    return figures


def percentiles(
    sent: dict[bytes, float], seen: dict[bytes, float], rate: int
) -> dict[str, Any]:
    """The waiting times of the records after the warm-up, in the order in which they were sent."""
    counted = list(sent)[WARM_UP_S * rate:]
    waits = sorted((seen[name] - sent[name]) * 1000 for name in counted if name in seen)
    return {
        "p50_ms": round(waits[len(waits) // 2], 1),
        "p99_ms": round(waits[len(waits) * 99 // 100], 1),
        "max_ms": round(waits[-1], 1), "seen": len(waits), "sent": len(counted),
    }


# ---- restore ---------------------------------------------------------------------------------


def restore(site: Site, count: int) -> dict[str, Any]:
    """Restore a changelog of `count` keys, and measure the cost of a batch on it."""
    records = orders(count, keys=count)
    keys = [b"customer_%d" % number for number in range(count)]
    site.fill(site.topic("restored-orders"), Orders(keys, records.values, records.timestamps))
    site.topic("counts-of-many")

    def build(builder: StreamsBuilder) -> None:
        builder.stream(
            "restored-orders", key=Serdes.string(), value=Serdes.string()
        ).group_by_key().count(store="many")

    settings = {"application_id": "bench-restore"}
    with site.running(build, **settings) as (streams, _):
        streams.run_until_caught_up()
    shutil.rmtree(site.folder / "state" / "bench-restore")
    with site.running(build, **settings) as (streams, reports):
        streams.run_until_caught_up()
        restoring = reports[0][1].seconds
        advancing = []
        for number in range(10):
            some = orders(100_000, keys=count, seed=100 + number)
            site.fill("restored-orders", some)
            streams.run_until_caught_up()
            advancing.append(reports[-1][1])
    per_change = statistics.median(
        report.compute_seconds / max(1, report.changes) * 1e6 for report in advancing[2:]
    )
    print(
        f"restore: {count:,} keys in {restoring:.1f} s, {count / restoring:,.0f} rows/s; "
        f"a batch on it costs {per_change:.1f} us per changed row", flush=True,
    )
    return {
        "keys": count, "seconds": round(restoring, 2),
        "rows_per_second": round(count / restoring),
        "microseconds_per_changed_row": round(per_change, 2),
    }


# ---- the run ---------------------------------------------------------------------------------

PARTS = ("throughput", "small", "latency", "restore")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000, help="of the restored changelog")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--workloads", nargs="+", default=list(runtime.WORKLOADS))
    parser.add_argument("--execution", nargs="+", choices=MODES, default=list(MODES))
    options = parser.parse_args()
    backend = open_backend(runtime.config().with_(log="bench.db"), master="local[2]")
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        site = Site(Path(folder), backend.context)
        for name in ("amounts", "counts", "windows", "enriched", "revenue"):
            site.topic(name)
        # Small measurements first, before large ones fill the log.
        if "small" in options.only:
            figures["small"] = small_batches(site)
        if "latency" in options.only:
            figures["latency"] = {mode: latency(site, mode) for mode in options.execution}
        if "throughput" in options.only:
            figures["throughput"] = throughput(
                site, options.records, options.workloads, options.execution
            )
        if "restore" in options.only:
            figures["restore"] = restore(site, options.keys)
        site.log.close()
    backend.close()
    print(json.dumps({
        "bench": "engine", "records": options.records, "python": platform.python_version(),
        "execution": options.execution, "master": "local[2]", **figures,
    }))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
