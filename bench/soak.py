"""A long run in continuous mode: are memory, open files and latency flat?

An application re-keys records and keeps the last one of each key: a repartition topic, a store, and
an output. Another process sends records at a steady rate and reads the output. The run is divided
into windows, after a warm-up. The program reports for each window:

    latency        p50 and p99 from produce to the output that a reader sees
    memory         anonymous memory of the driver, of Spark's JVM and of the lanes
    open files     of the same processes
    files          number and size of the files of the log and of the state

It exits with 1 if the last window is not like the first (p99 above 1.3x, anonymous memory above
1.15x, open files above 1.1x), or if records were lost.

    python bench/soak.py [--log embedded|kafka] [--minutes 60] [--rate 1000]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from penstock import Serdes, Streams, StreamsBuilder, StreamsConfig
from penstock.broker.cluster import LocalCluster
from penstock.broker.properties import BrokerOptions
from penstock.log import Log, RecordColumns, TopicPartition, open_log

PARTITIONS, KEYS = 4, 5_000
STRING = Serdes.string()
#: Records are deleted soon, so that the sizes of files show what the application itself keeps.
RETENTION = {"retention.ms": "60000", "segment.ms": "30000"}
WINDOWS = 6
LIMITS = {"p99_ms": 1.3, "anonymous_mb": 1.15, "open_files": 1.1}
#: How often records are sent.
TICK_S = 0.01


class Window(NamedTuple):
    """The figures of one window."""

    p50_ms: float
    p99_ms: float
    records: int
    driver_mb: float
    jvm_mb: float
    lanes_mb: float
    anonymous_mb: float
    open_files: int
    files: int
    files_mb: float


# ---- the other process: sends records, reads the output --------------------------------------


def load(address: str, seconds: float, warm_up_s: float, rate: int) -> None:
    """Send and read for all windows. Prints one JSON line for each of them, and a last one."""
    sent = threading.Thread(target=_send, args=(address, seconds + warm_up_s, rate))
    with open_log(address) as log, contextlib.closing(log.tail()) as tail:
        tail.add({TopicPartition("out", n): 0 for n in range(PARTITIONS)})
        sent.start()
        begun = time.monotonic() + warm_up_s
        total = 0
        for number in range(WINDOWS):
            if number == 0:
                total += len(_read(tail, begun))
            waits = _read(tail, begun + (number + 1) * seconds / WINDOWS)
            total += len(waits)
            ordered = sorted(waits)
            print(json.dumps({
                "records": len(ordered), "p50_ms": round(ordered[len(ordered) // 2], 1),
                "p99_ms": round(ordered[len(ordered) * 99 // 100], 1),
            }), flush=True)
        sent.join()
        deadline = time.monotonic() + 60
        wanted = _sent_records(log)
        while total < wanted and time.monotonic() < deadline:
            total += len(_read(tail, time.monotonic() + 1))
        print(json.dumps({"sent": wanted, "seen": total}), flush=True)


def _sent_records(log: Log) -> int:
    """The number of records that `_send` has recorded."""
    (found,) = log.offsets([TopicPartition("sent", 0)]).values()
    values = [
        value for batch in log.read("sent", 0, found.start, found.end)
        for value in batch.columns().values
    ]
    return int(values[-1] or b"0")


def _send(address: str, seconds: float, rate: int) -> None:
    each = max(1, round(rate * TICK_S))
    with open_log(address) as log:
        begun, total, tick = time.monotonic(), 0, 0
        while (at := begun + tick * TICK_S) < begun + seconds:
            time.sleep(max(0.0, at - time.monotonic()))
            now = b"%.6f" % time.monotonic()
            keys = [b"%d" % ((total + n) % KEYS) for n in range(each)]
            log.append("in", tick % PARTITIONS, RecordColumns(keys, [now] * each))
            total, tick = total + each, tick + 1
        log.append("sent", 0, RecordColumns([None], [b"%d" % total]))


def _read(tail: Any, end: float) -> array[float]:
    """Read until a time. Returns the latencies in milliseconds."""
    waits = array("d")
    while (left := end - time.monotonic()) > 0:
        for records in tail.poll(min(left, 0.5), 10_000):
            now = time.monotonic()
            waits.extend((now - float(value)) * 1000 for value in records.values)
    return waits


# ---- the application -------------------------------------------------------------------------


def application(address: str, folder: Path) -> Streams:
    builder = StreamsBuilder()
    (
        builder.stream("in", key=STRING, value=STRING)
        .select_key(lambda key, value: f"key {key}")
        .group_by_key(key=STRING, value=STRING)
        .reduce(lambda last, value: value, store="last")
        .to_stream()
        .to("out", key=STRING, value=STRING)
    )
    config = StreamsConfig(
        application_id="soak", log=address, execution="continuous", state_dir=folder / "state",
        extra={"auto.offset.reset": "earliest", "cache.max.bytes.buffering": 0},
    )
    return Streams(builder.build(), config, master="local[2]")


@contextlib.contextmanager
def opened(kind: str, folder: Path) -> Iterator[str]:
    """Create the log and its topics. Yields its address."""
    with contextlib.ExitStack() as stack:
        if kind == "kafka":
            options = BrokerOptions(port=0, heap_mb=512)
            cluster = LocalCluster(folder / "kafka")
            address = stack.enter_context(cluster.for_this_process(options)).address
        else:
            address = str(folder / "log.db")
        with open_log(address) as log:
            for name in ("in", "out"):
                log.create_topic(name, PARTITIONS, RETENTION)
            log.create_topic("sent", 1)
        yield address


# ---- processes and files ---------------------------------------------------------------------


def processes(root: int) -> dict[str, list[int]]:
    """The processes of the application: the driver, Spark's JVM, and the lanes."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit():
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                parents.setdefault(int(stat[1]), []).append(int(entry.name))
    found: dict[str, list[int]] = {"driver": [root], "jvm": [], "lanes": []}
    waiting = list(parents.get(root, ()))
    while waiting:
        pid = waiting.pop()
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"penstock.broker" in command or b"soak.py" in command:
                continue
            waiting += parents.get(pid, ())
            if b"java" in command.split(b"\0")[0]:
                found["jvm"].append(pid)
            elif b"pyspark" in command:
                found["lanes"].append(pid)
    return found


