"""Measures key lookups from Python, beside bare LMDB reads of the same rows.

    python bench/queries.py [--keys 100000] [--lookups 10000]

An application counts words in one process. While it is idle, and while it processes records, a
thread looks up random keys through `Streams.store`. The bare read is `Transaction.get` of the lmdb
package on the same file, once in one open transaction, and once in a transaction for each key: that
is what a reader needs to see the last commit. Short rounds alternate between the two, and the best
round of each counts. While records are processed, it is the mean of all rounds.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb

from penstock import Streams, StreamsBuilder, StreamsConfig
from penstock.log import RecordColumns, open_log

ROUNDS = 150
_bare: Any = None


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--lookups", type=int, default=10_000)
    args = parser.parse_args()
    figures: dict[str, object] = {"bench": "queries", "keys": args.keys, "lookups": args.lookups}
    with tempfile.TemporaryDirectory() as directory:
        for execution in ("batch", "continuous"):
            figures[execution] = measure(
                Path(directory) / execution, execution, args.keys, args.lookups
            )
    print(json.dumps(figures))


def measure(directory: Path, execution: str, keys: int, lookups: int) -> dict[str, float]:
    """Measure one execution mode."""
    directory.mkdir()
    builder = StreamsBuilder()
    builder.stream("words", key=str, value=str).group_by_key().count(store="counts")
    config = StreamsConfig(
        application_id="bench", log=directory / "log.db", state_dir=directory, execution=execution
    )
    names = [f"key-{number}" for number in range(keys)]
    # New strings, one after the other in memory, as those of the bare read.
    chosen = random.Random(1)
    chunks = [
        [f"key-{number}" for number in chosen.choices(range(keys), k=lookups)]
        for _ in range(ROUNDS)
    ]
    with open_log(config.log) as log:
        log.create_topic("words", 1)
        send(log, names)
        with Streams(builder.build(), config, master="inline") as streams:
            streams.run_until_caught_up(600)
            counts = streams.store("counts")
            # A process opens a file once, so that another one makes the bare reads.
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                pool.apply(open_bare, (directory, chunks))
                idle, bare, fresh = (min(times) for times in zip(*(
                    (read_store(counts.get, chunk), *pool.apply(read_bare, (number,)))
                    for number, chunk in enumerate(chunks)
                ), strict=True))
            stopped = threading.Event()
            writer = threading.Thread(target=write_until, args=(log, names, stopped))
            writer.start()
            # The mean: the best round would fall between two batches.
            busy = statistics.mean(read_store(counts.get, chunk) for chunk in chunks)
            latencies = time_each(counts.get, [key for chunk in chunks[:10] for key in chunk])
            stopped.set()
            writer.join()
            streams.run_until_caught_up(600)
    print(
        f"{execution}: bare LMDB get {bare * 1e9:.0f} ns, in its own transaction "
        f"{fresh * 1e9:.0f} ns; Streams.store().get idle {idle * 1e9:.0f} ns ({1 / idle:,.0f}/s, "
        f"{idle / bare:.1f}x and {idle / fresh:.1f}x), while records are processed "
        f"{busy * 1e9:.0f} ns ({1 / busy:,.0f}/s); p50 {latencies[0] * 1e6:.1f} us, p99 "
        f"{latencies[1] * 1e6:.1f} us", flush=True,
    )
    return {
        "bare_ns": round(bare * 1e9), "bare_transaction_ns": round(fresh * 1e9),
        "idle_ns": round(idle * 1e9), "busy_ns": round(busy * 1e9),
        "busy_per_second": round(1 / busy), "to_bare": round(idle / bare, 1),
        "to_bare_transaction": round(idle / fresh, 1),
        "p50_us": round(latencies[0] * 1e6, 1), "p99_us": round(latencies[1] * 1e6, 1),
    }


def read_store(get: Callable[[str], object], wanted: list[str]) -> float:
    """Look up keys, and return the seconds of one."""
    started = time.perf_counter()
    for key in wanted:
        get(key)
    return (time.perf_counter() - started) / len(wanted)


def time_each(get: Callable[[str], object], wanted: list[str]) -> tuple[float, float]:
    """Return the p50 and the p99 of single lookups."""
    times = []
    for key in wanted:
        started = time.perf_counter()
        get(key)
        times.append(time.perf_counter() - started)
    cuts = statistics.quantiles(times, n=100)
    return cuts[49], cuts[98]


def open_bare(directory: Path, chunks: list[list[str]]) -> None:
    """Open the rows with lmdb alone."""
    global _bare  # noqa: PLW0603  (the state of the process that makes the bare reads)
    task = next(path.parent for path in directory.glob("bench/*/current"))
    generation = task / (task / "current").read_text()
    environment = lmdb.open(str(generation), max_dbs=512, readonly=True, max_spare_txns=1)
    rows = environment.open_db(b"rows/counts", create=False)
    with environment.begin() as transaction:
        prefix = next(iter(transaction.cursor(rows)))[0][:1]
    _bare = environment, rows, [
        [prefix + key.encode() for key in chunk] for chunk in chunks
    ]


def read_bare(number: int) -> tuple[float, float]:
    """Return the seconds of a read in one transaction, and of one in its own transaction."""
    environment, rows, chunks = _bare
    keys = chunks[number]
    with environment.begin() as transaction:
        get = transaction.get
        started = time.perf_counter()
        for key in keys:
            get(key, None, rows)
        shared = (time.perf_counter() - started) / len(keys)
    begin = environment.begin
    started = time.perf_counter()
    for key in keys:
        transaction = begin()
        transaction.get(key, None, rows)
        transaction.abort()
    return shared, (time.perf_counter() - started) / len(keys)


def send(log: object, names: list[str]) -> None:
    """Append one record for each key."""
    raw = [name.encode() for name in names]
    log.append("words", 0, RecordColumns(raw, raw))


def write_until(log: object, names: list[str], stopped: threading.Event) -> None:
    """Append 1,000 records each 50 ms."""
    while not stopped.wait(0.05):
        send(log, random.sample(names, 1_000))


if __name__ == "__main__":
    main()
