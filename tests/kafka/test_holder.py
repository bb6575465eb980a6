"""A candidate for a lease knows its holder."""

from __future__ import annotations

import os
import socket

import pytest

from kafka.cluster import clear
from penstock.broker.cluster import ClusterStatus
from penstock.log import open_log
from penstock.log.kafka.log import KafkaLog

pytestmark = pytest.mark.kafka


def test_holder_is_known_once_it_is_recorded(penstock_broker: ClusterStatus) -> None:
    address = clear(penstock_broker.address)
    with open_log(address) as first, open_log(address) as second:
        assert isinstance(first, KafkaLog)
        membership = first._leases.join("app", 6_000)
        membership.wait_until_joined()
        candidate = second.candidate("app", holder="second")
        # The group has chosen the holder, which is not recorded yet.
        assert candidate.try_acquire() is None
        assert candidate.holder is None
        first._leases.acquire("app", "first", membership)
        first.take_lease("another", holder="unrelated")
        assert candidate.try_acquire() is None
        assert candidate.holder == "first"
        taker = first.take_lease("app", holder="taker")
        assert candidate.try_acquire() is None
        assert candidate.holder == "taker"
        taker.release()


def test_kafka_tools_show_the_process_of_a_candidate(penstock_broker: ClusterStatus) -> None:
    with open_log(clear(penstock_broker.address)) as log:
        assert log.candidate("app").try_acquire() is not None
        (member,) = log.group("app").members
        assert member.client_id == f"penstock-{socket.gethostname()}-{os.getpid()}"
