"""Memory of a running application: does it grow with the number of keys or batches?

    keys     resident size after 200 batches of a count over 1M and over 5M keys
    batches  many batches of two stages: heap, resident size and files at each eighth

The resident size is that of the driver, the JVM and all Python workers together. `anonymous` is
its private part; the rest are pages of files, including LMDB's maps, which the kernel may drop.

    python bench/memory.py [--only keys|batches] [--batches 20000] [--keys 1000000 5000000]
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import runtime

import engine
from penstock import Serdes, StreamsBuilder
from penstock.engine.spark import open_backend
from penstock.log import RecordColumns
from penstock.partitioning import partition_of


class Size(NamedTuple):
    """Memory of an application in megabytes, and the number of its files."""

    resident: float
    anonymous: float
    heap: float
    files: int


def size_of(site: engine.Site, folders: list[Path]) -> Size:
    jvm = site.context._jvm
    gc.collect()
    jvm.java.lang.System.gc()
    java = jvm.java.lang.Runtime.getRuntime()
    resident = anonymous = 0
    for pid in _family(os.getpid()):
        fields = _status(pid)
        resident += fields.get("VmRSS", 0)
        anonymous += fields.get("RssAnon", 0)
    files = sum(len(names) for folder in folders for _, _, names in os.walk(folder))
    used = (java.totalMemory() - java.freeMemory()) / 2**20
    return Size(round(resident / 1024, 1), round(anonymous / 1024, 1), round(used, 1), files)


def _family(root: int) -> list[int]:
    """A process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children.get(pid, [])
    return found


def _status(pid: int) -> dict[str, int]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    return {
        name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)
        if name in {"VmRSS", "RssAnon"}
    }


def by_keys(keys: int, batches: int = 200, records: int = 1_000) -> Size:
    """The size of an application that counts `keys` keys, after more batches."""
    with tempfile.TemporaryDirectory(prefix="penstock-memory-") as folder:
        backend = open_backend(runtime.config().with_(log="memory.db"), master="local[2]")
        site = engine.Site(Path(folder), backend.context)
        topic = site.topic("records")

        def build(builder: StreamsBuilder) -> None:
            builder.stream(topic, key=Serdes.string(), value=Serdes.string()) \
                .group_by_key().count(store="many")

        for first in range(0, keys, 500_000):
            _append(site, topic, [b"key_%d" % n for n in range(first, min(keys, first + 500_000))])
        chance = random.Random(1)
        with site.running(build) as (streams, _):
            streams.run_until_caught_up()
            for _ in range(batches):
                _append(site, topic, [b"key_%d" % chance.randrange(keys) for _ in range(records)])
                streams.run_until_caught_up()
            size = size_of(site, [Path(folder)])
        site.log.close()
        backend.close()
    return size


def _append(site: engine.Site, topic: str, keys: list[bytes]) -> None:
    parts: list[list[bytes]] = [[] for _ in range(engine.PARTITIONS)]
    for key in keys:
        parts[partition_of(key, engine.PARTITIONS)].append(key)
    for partition, some in enumerate(parts):
        if some:
            site.log.append(topic, partition, RecordColumns(some, [b"x"] * len(some)))


def by_batches(count: int) -> list[tuple[int, Size]]:
    """The sizes at each eighth of many batches with a repartition."""
    marks = {count * n // 8 for n in range(1, 9)}
    found = []
    with tempfile.TemporaryDirectory(prefix="penstock-memory-") as folder:
        local = Path(folder) / "spark"
        local.mkdir()
        os.environ["SPARK_LOCAL_DIRS"] = str(local)
        backend = open_backend(runtime.config().with_(log="memory.db"), master="local[2]")
        site = engine.Site(Path(folder), backend.context)
        topic = site.topic("orders")
        site.topic("revenue")
        records = runtime.orders(1_000)
        with site.running(runtime.rekey_and_aggregate) as (streams, reports):
            for number in range(count):
                at = number % 1_000
                site.log.append(topic, number % engine.PARTITIONS, RecordColumns(
                    records.keys[at:at + 1], records.values[at:at + 1],
                    records.timestamps[at:at + 1],
                ))
                streams.run_until_caught_up()
                del reports[:-1]
                if number + 1 in marks:
                    found.append((number + 1, size_of(site, [local, Path(folder) / "state"])))
                    print(f"  {number + 1:,} batches: {found[-1][1]}", flush=True)
        site.log.close()
        backend.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=("keys", "batches"))
    parser.add_argument("--batches", type=int, default=20_000)
    parser.add_argument("--keys", type=int, nargs="+", default=[1_000_000, 5_000_000])
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(by_keys(options.one)))
        return
    figures: dict[str, Any] = {}
    if options.only != "batches":
        figures["keys"] = {}
        for keys in options.keys:
            # Each in its own process, so that they do not share memory.
            done = subprocess.run(
                [sys.executable, __file__, "--one", str(keys)], stdout=subprocess.PIPE, text=True,
                check=True,
            )
            size = Size(*json.loads(done.stdout.strip().splitlines()[-1]))
            figures["keys"][str(keys)] = size._asdict()
            print(f"{keys:,} keys: {size}", flush=True)
        first, *_, last = figures["keys"].values()
        for name in ("resident", "anonymous"):
            figures[f"{name}_ratio"] = round(last[name] / first[name], 2)
            print(f"{name}: {figures[f'{name}_ratio']}x (limit 1.1)")
    if options.only != "keys":
        print(f"{options.batches:,} batches of two stages")
        figures["batches"] = {
            str(number): size._asdict() for number, size in by_batches(options.batches)
        }
    print(json.dumps({"bench": "memory", "python": platform.python_version(), **figures}))


if __name__ == "__main__":
    main()
