"""Kills the active one of three instances repeatedly, while records and queries arrive.

    python tests/faults/query_failover.py --kills 20 [--log embedded|kafka]
        [--execution continuous] [--report FILE]

Every instance serves its state over HTTP. A writer appends records to a counted topic at a steady
rate. Callers ask for the counts of all keys. Each request goes to an instance that is chosen at
random, and carries the position of the caller's last response. One more caller for each instance
asks only that one, so that an instance that starts does not keep all callers waiting. Checked:

- At the end, each count is the number of records of its key: nothing is lost or doubled.
- No caller ever gets a count that is lower than one that it got before, from whatever instance.

Measured: the time without progress after each kill (until an instance returns a record that was
written after the kill), and the longest time in which no instance responded.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
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
from typing import Any, NamedTuple

from penstock.broker.cluster import LocalCluster
from penstock.broker.properties import BrokerOptions
from penstock.log import RecordColumns, open_log
from penstock.partitioning import partition_of

KEYS = tuple(f"key-{number}" for number in range(8))
PARTITIONS = 2
INSTANCES = 3
CALLERS = 3
HEADER = "Penstock-Position"
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
    #: Responses of another instance than the caller's response before.
    moves: int = 0
    #: Requests that an instance refused, because it had not reached their position.
    refused: int = 0
    #: Seconds without progress, for each kill.
    pauses: list[float] = field(default_factory=list)
    #: The longest time without any response, in seconds.
    longest_silence: float = 0.0

    def lines(self) -> list[str]:
        """The results as text."""
        return [
            f"{self.kills} kills of the active instance, {self.records:,} records: all counts are "
            "exact.",
            f"{CALLERS + INSTANCES} callers got {self.responses:,} responses, {self.moves:,} of "
            "them from another instance than the response before: no count of a caller went back. "
            f"{self.refused:,} requests were refused, because the instance had not reached their "
            "position.",
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
                        "--set", "session.timeout.ms=2000", "--set", "auto.offset.reset=earliest",
                    ],
                    stdout=output, stderr=subprocess.STDOUT,
                )

    def wait_until_ready(self) -> None:
        """Wait until all instances serve queries."""
        deadline = time.monotonic() + LIMIT_S
        waiting = set(self.processes)
        while waiting:
            for port in list(waiting):
                with suppress(OSError, ValueError, http.client.HTTPException):
                    if send(port, "/ready").status == 200:
                        waiting.remove(port)
            if time.monotonic() > deadline:
                raise Failed(f"Not ready: {waiting}.")
            time.sleep(0.05)

    def active(self) -> int:
        """Wait for an active instance that is alive. Returns its port."""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            for port in list(self.processes):
                with suppress(OSError, ValueError, http.client.HTTPException):
                    found = send(port, "/stores/counts/location?key=key-0")
                    active = found.document.get("active")
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


class Results:
    """The responses to all callers. Any thread may use it."""

    def __init__(self) -> None:
        self._adding = threading.Lock()
        self._responded_at = time.monotonic()
        #: Key -> the largest count that any instance has returned.
        self.largest = dict.fromkeys(KEYS, 0)
        self.responses = 0
        #: How many responses came from another instance than the caller's response before.
        self.moves = 0
        #: How many requests were refused because of their position.
        self.refused = 0
        self.longest_silence = 0.0
        self.failure: Exception | None = None

    def add(self, key: str, count: int, *, has_moved: bool) -> None:
        """Add a response."""
        with self._adding:
            now = time.monotonic()
            if self.responses:
                self.longest_silence = max(self.longest_silence, now - self._responded_at)
            self._responded_at = now
            self.responses += 1
            self.moves += has_moved
            self.largest[key] = max(self.largest[key], count)

    def add_refused(self) -> None:
        """Add a request that an instance refused because of its position."""
        with self._adding:
            self.refused += 1


class Caller(threading.Thread):
    """Asks for all counts, each time another instance, with the position of its last response.

    `place`: only the instance at this place, the oldest one first.
    """

    def __init__(
        self, number: int, instances: Instances, results: Results, place: int | None = None
    ) -> None:
        super().__init__(daemon=True)
        self._place = place
        self._random = random.Random(number)
        self._instances = instances
        self._results = results
        self._stopped = threading.Event()
        self._position: str | None = None
        self._port = 0
        #: Key -> the last count.
        self._seen = dict.fromkeys(KEYS, 0)

    def run(self) -> None:
        try:
            while not self._stopped.is_set():
                for key in KEYS:
                    ports = list(self._instances.processes)
                    if self._place is not None:
                        ports = ports[self._place:self._place + 1]
                    if ports:
                        self._ask(self._random.choice(ports), key)
                    else:
                        self._stopped.wait(0.01)
        except Exception as error:
            self._results.failure = error

    def _ask(self, port: int, key: str) -> None:
        try:
            found = send(port, f"/stores/counts/keys/{key}", self._position)
        except (OSError, ValueError, http.client.HTTPException):
            return
        if found.status == 503 and found.document.get("reason") == "NOT_UP_TO_BOUND":
            self._results.add_refused()
        if found.status == 404 and self._seen[key]:
            raise Failed(f"{key} does not exist on port {port}, after {self._seen[key]}.")
        if found.status != 200:
            return
        count = found.document["value"]
        if count < self._seen[key]:
            raise Failed(
                f"The count of {key} went back from {self._seen[key]} on port {self._port} or "
                f"before to {count} on port {port}."
            )
        self._results.add(key, count, has_moved=port != self._port)
        self._seen[key], self._position, self._port = count, found.position, port

    def stop(self) -> None:
        """Stop after the current request."""
        self._stopped.set()
        self.join()


class Response(NamedTuple):
    """A response to a caller."""

    status: int
    document: Any
    position: str | None


def send(port: int, path: str, position: str | None = None) -> Response:
    """Send a request, with a position if there is one."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path, headers={HEADER: position} if position else {})
        response = connection.getresponse()
        return Response(response.status, json.loads(response.read()), response.getheader(HEADER))
    finally:
        connection.close()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(counts: dict[str, int], results: Results) -> None:
    """Wait until callers have got these counts."""
    deadline = time.monotonic() + LIMIT_S
    while any(results.largest[key] < count for key, count in counts.items()):
        if results.failure is not None:
            raise results.failure
        if time.monotonic() > deadline:
            raise Failed(f"Expected {counts}, seen {results.largest}.")
        time.sleep(0.01)


