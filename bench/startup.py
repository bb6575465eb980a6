"""Start-up: from the start of a process until its first committed output is visible.

The application counts by key (W2). One order waits in each of 4 partitions. Every start is a new
process and a new application, whose internal topics do not exist yet:

    embedded, kafka     the log, each in both execution modes, on Spark `local[2]`; once with the
                        class archive of `penstock prepare`, and once without (`unprepared`)
    java                Kafka Streams 4.3.0 on the same broker, exactly once and at least once
    once                `penstock run --once`, until the process has ended

They take turns; the median round counts. The phases of penstock's start overlap: each figure is the
time from the start of the process until the phase has ended. `cpu` is the CPU time of all processes
of the application until its output, which other work on the machine changes less. Needs a JDK and
Linux.

    python bench/startup.py [--rounds 5] [--only embedded kafka java once]
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from penstock.broker.cluster import LocalCluster
from penstock.broker.properties import BrokerOptions
from penstock.engine.spark.class_archive import archive_path
from penstock.log import RecordColumns, TopicPartition, open_log

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from kafka import java_programs

STARTED_PROGRAM = Path(__file__).with_name("startup_app.py")
PARTITIONS = 4
SIDES = ("embedded", "kafka", "java", "once")
EXECUTIONS = ("batch", "continuous")
GUARANTEES = ("exactly_once_v2", "at_least_once")
#: An application for `penstock run`.
APPLICATION = """
from penstock import Serdes, StreamsBuilder

builder = StreamsBuilder()
(
    builder.stream("orders", key=Serdes.string(), value=Serdes.json())
    .group_by_key().count(store="counts")
    .to_stream().to("{output}", key=Serdes.string(), value=Serdes.long())
)
config = {{"application.id": "{name}", "num.stream.threads": 2, "auto.offset.reset": "earliest"}}
"""


class Site:
    """A log with the topic of orders, and new applications on it."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder = folder
        self.log = open_log(address)
        self._applications = 0
        self.log.create_topic("orders", PARTITIONS, {"retention.ms": "-1"})
        for partition in range(PARTITIONS):
            value = b'{"orderType": "GENERAL", "finalAmount": 1.5, "locationId": "store_1"}'
            self.log.append("orders", partition, RecordColumns([b"%d" % partition], [value]))

    def new_application(self) -> tuple[str, str]:
        """Return the name of an application, and its empty output topic."""
        self._applications += 1
        name = f"startup-{self._applications}"
        self.log.create_topic(f"{name}-output", PARTITIONS)
        return name, f"{name}-output"

    def wait_for_output(self, topic: str, timeout_s: float = 60.0) -> float:
        """Wait for a committed record in a topic. Returns the time."""
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            bounds = self.log.offsets(partitions)
            if any(each.end > each.start for each in bounds.values()):
                return time.time()
            time.sleep(0.01)
        raise TimeoutError(f"Nothing was written to '{topic}'.")

    def start_unprepared(self, execution: str) -> dict[str, float]:
        """Start an application without the class archive."""
        archive = archive_path()
        hidden = archive.with_suffix(".hidden")
        archive.rename(hidden)
        try:
            return self.start_penstock(execution)
        finally:
            hidden.rename(archive)

    def start_penstock(self, execution: str) -> dict[str, float]:
        """Start an application. Returns seconds until the end of each phase."""
        name, output = self.new_application()
        command = [
            sys.executable, str(STARTED_PROGRAM), "--name", name, "--output", output,
            "--log", self.log.address, "--execution", execution,
            "--state-dir", str(self.folder / name),
        ]
        began = time.time()
        with _running(command) as process:
            seen = self.wait_for_output(output)
            cpu = _cpu_seconds(process)
            assert process.stdout is not None
            phases = json.loads(process.stdout.readline())
        ended = time.time()
        seconds = {phase: at - began for phase, at in phases.items()}
        return {**seconds, "output": seen - began, "cpu": cpu, "closed_in": ended - seen}

    def start_java(self, class_path: str, servers: str, guarantee: str) -> dict[str, float]:
        """Start an application of Kafka Streams for Java."""
        name, output = self.new_application()
        command = java_programs.command(
            class_path, "RunStreams", servers, name, "W2", f"output={output}", "follow=true",
            f"processing.guarantee={guarantee}", "num.stream.threads=2",
            f"state.dir={self.folder / name}",
        )
        began = time.time()
        with _running(command) as process:
            seen = self.wait_for_output(output)
            cpu = _cpu_seconds(process)
        return {"output": seen - began, "cpu": cpu, "closed_in": time.time() - seen}

    def run_once(self, execution: str) -> dict[str, float]:
        """Run `penstock run --once`."""
        name, output = self.new_application()
        program = self.folder / f"{name}.py"
        program.write_text(APPLICATION.format(name=name, output=output))
        command = [
            sys.executable, "-m", "penstock", "run", str(program), "--once", "--quiet",
            "--log", self.log.address, "--execution", execution,
            "--state-dir", str(self.folder / name),
        ]
        began = time.time()
        with _running(command) as process:
            seen = self.wait_for_output(output)
            process.wait(60)
        return {"output": seen - began, "ended": time.time() - began}


