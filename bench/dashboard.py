"""The cost of the dashboard for a running application, with one browser connected.

The orders application runs on Spark in continuous mode, at a steady rate. The program measures the
CPU time of all its processes (driver, Spark's JVM, lanes) in windows, in turns with and without a
client that follows the dashboard's events. The client and the sender of the records are processes
of their own and are not counted: a browser usually runs on another computer. The dashboard runs in
the driver, so the cost is what the driver uses more, as a share of what the application uses.

On a machine with other work, windows differ by more than the dashboard costs. So the program also
measures the CPU time of the driver's threads that serve the page (`server_cpu_s`), and what they
use more with a client, as a share of the application (`server_cost`).

    python bench/dashboard.py [--rounds 5] [--seconds 10] [--rate 2000]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))

from orders.demo import topic_names
from orders.generate import generated_orders
from orders.model import Order
from orders.topology import ORDERS, build
from showcase import create_topics

from penstock import Serdes, Streams, StreamsConfig
from penstock.clients import Producer
from penstock.log import open_log
from penstock.queries.http import HttpSettings, Server
from penstock.web.dashboard import create_dashboard

TICK_S = 0.05
WANTED = 0.02


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rate", type=int, default=2_000)
    parser.add_argument("--role", choices=("send", "follow"), help=argparse.SUPPRESS)
    parser.add_argument("--where", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role == "send":
        send(options.where, options.rate)
    elif options.role == "follow":
        follow(options.where)
    else:
        print(json.dumps(measure(options)))


def measure(options: argparse.Namespace) -> dict[str, object]:
    """Measure windows with and without a client."""
    # Spark's workers import the example, too.
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    with tempfile.TemporaryDirectory(prefix="penstock-dashboard-") as folder:
        config = StreamsConfig(
            application_id="orders", log=f"{folder}/log.db", state_dir=f"{folder}/state",
            execution="continuous",
        )
        topology = build()
        with open_log(config.log) as log:
            create_topics(log, None, topic_names(), 2)
        settings = HttpSettings(port=0)
        used: dict[str, list[tuple[float, float, float]]] = {"alone": [], "followed": []}
        with (
            Streams(topology, config, master="local[2]") as streams,
            Server(create_dashboard(streams, settings), settings) as server,
            child("send", str(config.log), options.rate),
        ):
            time.sleep(15)
            for _ in range(options.rounds):
                used["alone"].append(cpu_of_window(options.seconds))
                with child("follow", f"{server.url}/dashboard/events") as follower:
                    # It has read the first event.
                    assert follower.stdout is not None
                    follower.stdout.readline()
                    time.sleep(1)
                    used["followed"].append(cpu_of_window(options.seconds))
    driver = {name: [each[0] for each in windows] for name, windows in used.items()}
    whole = statistics.median(each[1] for each in used["alone"])
    cost = (statistics.median(driver["followed"]) - statistics.median(driver["alone"])) / whole
    serving = {
        name: statistics.median(each[2] for each in windows) for name, windows in used.items()
    }
    server_cost = (serving["followed"] - serving["alone"]) / whole
    for name, windows in used.items():
        print(f"{name:9} {windows} CPU seconds of driver, application and server's threads in "
              f"{options.seconds:g} s")
    print(f"one client adds {cost:+.2%} to the driver, {server_cost:+.2%} in the threads of the "
          f"server (wanted: less than {WANTED:.0%})")
    return {
        "bench": "dashboard", "rate": options.rate, "window_s": options.seconds,
        "driver_and_application_cpu_s": {
            name: [each[:2] for each in windows] for name, windows in used.items()
        },
        "server_cpu_s": {
            name: [each[2] for each in windows] for name, windows in used.items()
        },
        "cost": round(cost, 4), "server_cost": round(server_cost, 4), "wanted": WANTED,
    }


def cpu_of_window(seconds: float) -> tuple[float, float, float]:
    """Return the CPU seconds of driver, application and server's threads in a window."""
    before, serving = cpu_seconds(), server_seconds()
    time.sleep(seconds)
    after, served = cpu_seconds(), server_seconds()
    # The pool of the server ends threads that are idle.
    server = sum(max(0.0, used - serving.get(name, 0.0)) for name, used in served.items())
    return round(after[0] - before[0], 2), round(after[1] - before[1], 2), round(server, 4)


def server_seconds() -> dict[int, float]:
    """Return the CPU time of the threads that serve the page: the event loop and its pool."""
    return {
        thread.ident: time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
        for thread in threading.enumerate()
        if thread.ident and thread.name.startswith(("penstock-http", "AnyIO worker thread"))
    }


def cpu_seconds() -> tuple[float, float]:
    """Return the CPU time of this process so far, and of the application's processes with it."""
    ours = {os.getpid()}
    stats: dict[int, tuple[int, int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if Path(__file__).name.encode() + b"\0--role" in (entry / "cmdline").read_bytes():
                continue
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        stats[int(entry.name)] = (int(fields[1]), int(fields[11]) + int(fields[12]))
    while found := {pid for pid, (parent, _) in stats.items() if parent in ours} - ours:
        ours |= found
    ticks = os.sysconf("SC_CLK_TCK")
    return stats[os.getpid()][1] / ticks, sum(stats[pid][1] for pid in ours) / ticks


@contextmanager
def child(role: str, where: str, rate: int = 0) -> Iterator[subprocess.Popen[bytes]]:
    """Run a part of this program in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, __file__, "--role", role, "--where", where, "--rate", str(rate)],
        stdout=subprocess.PIPE,
    )
    try:
        yield process
        assert process.poll() is None, f"the process '{role}' has ended"
    finally:
        process.kill()
        process.wait()


def send(log: str, rate: int) -> None:
    """Send orders at a steady rate, until the process is killed."""
    write, due, batch = Serdes.json(Order).serialize, time.monotonic(), int(rate * TICK_S)
    with Producer(log=log) as producer:
        for number, order in enumerate(generated_orders(100_000_000, seed=1)):
            producer.produce(ORDERS, write(order))
            if number % batch == 0:
                producer.flush()
                due += TICK_S
                time.sleep(max(0.0, due - time.monotonic()))


def follow(url: str) -> None:
    """Read the events of the dashboard, until the process is killed."""
    with urllib.request.urlopen(url) as events:
        for number, _ in enumerate(events):
            if number == 0:
                print("connected", flush=True)


if __name__ == "__main__":
    main()
