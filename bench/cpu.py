"""The CPU time of a record in both modes of execution, without Spark, on both logs.

One process runs everything: reading, the tasks, stores, commits and the driver. The threads of
librdkafka are included, the broker is not. CPU time depends little on other load, so this compares
modes and versions on a shared machine, where records/s cannot. It says nothing about waiting: see
`engine.py` and `kafka.py`.

    python bench/cpu.py [--records 500000] [--rounds 2] [--logs embedded kafka] [--workloads W1 ...]
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import runtime
from orders import orders

import engine
from penstock import Streams, StreamsBuilder
from penstock.broker.cluster import LocalCluster
from penstock.broker.properties import BrokerOptions
from penstock.log import open_log

OUTPUTS = ("amounts", "counts", "windows", "enriched", "revenue")


@contextmanager
def open_site(log: str, folder: Path) -> Iterator[engine.Site]:
    """A log with nothing in it."""
    if log == "embedded":
        site = engine.Site(folder, None)
        yield site
        site.log.close()
        return
    cluster = LocalCluster(folder / "kafka")
    with cluster.for_this_process(BrokerOptions(port=0, heap_mb=1024)) as status:
        site = engine.Site(folder, None, open_log(status.address))
        yield site
        site.log.close()


def cpu_seconds(site: engine.Site, name: str, mode: str) -> float:
    """The CPU time until an application has caught up; starting and closing it are excluded."""
    builder = StreamsBuilder()
    runtime.WORKLOADS[name](builder)
    config = site.config(execution=mode).with_(num_stream_threads=1)
    with Streams(builder.build(), config, master="inline") as streams:
        begun = time.process_time()
        streams.run_until_caught_up()
        return time.process_time() - begun


def measure(site: engine.Site, name: str, count: int, rounds: int) -> dict[str, float]:
    """Microseconds of CPU per record in each mode; they take turns, and the best round counts."""
    records = count + (engine.CUSTOMERS if name == "W4" else 0)
    spent = dict.fromkeys(engine.MODES, float("inf"))
    for _ in range(rounds):
        for mode in engine.MODES:
            spent[mode] = min(spent[mode], cpu_seconds(site, name, mode))
    found = {mode: round(seconds / records * 1e6, 2) for mode, seconds in spent.items()}
    return {**found, "batch_to_continuous": round(spent["batch"] / spent["continuous"], 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--logs", nargs="+", default=["embedded", "kafka"])
    parser.add_argument("--workloads", nargs="+", default=list(runtime.WORKLOADS))
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    for log in options.logs:
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder, open_site(
            log, Path(folder)
        ) as site:
            site.fill(site.topic("orders"), orders(options.records))
            site.fill(site.topic("customers"), runtime.customers())
            for topic in OUTPUTS:
                site.topic(topic)
            for name in options.workloads:
                found = measure(site, name, options.records, options.rounds)
                figures.setdefault(log, {})[name] = found
                print(
                    f"{log} {name}: batch {found['batch']} us of CPU per record, continuous "
                    f"{found['continuous']} us; {found['batch_to_continuous']}x", flush=True,
                )
    print(json.dumps({
        "bench": "cpu", "records": options.records, "rounds": options.rounds,
        "python": platform.python_version(), "master": "inline", **figures,
    }))


if __name__ == "__main__":
    main()
