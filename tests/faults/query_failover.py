"""Kills the active one of three instances repeatedly, while records and queries arrive.

    python tests/faults/query_failover.py --kills 20 [--log embedded|kafka]
        [--execution continuous] [--report FILE]

Every instance serves its state over HTTP. A writer appends records to a counted topic at a steady
rate, and a reader asks all instances for the counts of all keys. Checked:

- At the end, each count is the number of records of its key: nothing is lost or doubled.
- No instance ever returns a count that is lower than one that it returned before.

Measured: the time without progress after each kill (until an instance returns a record that was
written after the kill), and the longest time in which no instance responded.
"""

from __future__ import annotations

import argparse
import http.client
import json
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.broker.cluster import LocalCluster
from penstock.broker.properties import BrokerOptions
from penstock.log import RecordColumns, open_log
from penstock.partitioning import partition_of

KEYS = tuple(f"key-{number}" for number in range(8))
PARTITIONS = 2
INSTANCES = 3
RATE = 200
#: How long anything may take before the run fails.
LIMIT_S = 120.0

APPLICATION = '''
from penstock import StreamsBuilder, Topology


def topology() -> Topology:
    builder = StreamsBuilder()
    builder.stream("events", key=str, value=str).group_by_key().count(store="counts")
    return builder.build()
'''


class Failed(Exception):
    """A check has failed."""


@dataclass
class Findings:
    """The results of a run."""

    kills: int = 0
    records: int = 0
    responses: int = 0
    #: Seconds without progress, for each kill.
    pauses: list[float] = field(default_factory=list)
    #: The longest time without any response, in seconds.
    longest_silence: float = 0.0

    def lines(self) -> list[str]:
        """The results as text."""
        return [
            f"{self.kills} kills of the active instance, {self.records:,} records, "
            f"{self.responses:,} responses: all counts exact, no count went back.",
            f"Time without progress: p50 {statistics.median(self.pauses):.1f} s, "
            f"maximum {max(self.pauses):.1f} s.",
            f"Longest time without a response of any instance: {self.longest_silence:.2f} s.",
        ]


class Instances:
    """Three processes, each with a port of its own."""

    def __init__(self, folder: Path, log: str, execution: str) -> None:
        self._folder = folder
        self._log = log
        self._execution = execution
        self._started = 0
        #: Port -> the process that serves it.
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        (folder / "app.py").write_text(APPLICATION)

    def start(self) -> None:
        """Start instances until there are three."""
        while len(self.processes) < INSTANCES:
            port = _free_port()
            self._started += 1
            with open(self._folder / f"instance-{self._started}.log", "wb") as output:
                self.processes[port] = subprocess.Popen(
                    [
                        sys.executable, "-m", "penstock", "run", str(self._folder / "app.py"),
                        "--application-id", "failover", "--log", self._log, "--master", "inline",
                        "--execution", self._execution, "--serve", str(port), "--quiet",
                        "--state-dir", str(self._folder / f"state-{self._started}"),
                        "--requests-per-second", "100000",
                        "--set", f"application.server=127.0.0.1:{port}",
                        "--set", "num.standby.replicas=1", "--set", "session.timeout.ms=2000",
                        "--set", "auto.offset.reset=earliest",
                    ],
                    stdout=output, stderr=subprocess.STDOUT,
                )

    def active(self) -> int:
        """Wait for an active instance that is alive. Returns its port."""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            for port in list(self.processes):
                with suppress(OSError, ValueError, http.client.HTTPException):
                    found = get(port, "/stores/counts/location?key=key-0")
                    active = (found or {}).get("active")
                    if active and active["port"] in self.processes:
                        return int(active["port"])
            time.sleep(0.05)
        raise Failed("No instance became active.")

    def kill(self, port: int) -> None:
        """Kill an instance."""
        process = self.processes.pop(port)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        """Stop all processes."""
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class EventWriter(threading.Thread):
    """Appends records at a steady rate."""

    def __init__(self, log: str) -> None:
        super().__init__(daemon=True)
        self._log = log
        self._stopped = threading.Event()
        #: Key -> how many records were appended.
        self.counts = dict.fromkeys(KEYS, 0)

    def run(self) -> None:
        parts: dict[int, list[str]] = {}
        for key in KEYS:
            parts.setdefault(partition_of(key.encode(), PARTITIONS), []).append(key)
        with open_log(self._log) as log:
            while not self._stopped.wait(len(KEYS) / RATE):
                for partition, keys in parts.items():
                    log.append("events", partition, RecordColumns(
                        [key.encode() for key in keys], [b"1"] * len(keys)
                    ))
                    for key in keys:
                        self.counts[key] += 1

    def stop(self) -> None:
        """Stop, after the current records."""
        self._stopped.set()
        self.join()


