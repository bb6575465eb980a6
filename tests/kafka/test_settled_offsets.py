"""`Log.settled_offsets` returns the ends of partitions without an open transaction."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka import Producer

from penstock.broker.cluster import ClusterStatus
from penstock.log import TopicPartition, open_log
from penstock.log.errors import LogBusy

pytestmark = pytest.mark.kafka


def test_open_transaction_is_awaited(penstock_broker: ClusterStatus) -> None:
    topic = f"settled-{uuid.uuid4().hex}"
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    producer = Producer({
        "bootstrap.servers": penstock_broker.bootstrap_servers, "transactional.id": topic,
    })
    producer.init_transactions()
    with open_log(penstock_broker.address) as log:
        log.create_topic(topic, 2)
        producer.begin_transaction()
        for number in range(2):
            producer.produce(topic, b"v", partition=number)
        producer.flush()
        with pytest.raises(LogBusy, match="had open transactions"):
            log.settled_offsets(partitions, timeout_s=0.05)
        producer.commit_transaction()
        found = log.settled_offsets(partitions, timeout_s=30)
        # A record and the marker of the transaction.
        assert [found[where].end for where in partitions] == [2, 2]
