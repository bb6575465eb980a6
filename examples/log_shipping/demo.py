"""Ships log messages to three consumers of a group. One of them fails, and the idle one takes over.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from showcase import reject_existing

from log_shipping.processing import commit, open_consumer, process_some
from log_shipping.shipper import LogShipper, by_level, key_of_thread
from penstock.clients import Consumer, KafkaError, KafkaException, Message, Producer
from penstock.log import Log, open_log

#: The topics, and their partitions.
LOGS, LOGINS = "logs", "userLogins"
PARTITIONS = {LOGS: 2, LOGINS: 4}
APP = ("testdata", "1.0")
#: The messages of a thread.
MESSAGES = 7


def create_topics(log: Log) -> None:
    """Create the topics, on two brokers each if there are as many."""
    reject_existing(log, None, list(PARTITIONS))
    with Producer({"log": log.address}) as producer:
        brokers = len(producer.list_topics().brokers)
    for name, partitions in PARTITIONS.items():
        log.create_topic(name, partitions, replication_factor=2 if brokers > 1 else -1)


def ship(shipper: LogShipper, write: Callable[[logging.Logger], None]) -> None:
    """Let a function write to a logger whose messages are shipped."""
    logger = logging.Logger("shop", logging.INFO)
    logger.addHandler(shipper)
    write(logger)
    shipper.flush()


def log_in(logger: logging.Logger) -> None:
    """Log in four users."""
    for user in ("ann", "bob", "cleo", "dan"):
        logger.info("login of %s", user, extra={"mdc": {"user": user}})


def check_out(logger: logging.Logger) -> None:
    """Log the checkouts of two threads, and an error of each."""

    def run() -> None:
        thread = threading.current_thread().name
        for number in range(1, MESSAGES):
            logger.info("checkout %d of %s", number, thread)
        try:
            raise PermissionError("card refused")
        except PermissionError:
            logger.exception("the card of %s was refused", thread)

    for name in ("web-3", "web-4"):
        thread = threading.Thread(target=run, name=name)
        thread.start()
        thread.join()


def report(error: KafkaError | None, message: Message) -> None:
    """Print where a message was written."""
    if error is not None:
        raise KafkaException(error)
    print(f"  {message.topic()}: partition {message.partition()}, offset {message.offset()}")


def join(consumers: Mapping[str, Consumer], partitions: int) -> None:
    """Poll until the group has distributed its partitions. There are no records yet."""
    while sum(len(consumer.assignment()) for consumer in consumers.values()) < partitions or any(
        len(consumer.assignment()) > 1 for consumer in consumers.values()
    ):
        for consumer in consumers.values():
            consumer.consume(timeout=0.1)
    for name, consumer in consumers.items():
        numbers = [each.partition for each in consumer.assignment()]
        print(f"  consumer {name}: {f'partition {numbers[0]}' if numbers else 'idle'}")


def process(address: str) -> None:
    """Ship checkouts to three consumers; the owner of partition 0 fails before it commits."""
    consumers = {name: open_consumer(address, name, LOGS) for name in "123"}
    print("== three consumers on two partitions")
    join(consumers, PARTITIONS[LOGS])
    with Producer({"log": address, "partitioner": by_level}) as producer:
        ship(LogShipper(producer, LOGS, APP, key=key_of_thread), check_out)

    failing = next(
        name for name, consumer in consumers.items()
        if [each.partition for each in consumer.assignment()] == [0]
    )
    print(f"\n== consumer {failing} processes a few records, and fails before it commits them")
    consumer = consumers.pop(failing)
    while not process_some(consumer, failing, print):
        pass
    consumer.close()

    print("\n== the idle one takes over, and processes them again")
    lines: dict[str, str] = {}

    def keep(line: str) -> None:
        # A record whose commit was rejected by a rebalance may be processed twice.
        lines[line.partition(" => ")[2]] = line

    while len(lines) < 2 * MESSAGES:
        for name, consumer in consumers.items():
            commit(consumer, process_some(consumer, name, keep))
    for line in sorted(lines.values()):
        print(line)
    for consumer in consumers.values():
        consumer.close()


def read_again(address: str) -> None:
    """Read from a given offset on, in a group of its own."""
    consumer = open_consumer(address, "4", LOGS, group="logs-again", start=MESSAGES - 2)
    lines: list[str] = []
    while len(lines) < 4:
        process_some(consumer, "4", lines.append)
    for line in sorted(lines):
        print(line)
    consumer.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example."""
    parser = argparse.ArgumentParser(description="log shipping: producers and a consumer group")
    parser.add_argument("--log", metavar="PATH|kafka://HOST:PORT")
    parser.add_argument("--master", help="accepted for all examples; this one needs no Spark")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder:
        address = chosen.log or str(Path(folder) / "logs.db")
        with open_log(address) as log:
            create_topics(log)
        print("== logins, without keys: the partitions in turn")
        with Producer({"log": address}) as producer:
            ship(LogShipper(producer, LOGINS, APP, on_delivery=report), log_in)
        print()
        process(address)
        print(f"\n== a reader starts at offset {MESSAGES - 2} of each partition")
        read_again(address)
    return 0


if __name__ == "__main__":
    sys.exit(main())