class CountReader(threading.Thread):
    """Asks all instances for all counts, and compares them with earlier responses."""

    def __init__(self, instances: Instances) -> None:
        super().__init__(daemon=True)
        self._instances = instances
        self._stopped = threading.Event()
        self._seen: dict[tuple[int, str], int] = {}
        self._responded_at = time.monotonic()
        #: Key -> the largest count that any instance has returned.
        self.largest = dict.fromkeys(KEYS, 0)
        self.responses = 0
        self.longest_silence = 0.0
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            while not self._stopped.is_set():
                for port in list(self._instances.processes):
                    for key in KEYS:
                        self._ask(port, key)
        except Exception as error:
            self.failure = error

    def _ask(self, port: int, key: str) -> None:
        try:
            found = get(port, f"/stores/counts/keys/{key}")
        except (OSError, ValueError, http.client.HTTPException):
            return
        if found is None:
            return
        now = time.monotonic()
        if self.responses:
            self.longest_silence = max(self.longest_silence, now - self._responded_at)
        self._responded_at = now
        self.responses += 1
        count = found["value"]
        if count < self._seen.get((port, key), 0):
            raise Failed(f"The count of {key} went back to {count} on port {port}.")
        self._seen[port, key] = count
        self.largest[key] = max(self.largest[key], count)

    def stop(self) -> None:
        """Stop, and raise what has failed."""
        self._stopped.set()
        self.join()
        if self.failure is not None:
            raise self.failure


def get(port: int, path: str) -> Any:
    """Send a request. Returns None unless the status is 200."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
        return json.loads(body) if response.status == 200 else None
    finally:
        connection.close()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(counts: dict[str, int], reader: CountReader) -> None:
    """Wait until the reader has seen these counts."""
    deadline = time.monotonic() + LIMIT_S
    while any(reader.largest[key] < count for key, count in counts.items()):
        if reader.failure is not None:
            raise reader.failure
        if time.monotonic() > deadline:
            raise Failed(f"Expected {counts}, seen {reader.largest}.")
        time.sleep(0.01)


@contextmanager
def running(
    folder: Path, execution: str, address: str
) -> Iterator[tuple[Instances, EventWriter, CountReader]]:
    """Three instances, a writer and a reader."""
    with open_log(address) as log:
        log.create_topic("events", PARTITIONS)
    with ExitStack() as stack:
        instances = Instances(folder, address, execution)
        stack.callback(instances.close)
        instances.start()
        writer = EventWriter(address)
        writer.start()
        stack.callback(writer.stop)
        reader = CountReader(instances)
        reader.start()
        yield instances, writer, reader
        writer.stop()
        wait_for(writer.counts, reader)
        reader.stop()
        if reader.largest != writer.counts:
            raise Failed(f"Written {writer.counts}, counted {reader.largest}.")


def run(folder: Path, kills: int, execution: str, address: str | None = None) -> Findings:
    """Kill the active instance so many times. `address`: of the log, else one in the folder."""
    findings = Findings()
    address = address or str(folder / "events.db")
    with running(folder, execution, address) as (instances, writer, reader):
        wait_for(dict.fromkeys(KEYS, 1), reader)
        for _ in range(kills):
            instances.kill(instances.active())
            killed_at = time.monotonic()
            wait_for({key: count + 1 for key, count in writer.counts.items()}, reader)
            findings.pauses.append(time.monotonic() - killed_at)
            findings.kills += 1
            instances.start()
    findings.records = sum(writer.counts.values())
    findings.responses, findings.longest_silence = reader.responses, reader.longest_silence
    return findings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--log", choices=("embedded", "kafka"), default="embedded")
    parser.add_argument("--execution", choices=("batch", "continuous"), default="continuous")
    parser.add_argument("--report", type=Path)
    chosen = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-failover-")))
        address = None
        if chosen.log == "kafka":
            cluster = LocalCluster(folder / "kafka").for_this_process(BrokerOptions(port=0))
            address = stack.enter_context(cluster).address
        findings = run(folder, chosen.kills, chosen.execution, address)
    text = "\n".join(findings.lines())
    print(text)
    if chosen.report:
        chosen.report.write_text(
            "# Queries while instances are killed\n"
            f"Written by `tests/faults/query_failover.py` ({chosen.execution} mode, "
            f"{chosen.log} log, without Spark): three instances with a session timeout of 2 s, "
            f"{RATE} records/s.\n\n"
            f"{text}\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
