"""One consumer fetches the changelogs of all stores of a lane."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafka.cluster import clear
from penstock.broker.cluster import ClusterStatus
from penstock.engine.worker.changelogs import LogChangelogs, fetch_together
from penstock.log import Log, RecordColumns, TopicPartition, open_log
from penstock.log.kafka.client.readers import Readers

pytestmark = pytest.mark.kafka

STORES, PARTITIONS = 6, 3


@pytest.fixture
def log(penstock_broker: ClusterStatus) -> Iterator[Log]:
    with open_log(clear(penstock_broker.address)) as log:
        yield log


@pytest.fixture
def borrowed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The topics for which a consumer of one partition was borrowed."""
    topics: list[str] = []
    original = Readers.at

    def at(readers: Readers, topic: str, *where: Any) -> Any:
        topics.append(topic)
        return original(readers, topic, *where)

    monkeypatch.setattr(Readers, "at", at)
    return topics


def test_stores_of_several_tasks_are_fetched_by_one_consumer(
    log: Log, borrowed: list[str]
) -> None:
    """Each changelog ends with a transaction marker, one is empty, one has a position."""
    names = [f"store-{number}" for number in range(STORES)]
    for name in names:
        log.create_topic(name, PARTITIONS, {"cleanup.policy": "compact"})
    with log.transaction() as transaction:
        for name in names[1:]:
            for partition in range(PARTITIONS):
                values = [b"%d" % number for number in range(500)]
                transaction.append(name, partition, RecordColumns(values, values))
    tasks = [
        LogChangelogs(log, {name: TopicPartition(name, partition) for name in names})
        for partition in range(PARTITIONS)
    ]
    targets = {names[0]: 0} | dict.fromkeys(names[1:], 501)
    positions = {names[1]: 400}
    fetch_together(log, [(each, each.missing(positions, targets)) for each in tasks])
    for task in tasks:
        for name in names[1:]:
            start = positions.get(name, task.start(name).offset)
            [batch] = task.read(name, start, 501)
            assert batch.columns().values == [b"%d" % number for number in range(start, 500)]
            assert batch.next_offset == 501
    assert borrowed == []
    # Everything else is read as before.
    assert sum(len(batch) for batch in tasks[0].read(names[2], 100, 501)) == 400
    assert borrowed == [names[2]]
