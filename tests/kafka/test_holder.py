"""Who waits for a lease hears who holds it."""

from __future__ import annotations

import os
import socket

import pytest

from kafka.cluster import swept
from penstock.broker.cluster import ClusterStatus
from penstock.log import open_log
from penstock.log.kafka.log import KafkaLog

pytestmark = pytest.mark.kafka


def test_a_holder_is_known_as_soon_as_it_has_told_its_name(penstock_broker: ClusterStatus) -> None:
    address = swept(penstock_broker.address)
    with open_log(address) as first, open_log(address) as second:
        assert isinstance(first, KafkaLog)
        place = first.place_in("app", 6_000)
        place.wait_for_round()
        waiting = second.candidate("app", holder="second")
        # The group has chosen, and the chosen one has not written yet.
        assert waiting.try_acquire() is None
        assert waiting.holder is None
        first.taken("app", "first", place)
        first.take_lease("another", holder="a stranger")
        assert waiting.try_acquire() is None
        assert waiting.holder == "first"
        thief = first.take_lease("app", holder="a thief")
        assert waiting.try_acquire() is None
        assert waiting.holder == "a thief"
        thief.release()


def test_kafkas_tools_see_which_process_waits(penstock_broker: ClusterStatus) -> None:
    with open_log(swept(penstock_broker.address)) as log:
        assert log.candidate("app").try_acquire() is not None
        (member,) = log.group("app").members
        assert member.client_id == f"penstock-{socket.gethostname()}-{os.getpid()}"
