"""A group of processes: an idle consumer takes over when another one is killed."""

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


def assigned_counts(log: Log) -> list[int]:
    return sorted(len(member.partitions) for member in log.group(GROUP).members)


def owner_of(partition: int, consumers: list[Any]) -> Any:
    (owner,) = [
        consumer for consumer in consumers
        if any(partition in event["partitions"] for event in consumer.events_of("assigned"))
        and not any(partition in event["partitions"] for event in consumer.events_of("revoked"))
    ]
    return owner


def offsets_seen(consumer: Any, partition: int) -> list[int]:
    return [
        event["offset"] for event in consumer.events_of("record")
        if event["partition"] == partition
    ]


def test_idle_consumer_resumes_at_the_last_commit_of_a_killed_one(
    log: Log, tmp_path: Path, start: Callable[..., Any], until: Until
) -> None:
    log.create_topic("logs", 2)
    marker = tmp_path / "crashed"
    consumers = [start("simple_consumer", log.address, marker) for _ in range(3)]
    until(lambda: assigned_counts(log) == [0, 1, 1])
    until(lambda: sum(
        len(event["partitions"]) * (1 if event["kind"] == "assigned" else -1)
        for consumer in consumers for event in list(consumer.events) if "partitions" in event
    ) == 2)
    first, second = owner_of(0, consumers), owner_of(1, consumers)
    (idle,) = [consumer for consumer in consumers if consumer not in {first, second}]

    # 5 records are committed, then 5 are read but not committed.
    with Producer({"log": log}) as producer:
        for n in range(5):
            producer.produce("logs", str(n), partition=0)
    until(lambda: [event["offsets"] for event in first.events_of("committed")][-1:] == [{"0": 5}])
    with Producer({"log": log}) as producer:
        for n in range(5, 20):
            producer.produce("logs", "crash" if n == 7 else str(n), partition=0)
    until(lambda: first.events_of("hanging"))
    assert log.committed(GROUP)[TopicPartition("logs", 0)].offset == 5
    assert offsets_seen(first, 0) == list(range(10))
    assert not idle.events_of("record")

    first.kill()
    until(lambda: offsets_seen(idle, 0)[-1:] == [19])
    assert offsets_seen(idle, 0) == list(range(5, 20))

    # The other consumer continues with its own partition.
    with Producer({"log": log}) as producer:
        for n in range(10):
            producer.produce("logs", str(n), partition=1)
    until(lambda: offsets_seen(second, 1)[-1:] == [9])
    assert offsets_seen(second, 1) == list(range(10))

    for consumer in (second, idle):
        consumer.process.send_signal(signal.SIGTERM)
        assert consumer.wait() == 0
        assert consumer.events_of("closed")
    assert log.group(GROUP).members == ()
    assert {
        partition.partition: offset.offset for partition, offset in log.committed(GROUP).items()
    } == {
        0: 20, 1: 10,
    }


def test_single_consumer_gets_both_partitions(
    log: Log, tmp_path: Path, start: Callable[..., Any], until: Until
) -> None:
    log.create_topic("logs", 2)
    with Producer({"log": log}) as producer:
        for n in range(20):
            producer.produce("logs", str(n))
    consumer = start("simple_consumer", log.address, tmp_path / "marker")
    until(lambda: len(consumer.events_of("record")) == 20)
    assert [offsets_seen(consumer, partition) for partition in (0, 1)] == [list(range(10))] * 2
    until(lambda: {
        partition.partition: offset.offset for partition, offset in log.committed(GROUP).items()
    } == {0: 10, 1: 10})
