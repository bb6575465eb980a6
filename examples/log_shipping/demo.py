"""Ships log messages, processes some, stops, and resumes at the committed offsets."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from showcase import create_topics

from log_shipping.processing import open_consumer, process_some
from log_shipping.shipper import LogShipper
from penstock.clients import Producer
from penstock.log import open_log

TOPIC = "logs"
PARTITIONS = 2
#: The messages of a thread.
MESSAGES = 7


def ship(address: str) -> None:
    """Log a few messages from two threads."""
    logger = logging.getLogger("shop.checkout")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    with Producer({"log": address}) as producer:
        shipper = LogShipper(producer, TOPIC, "testdata", "1.0")
        logger.addHandler(shipper)
        for name in ("web-1", "web-2"):
            thread = threading.Thread(target=_checkouts, args=(logger,), name=name)
            thread.start()
            thread.join()
        logger.removeHandler(shipper)


def _checkouts(logger: logging.Logger) -> None:
    thread = threading.current_thread().name
    for number in range(1, MESSAGES):
        logger.info("checkout %d of %s", number, thread)
    logger.warning("the card of %s was refused", thread)


def process(address: str, name: str, *, at_least: int) -> int:
    """Process records in a consumer of the group. Returns how many."""
    done = 0
    consumer = open_consumer(address, name, TOPIC)
    while done < at_least:
        done += process_some(consumer, name, print)
    consumer.close()
    return done


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example."""
    parser = argparse.ArgumentParser(description="log shipping: producers and a consumer group")
    parser.add_argument("--log", metavar="PATH|kafka://HOST:PORT")
    parser.add_argument("--master", help="accepted for all examples; this one needs no Spark")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder:
        address = chosen.log or str(Path(folder) / "logs.db")
        with open_log(address) as log:
            create_topics(log, None, [TOPIC], PARTITIONS)
        ship(address)
        print("== the first consumer processes a few records, commits, and stops")
        done = process(address, "1", at_least=1)
        print("== the second one resumes behind them")
        process(address, "2", at_least=2 * MESSAGES - done)
    return 0


if __name__ == "__main__":
    sys.exit(main())