@contextmanager
def running(
    folder: Path, execution: str, address: str
) -> Iterator[tuple[Instances, EventWriter, Results]]:
    """Three instances, a writer and callers."""
    with open_log(address) as log:
        log.create_topic("events", PARTITIONS)
    with ExitStack() as stack:
        instances = Instances(folder, address, execution)
        stack.callback(instances.close)
        instances.start()
        writer = EventWriter(address)
        writer.start()
        stack.callback(writer.stop)
        results = Results()
        callers = [Caller(number, instances, results) for number in range(CALLERS)]
        # An instance that starts may keep all of these waiting, while the others respond.
        callers += [
            Caller(CALLERS + place, instances, results, place) for place in range(INSTANCES)
        ]
        for caller in callers:
            caller.start()
            stack.callback(caller.stop)
        yield instances, writer, results
        writer.stop()
        wait_for(writer.counts, results)
        for caller in callers:
            caller.stop()
        if results.failure is not None:
            raise results.failure
        if results.largest != writer.counts:
            raise Failed(f"Written {writer.counts}, counted {results.largest}.")


def run(folder: Path, kills: int, execution: str, address: str | None = None) -> Findings:
    """Kill the active instance so many times. `address`: of the log, else one in the folder."""
    findings = Findings()
    address = address or str(folder / "events.db")
    with running(folder, execution, address) as (instances, writer, results):
        wait_for(dict.fromkeys(KEYS, 1), results)
        for _ in range(kills):
            instances.wait_until_ready()
            instances.kill(instances.active())
            killed_at = time.monotonic()
            wait_for({key: count + 1 for key, count in writer.counts.items()}, results)
            findings.pauses.append(time.monotonic() - killed_at)
            findings.kills += 1
            instances.start()
    findings.records = sum(writer.counts.values())
    findings.responses, findings.longest_silence = results.responses, results.longest_silence
    findings.moves, findings.refused = results.moves, results.refused
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
