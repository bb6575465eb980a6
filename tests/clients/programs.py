"""Client programs that the tests run as processes: `python programs.py NAME LOG ...`.

They print their events as JSON lines.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from penstock.clients import Consumer, Producer, TopicPartition, WakeupException

GROUP: dict[str, Any] = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "session.timeout.ms": 1_000,
    "heartbeat.interval.ms": 50,
    "partition.assignment.strategy": "cooperative-sticky",
}


def emit(kind: str, **details: object) -> None:
    print(json.dumps({"kind": kind, **details}), flush=True)


def numbers(partitions: list[TopicPartition]) -> list[int]:
    return [partition.partition for partition in partitions]


def simple_consumer(log: str, marker: str) -> None:
    """Commits the last offset + 1 of every batch until SIGTERM.

    The first process that reads the record "crash" hangs before it commits the batch.
    """
    consumer = Consumer({
        **GROUP, "log": log, "group.id": "simple-logs-processing", "max.poll.records": 5,
    })
    signal.signal(signal.SIGTERM, lambda *_: consumer.wakeup())
    consumer.subscribe(
        ["logs"],
        on_assign=lambda _, partitions: emit("assigned", partitions=numbers(partitions)),
        on_revoke=lambda _, partitions: emit("revoked", partitions=numbers(partitions)),
    )
    emit("subscribed")
    try:
        while True:
            messages = consumer.consume()
            for message in messages:
                emit("record", partition=message.partition(), offset=message.offset())
            if any(message.value() == b"crash" for message in messages) and is_first(marker):
                emit("hanging")
                signal.pause()
            last = {message.partition(): message for message in messages}
            consumer.commit(
                offsets=[
                    TopicPartition("logs", partition, message.offset() + 1)
                    for partition, message in last.items()
                ],
                asynchronous=False,
            )
            emit("committed", offsets={n: message.offset() + 1 for n, message in last.items()})
    except WakeupException:
        pass
    finally:
        consumer.close()
    emit("closed")


def is_first(marker: str) -> bool:
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def copier(log: str, transactional_id: str) -> None:
    """Copies "in" to "out" exactly once, in transactions that include the offsets."""
    consumer = Consumer({**GROUP, "log": log, "group.id": "copiers", "max.poll.records": 10})
    producer = Producer({"log": log, "transactional.id": transactional_id})
    producer.init_transactions()
    consumer.subscribe(["in"])
    emit("ready")
    while True:
        messages = consumer.consume(num_messages=None, timeout=1)
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            producer.produce("out", message.value(), message.key())
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
        )
        producer.commit_transaction()
        emit("copied", count=len(messages))


def writer(log: str, name: str, count: str) -> None:
    """Sends one record at a time and prints the acknowledged ones."""
    with Producer({"log": log, "linger.ms": 0}) as producer:
        for n in range(int(count)):
            message = producer.send("in", f"{name}-{n}", key=f"{name}-{n}").result(60)
            emit("written", partition=message.partition(), offset=message.offset())


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    {"simple_consumer": simple_consumer, "copier": copier, "writer": writer}[sys.argv[1]](
        *sys.argv[2:]
    )
