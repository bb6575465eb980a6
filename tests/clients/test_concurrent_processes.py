"""Concurrent writers and killed copiers: no record is lost or duplicated."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from penstock.clients import Producer
from penstock.log import Log
from penstock.log.types import TopicPartition

Until = Callable[..., None]


def values(log: Log, topic: str) -> list[bytes]:
    return [
        value
        for partition in range(log.topic(topic).partitions)
        for batch in log.read(topic, partition, 0)
        for value in batch.columns().values
        if value is not None
    ]


@pytest.mark.slow
def test_four_processes_write_single_records_concurrently(
    log: Log, start: Callable[..., Any]
) -> None:
    log.create_topic("in", 3)
    writers = [start("writer", log.address, f"w{n}", 100) for n in range(4)]
    assert [writer.wait() for writer in writers] == [0] * 4
    written = [
        (event["partition"], event["offset"])
        for writer in writers for event in writer.events_of("written")
    ]
    assert len(set(written)) == 400
    ends = log.offsets([TopicPartition("in", n) for n in range(3)])
    assert set(written) == {
        (partition.partition, offset) for partition, offsets in ends.items()
        for offset in range(offsets.end)
    }
    assert Counter(values(log, "in")) == Counter(
        f"w{n}-{i}".encode() for n in range(4) for i in range(100)
    )


@pytest.mark.slow
def test_killed_copiers_copy_every_record_exactly_once(
    log: Log, start: Callable[..., Any], until: Until
) -> None:
    rng = random.Random(7)
    log.create_topic("in", 4)
    log.create_topic("out", 2)
    copiers = [start("copier", log.address, f"copier-{n}") for n in range(2)]
    until(lambda: all(copier.events_of("ready") for copier in copiers))
    written = 0
    for _ in range(8):
        with Producer({"log": log}) as producer:
            for _ in range(300):
                producer.produce("in", str(written), key=str(written % 17))
                written += 1
        victim = rng.randrange(2)
        enough = written - rng.randrange(300)
        until(partial(has_copied, log, enough))
        copiers[victim].kill()
        copiers[victim] = start("copier", log.address, f"copier-{victim}")
    until(partial(has_copied, log, written))
    assert Counter(values(log, "out")) == Counter(str(n).encode() for n in range(written))


def has_copied(log: Log, count: int) -> bool:
    # Offsets cannot be compared: on Kafka, transactions use offsets without a record.
    return len(values(log, "out")) >= count
