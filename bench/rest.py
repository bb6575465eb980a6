"""REST: key lookups over HTTP, and what they cost a running pipeline.

    lookups   requests/s, latency and CPU of a query node with 100,000 keys, beside a bare FastAPI
              application that returns the values of a dictionary; rounds alternate between the two
    pipeline  seconds to count the orders on Spark: alone, with 1,000 lookups/s from Python in the
              process of the instance, and with 1,000 lookups/s over HTTP; rounds alternate

The servers, and the client that sends the requests over keep-alive connections, are processes of
their own. On a machine with two cores the client has one of them.

    python bench/rest.py [--only lookups|pipeline] [--rounds 5] [--seconds 4] [--records 1000000]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn
from fastapi import FastAPI

from penstock import Serdes, Streams, StreamsBuilder, StreamsConfig
from penstock.log import RecordColumns, open_log
from penstock.partitioning import partition_of
from penstock.queries.http import HttpSettings, Server, create_app
from penstock.queries.node import QueryNode

KEYS = 100_000
PARTITIONS = 4
CONNECTIONS = 16
#: The share of the bare server's requests/s that the query node must reach.
MIN_RATIO = 0.7
#: The accepted slowdown of the pipeline under 1,000 lookups/s.
MAX_SLOWDOWN = 0.05
RATE = 1_000


def key_of(number: int) -> str:
    return f"customer-{number}"


# ---- the client ------------------------------------------------------------------------------


class Deadline:
    """When the requests end. Another thread may move it."""

    def __init__(self, seconds: float) -> None:
        self.at = time.perf_counter() + seconds

    def wait_for_stop(self) -> None:
        """End when a line arrives on standard input."""
        sys.stdin.readline()
        self.at = 0.0


class Connection(asyncio.Protocol):
    """Sends the next request when the response to the last one is complete."""

    def __init__(
        self, requests: Iterator[bytes], times: list[float], until: Deadline, rate: float
    ) -> None:
        self._requests = requests
        self._times = times
        self._until = until
        self._interval = 1 / rate if rate else 0.0
        self._due = time.perf_counter() + random.random() * self._interval
        self._buffer = b""
        self._sent_at = 0.0
        self._transport: Any = None
        self.failed = 0
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._next()

    def _next(self) -> None:
        now = time.perf_counter()
        if now >= self._until.at:
            self._transport.close()
        elif now < self._due:
            asyncio.get_running_loop().call_later(self._due - now, self._send)
        else:
            self._send()

    def _send(self) -> None:
        self._due += self._interval
        self._sent_at = time.perf_counter()
        self._transport.write(next(self._requests))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, _, body = self._buffer.partition(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        if len(body) < length:
            return
        self._times.append(time.perf_counter() - self._sent_at)
        self.failed += not head.startswith(b"HTTP/1.1 200")
        self._buffer = b""
        self._next()

    def connection_lost(self, error: Exception | None) -> None:
        self.ended.set_result(None)


async def load(port: int, path: str, until: Deadline, rate: float) -> dict[str, Any]:
    """Send lookups of random keys for a time. Returns the rate and the latency."""
    chosen = random.Random(1)

    def requests() -> Iterator[bytes]:
        while True:
            key = key_of(chosen.randrange(KEYS))
            yield f"GET {path}/{key} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()

    times: list[float] = []
    loop = asyncio.get_running_loop()
    opened = [
        await loop.create_connection(
            lambda: Connection(requests(), times, until, rate / CONNECTIONS), "127.0.0.1", port
        )
        for _ in range(CONNECTIONS)
    ]
    started = time.perf_counter()
    await asyncio.gather(*(connection.ended for _, connection in opened))
    took = time.perf_counter() - started
    times.sort()
    return {
        "per_second": round(len(times) / took),
        "p50_ms": round(statistics.median(times) * 1000, 2),
        "p99_ms": round(times[int(len(times) * 0.99)] * 1000, 2),
        "failed": sum(connection.failed for _, connection in opened),
    }


# ---- the servers -----------------------------------------------------------------------------


def serve_dictionary() -> None:
    values = {key_of(number): number for number in range(KEYS)}
    app = FastAPI()

    @app.get("/stores/counts/keys/{key}")
    async def get(key: str) -> dict[str, Any]:
        return {"key": key, "value": values[key]}

    # With its protocol, so that asyncio sets TCP_NODELAY.
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.bind(("127.0.0.1", 0))
    print(bound.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False)).run(sockets=[bound])


def topology() -> Any:
    builder = StreamsBuilder()
    text = Serdes.string()
    builder.stream("orders", key=text, value=text).group_by_key().count(store="counts")
    return builder.build()


def application(folder: str, state: str) -> Any:
    return StreamsConfig(application_id="bench", log=f"{folder}/bench.db", state_dir=state)


def serve_node(folder: str) -> None:
    settings = HttpSettings(port=0, requests_per_second=1_000_000)
    config = application(folder, f"{folder}/node")
    with (
        QueryNode(topology(), config) as node,
        Server(create_app(node, settings), settings) as server,
    ):
        while node.not_ready_reason() is not None:
            time.sleep(0.05)
        print(server.url.rpartition(":")[2], flush=True)
        sys.stdin.read()


class Served(NamedTuple):
    """A server in another process."""

    port: int
    pid: int

    def cpu_s(self) -> float:
        """Return the CPU time of the process so far (Linux)."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def process(*arguments: str) -> Iterator[Served]:
    """Run this file in another process, which serves requests."""
    with subprocess.Popen(
        [sys.executable, __file__, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    ) as started:
        try:
            assert started.stdout is not None
            yield Served(int(started.stdout.readline()), started.pid)
        finally:
            started.terminate()


def measure(served: Served, seconds: float) -> dict[str, Any]:
    """Send lookups to a server. The CPU of its process for a request contains its other work."""
    before = served.cpu_s()
    done = subprocess.run(
        [sys.executable, __file__, "--role", "load", "--port", str(served.port),
         "--seconds", str(seconds)],
        stdout=subprocess.PIPE, text=True, check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["failed"] == 0, found
    requests = found["per_second"] * seconds
    return {**found, "cpu_us": round((served.cpu_s() - before) / requests * 1e6)}


# ---- the measurements ------------------------------------------------------------------------


def append_orders(folder: str, records: int) -> None:
    with open_log(f"{folder}/bench.db") as log:
        if "orders" not in {topic.name for topic in log.topics()}:
            log.create_topic("orders", PARTITIONS, {"retention.ms": "-1"})
        keys = [key_of(number).encode() for number in range(KEYS)]
        places = [partition_of(key, PARTITIONS) for key in keys]
        for partition in range(PARTITIONS):
            chosen = [keys[number % KEYS] for number in range(records)
                      if places[number % KEYS] == partition]
            log.append("orders", partition, RecordColumns(chosen, [b"order"] * len(chosen)))


def lookups(rounds: int, seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="penstock-rest-") as folder:
        append_orders(folder, KEYS)
        config = application(folder, f"{folder}/state")
        with Streams(topology(), config, master="inline") as streams:
            streams.run_until_caught_up(600)
        with (
            process("--role", "bare") as bare,
            process("--role", "node", "--folder", folder) as node,
        ):
            for served in (bare, node):
                measure(served, 1.0)
            found: dict[str, list[dict[str, Any]]] = {"bare": [], "node": []}
            for _ in range(rounds):
                found["bare"].append(measure(bare, seconds))
                found["node"].append(measure(node, seconds))
    ratios = [
        node["per_second"] / bare["per_second"]
        for bare, node in zip(found["bare"], found["node"], strict=True)
    ]
    figures = {
        "keys": KEYS, "connections": CONNECTIONS, "rounds": found,
        "ratio": round(statistics.median(ratios), 3), "wanted": MIN_RATIO,
    }
    for name, each in found.items():
        print(
            f"{name:6} {statistics.median(row['per_second'] for row in each):7,.0f}/s   p50 "
            f"{statistics.median(row['p50_ms'] for row in each):6.2f} ms   p99 "
            f"{statistics.median(row['p99_ms'] for row in each):6.2f} ms   CPU "
            f"{statistics.median(row['cpu_us'] for row in each):.0f} us"
        )
    print(f"ratio  {figures['ratio']} (wanted: at least {MIN_RATIO})")
    return figures


def pipeline(rounds: int, records: int) -> dict[str, Any]:
    loads = {"alone": nothing, "python": python_lookups, "http": http_lookups}
    times: dict[str, list[float]] = {name: [] for name in loads}
    reports: dict[str, list[dict[str, Any]]] = {"python": [], "http": []}
    for _ in range(rounds):
        for name, lookup in loads.items():
            with tempfile.TemporaryDirectory(prefix="penstock-rest-") as folder:
                append_orders(folder, KEYS)
                seconds, report = count_orders(folder, records, lookup)
            times[name].append(round(seconds, 3))
            if report:
                reports[name].append(report)
    alone = statistics.median(times["alone"])
    slowdown = {
        name: round(statistics.median(times[name]) / alone - 1, 4) for name in reports
    }
    for name, seconds_of_rounds in times.items():
        print(f"{name:7} {seconds_of_rounds} s")
    print(
        f"slowdown under {RATE:,} lookups/s: {slowdown['python']:+.1%} from Python (wanted: less "
        f"than {MAX_SLOWDOWN:.0%}), {slowdown['http']:+.1%} over HTTP"
    )
    return {
        "records": records, "seconds": times, "lookups": reports, "slowdown": slowdown,
        "wanted": MAX_SLOWDOWN,
    }


Lookups = Callable[[Streams, Server], AbstractContextManager[dict[str, Any]]]


def count_orders(
    folder: str, records: int, lookups: Lookups
) -> tuple[float, dict[str, Any]]:
    """Count orders while lookups are sent, or not. Returns the seconds, and their report."""
    settings = HttpSettings(port=0, requests_per_second=1_000_000)
    config = application(folder, f"{folder}/state")
    streams = Streams(topology(), config, master="local[2]")
    with streams, Server(create_app(streams, settings), settings) as server:
        streams.run_until_caught_up(600)
        with lookups(streams, server) as report:
            # Records are processed while they are appended.
            started = time.perf_counter()
            append_orders(folder, records)
            streams.run_until_caught_up(600)
            took = time.perf_counter() - started
        return took, report


@contextmanager
def nothing(streams: Streams, server: Server) -> Iterator[dict[str, Any]]:
    yield {}


@contextmanager
def python_lookups(streams: Streams, server: Server) -> Iterator[dict[str, Any]]:
    """Look up random keys in a thread of this process."""
    stopped, times = threading.Event(), []

    def look_up() -> None:
        get, chosen = streams.store("counts").get, random.Random(1)
        begun, count = time.perf_counter(), 0
        while not stopped.is_set():
            started = time.perf_counter()
            get(key_of(chosen.randrange(KEYS)))
            times.append(time.perf_counter() - started)
            count += 1
            time.sleep(max(0.0, begun + count / RATE - time.perf_counter()))

    thread = threading.Thread(target=look_up)
    begun = time.perf_counter()
    thread.start()
    report: dict[str, Any] = {}
    try:
        yield report
    finally:
        stopped.set()
        thread.join()
    cuts = statistics.quantiles(times, n=100)
    report |= {
        "per_second": round(len(times) / (time.perf_counter() - begun)),
        "p50_ms": round(cuts[49] * 1000, 4), "p99_ms": round(cuts[98] * 1000, 3),
    }


@contextmanager
def http_lookups(streams: Streams, server: Server) -> Iterator[dict[str, Any]]:
    """Let another process send requests."""
    client = subprocess.Popen(
        [sys.executable, __file__, "--role", "load", "--port", server.url.rpartition(":")[2],
         "--seconds", "600", "--rate", str(RATE), "--stop"],
        stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True,
    )
    time.sleep(2)
    report: dict[str, Any] = {}
    yield report
    out, _ = client.communicate("stop\n")
    report |= json.loads(out)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=("lookups", "pipeline"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--role", choices=("bare", "node", "load"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--rate", type=float, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--stop", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.role == "bare":
        serve_dictionary()
    elif chosen.role == "node":
        serve_node(chosen.folder)
    elif chosen.role == "load":
        until = Deadline(chosen.seconds)
        if chosen.stop:
            threading.Thread(target=until.wait_for_stop, daemon=True).start()
        found = asyncio.run(load(chosen.port, "/stores/counts/keys", until, chosen.rate))
        print(json.dumps(found))
    else:
        figures: dict[str, Any] = {"bench": "rest", "python": platform.python_version()}
        if chosen.only != "pipeline":
            figures["lookups"] = lookups(chosen.rounds, chosen.seconds)
        if chosen.only != "lookups":
            figures["pipeline"] = pipeline(chosen.rounds, chosen.records)
        print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
