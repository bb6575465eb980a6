"""The orders application on Spark with its dashboard, in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from orders.generate import STORES as ALL_STORES
from orders.model import Order, Store
from orders.topology import ORDERS, STORES

from penstock import Serdes
from penstock.log import Log, RecordColumns
from penstock.partitioning import partition_of

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TOPICS = (
    ORDERS, STORES, "general-orders", "restaurant-orders", "general-orders-revenue",
    "restaurant-orders-revenue", "dead-letters",
)
HOSTILE = "<script>document.title='taken over'</script><img src=x onerror=alert(1)>"
START_S = 120.0


def prepare(log: Log) -> None:
    """Create the topics, and add the stores."""
    for topic in TOPICS:
        log.create_topic(topic, 2, {"retention.ms": "-1"})
    append(log, STORES, [(each.location_id, Serdes.json(Store).serialize(each))
                         for each in ALL_STORES])


def append(log: Log, topic: str, rows: Iterable[tuple[str, bytes]]) -> None:
    """Append records, each to the partition of its key."""
    for key, value in rows:
        where = partition_of(key.encode(), 2)
        log.append(topic, where, RecordColumns([key.encode()], [value]))


def send_orders(log: Log, orders: Iterable[Order]) -> None:
    """Append orders to the topic that the application reads."""
    serialize = Serdes.json(Order).serialize
    append(log, ORDERS, [(order.location_id, serialize(order)) for order in orders])


@contextmanager
def run_orders(log: Log, folder: Path) -> Iterator[tuple[str, int]]:
    """Run `penstock run --dashboard`: its address and its process id."""
    with open(folder / "output", "wb") as output:
        process = subprocess.Popen(
            [
                sys.executable, "-m", "penstock", "run", "orders.topology:build", "--log",
                log.address, "--application-id", "orders", "--master", "local[2]", "--execution",
                "continuous", "--dashboard", "127.0.0.1:0", "--allow-actions", "--state-dir",
                str(folder / "state"), "--set", "errors.dead.letter.queue.topic.name=dead-letters",
                "--set", "deserialization.exception.handler=continue",
                "--set", "application.server=127.0.0.1:7070",
            ],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(
                filter(None, (str(EXAMPLES), os.environ.get("PYTHONPATH")))
            )},
            stdout=output, stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + START_S
        while True:
            text = (folder / "output").read_text(errors="replace")
            if found := re.search(r"The dashboard is on (\S+)/dashboard", text):
                break
            assert process.poll() is None, text
            assert time.monotonic() < deadline, text
            time.sleep(0.05)
        yield found[1], process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(120)