@contextmanager
def _running(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process
        process.stdin.close()
        process.wait(60)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stdout.close()


def _cpu_seconds(process: subprocess.Popen[str]) -> float:
    """The CPU time of a process and its descendants: those of its session."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The fields after the name, which may contain spaces: state, parent, group, session ...
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[3]) == process.pid:
                ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def measure(turns: dict[str, Callable[[], dict[str, float]]], rounds: int) -> dict[str, Any]:
    """Take turns, and return the phases of each in milliseconds: of the median round."""
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in turns}
    for _ in range(rounds):
        for name, start in turns.items():
            taken[name].append(seconds := start())
            print(f"  {name}: {seconds['output']:.2f} s, load {os.getloadavg()[0]:.1f}", flush=True)
    figures = {}
    for name, rounds_taken in taken.items():
        outputs = [each["output"] for each in rounds_taken]
        median = min(
            rounds_taken, key=lambda each: abs(each["output"] - statistics.median(outputs))
        )
        phases = {phase: round(seconds * 1000) for phase, seconds in median.items()}
        figures[name] = {"phases_ms": phases, "outputs_ms": [round(s * 1000) for s in outputs]}
        print(
            f"{name}: {phases['output']:,} ms to the first output ("
            + ", ".join(f"{phase} {ms:,}" for phase, ms in phases.items() if phase != "output")
            + ")", flush=True,
        )
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=SIDES, default=list(SIDES))
    options = parser.parse_args()
    if not archive_path().exists():
        subprocess.run([sys.executable, "-m", "penstock", "prepare"], check=True)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as temporary:
        folder = Path(temporary)
        turns: dict[str, Callable[[], dict[str, float]]] = {}
        cluster = LocalCluster(folder / "kafka")
        broker = cluster.for_this_process(BrokerOptions(port=0, heap_mb=512))
        needs_broker = {"kafka", "java"} & set(options.only)
        with broker if needs_broker else nullcontext() as status:
            sites = {"embedded": Site(folder, str(folder / "bench.db"))}
            if status is not None:
                sites["kafka"] = Site(folder / "on-kafka", status.address)
                sites["kafka"].folder.mkdir(exist_ok=True)
            for name, site in sites.items():
                for execution in EXECUTIONS:
                    if name in options.only:
                        turns[f"{name}_{execution}"] = functools.partial(
                            site.start_penstock, execution
                        )
                        turns[f"{name}_{execution}_unprepared"] = functools.partial(
                            site.start_unprepared, execution
                        )
                    if "once" in options.only:
                        turns[f"once_{name}_{execution}"] = functools.partial(
                            site.run_once, execution
                        )
            if "java" in options.only:
                class_path = java_programs.compile_programs(folder / "classes")
                for guarantee in GUARANTEES:
                    turns[f"java_{guarantee}"] = functools.partial(
                        sites["kafka"].start_java, class_path, status.bootstrap_servers, guarantee
                    )
            figures = measure(turns, options.rounds)
            for site in sites.values():
                site.log.close()
    print(json.dumps({
        "bench": "startup", "rounds": options.rounds, "python": platform.python_version(),
        "master": "local[2]", **figures,
    }))


if __name__ == "__main__":
    main()
