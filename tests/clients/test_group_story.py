"""Two partitions, three consumers: one is idle, and takes over when another is killed."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.clients import Producer
from penstock.log import Log
from penstock.log.types import TopicPartition

GROUP = "simple-logs-processing"
Until = Callable[..., None]


def shares(log: Log) -> list[int]:
    return sorted(len(member.partitions) for member in log.group(GROUP).members)


def owner_of(partition: int, consumers: list[Any]) -> Any:
    (owner,) = [
        consumer for consumer in consumers
        if any(partition in told["partitions"] for told in consumer.heard("assigned"))
        and not any(partition in told["partitions"] for told in consumer.heard("revoked"))
    ]
    return owner


def offsets_seen(consumer: Any, partition: int) -> list[int]:
    return [told["offset"] for told in consumer.heard("record") if told["partition"] == partition]


def test_an_idle_consumer_goes_on_from_the_last_commit_of_one_that_was_killed(
    log: Log, tmp_path: Path, start: Callable[..., Any], until: Until
) -> None:
    log.create_topic("logs", 2)
    marker = tmp_path / "crashed"
    consumers = [start("simple_consumer", log.address, marker) for _ in range(3)]
    until(lambda: shares(log) == [0, 1, 1])
    until(lambda: sum(
        len(told["partitions"]) * (1 if told["what"] == "assigned" else -1)
        for consumer in consumers for told in list(consumer.told) if "partitions" in told
    ) == 2)
    first, second = owner_of(0, consumers), owner_of(1, consumers)
    (idle,) = [consumer for consumer in consumers if consumer not in {first, second}]

    # 5 records are committed; then 5 are read, and not committed.
    with Producer({"log": log}) as producer:
        for n in range(5):
            producer.produce("logs", str(n), partition=0)
    until(lambda: first.heard("committed") and first.heard("committed")[-1]["offsets"] == {"0": 5})
    with Producer({"log": log}) as producer:
        for n in range(5, 20):
            producer.produce("logs", "crash" if n == 7 else str(n), partition=0)
    until(lambda: first.heard("stuck"))
    assert log.committed(GROUP)[TopicPartition("logs", 0)].offset == 5
    assert offsets_seen(first, 0) == list(range(10))
    assert not idle.heard("record")

    first.kill()
    until(lambda: offsets_seen(idle, 0)[-1:] == [19])
    assert offsets_seen(idle, 0) == list(range(5, 20))

    # The other one was not disturbed, and goes on with its own partition.
    with Producer({"log": log}) as producer:
        for n in range(10):
            producer.produce("logs", str(n), partition=1)
    until(lambda: offsets_seen(second, 1)[-1:] == [9])
    assert offsets_seen(second, 1) == list(range(10))

    for consumer in (second, idle):
        consumer.process.send_signal(signal.SIGTERM)
        assert consumer.wait() == 0
        assert consumer.heard("closed")
    assert log.group(GROUP).members == ()
    assert {where.partition: offset.offset for where, offset in log.committed(GROUP).items()} == {
        0: 20, 1: 10,
    }


def test_one_consumer_alone_has_both_partitions(
    log: Log, tmp_path: Path, start: Callable[..., Any], until: Until
) -> None:
    log.create_topic("logs", 2)
    with Producer({"log": log}) as producer:
        for n in range(20):
            producer.produce("logs", str(n))
    consumer = start("simple_consumer", log.address, tmp_path / "marker")
    until(lambda: len(consumer.heard("record")) == 20)
    assert [offsets_seen(consumer, partition) for partition in (0, 1)] == [list(range(10))] * 2
    until(lambda: {
        where.partition: offset.offset for where, offset in log.committed(GROUP).items()
    } == {0: 10, 1: 10})