def anonymous_mb(pids: list[int]) -> float:
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))
    return round(total / 1024, 1)


def open_files(pids: list[int]) -> int:
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += len(os.listdir(f"/proc/{pid}/fd"))
    return total


def measure(folder: Path, latency: dict[str, Any]) -> Window:
    found = processes(os.getpid())
    everything = [pid for pids in found.values() for pid in pids]
    sizes = [
        (Path(where) / name).stat().st_blocks * 512
        for where, _, names in os.walk(folder) for name in names
        if (Path(where) / name).exists()
    ]
    return Window(
        latency["p50_ms"], latency["p99_ms"], latency["records"], anonymous_mb(found["driver"]),
        anonymous_mb(found["jvm"]), anonymous_mb(found["lanes"]), anonymous_mb(everything),
        open_files(everything), len(sizes), round(sum(sizes) / 2**20, 1),
    )


# ---- the run ---------------------------------------------------------------------------------


def run(options: argparse.Namespace, folder: Path) -> tuple[list[Window], dict[str, Any]]:
    seconds = options.minutes * 60
    warm_up_s = min(60.0, max(15.0, seconds / 10))
    windows: list[Window] = []
    last: dict[str, Any] = {}
    with opened(options.log, folder) as address, application(address, folder) as streams:
        streams.run_until_caught_up(timeout=120)
        other = subprocess.Popen(
            [sys.executable, __file__, "--load", address, str(seconds), str(warm_up_s),
             str(options.rate)],
            stdout=subprocess.PIPE, text=True,
        )
        try:
            assert other.stdout is not None
            for line in other.stdout:
                last = json.loads(line)
                if "p99_ms" in last:
                    windows.append(measure(folder, last))
                    print(f"window {len(windows)} of {WINDOWS}: {windows[-1]}", flush=True)
                    if streams.state.name != "RUNNING":
                        raise SystemExit(f"The application is {streams.state.name}.")
        finally:
            other.kill()
            other.wait()
    return windows, last


def failures(windows: list[Window], last: dict[str, Any]) -> list[str]:
    """Return what is not flat."""
    found = []
    for name, limit in LIMITS.items():
        first, end = getattr(windows[0], name), getattr(windows[-1], name)
        if end > limit * first:
            found.append(f"{name}: {end} in the last window, {first} in the first (limit {limit}x)")
    if last.get("seen") != last.get("sent"):
        found.append(f"{last.get('sent')} records were sent and {last.get('seen')} seen")
    return found


def main() -> int:
    if sys.argv[1:2] == ["--load"]:
        load(sys.argv[2], float(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--log", choices=("embedded", "kafka"), default="embedded")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=int, default=1_000, help="records/s")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-soak-") as folder:
        windows, last = run(options, Path(folder))
    found = failures(windows, last)
    for each in found:
        print(f"not flat: {each}")
    print(json.dumps({
        "bench": "soak", "log": options.log, "minutes": options.minutes, "rate": options.rate,
        "python": platform.python_version(), "windows": [each._asdict() for each in windows],
        **last, "not_flat": found,
    }))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
