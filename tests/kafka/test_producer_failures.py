"""A producer on a broker that rejects a part of its records."""

from __future__ import annotations

import os

import pytest

from kafka.cluster import clear
from penstock.broker.cluster import ClusterStatus
from penstock.clients import KafkaException, Producer
from penstock.log import open_log

pytestmark = pytest.mark.kafka


def test_failure_of_one_partition_is_not_reported_for_the_others(
    penstock_broker: ClusterStatus,
) -> None:
    """Otherwise a user who sends the failed records again would write the others twice."""
    value = os.urandom(10_000)
    with (
        open_log(clear(penstock_broker.address)) as log,
        Producer({"log": penstock_broker.address, "linger.ms": 500}) as producer,
    ):
        for topic in ("large", "small"):
            log.create_topic(topic)
            # Now the producer knows the limits of the topic.
            producer.send(topic, b"first").result(30)
        log.alter_topic("small", {"max.message.bytes": "1000"})
        large, small = producer.send("large", value), producer.send("small", value)
        assert large.result(30).offset() == 1
        with pytest.raises(KafkaException, match="small"):
            small.result(30)
