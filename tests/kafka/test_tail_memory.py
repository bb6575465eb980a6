"""A reader that follows partitions holds a bounded part of those that are paused."""

from __future__ import annotations

import os
import time
from typing import cast

import pytest

from kafka.cluster import clear
from penstock.broker.cluster import ClusterStatus
from penstock.log import RecordColumns, TopicPartition, open_log
from penstock.log.kafka import tail as tail_module
from penstock.log.kafka.tail import KafkaTailReader

pytestmark = pytest.mark.kafka
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
TIMEOUT_S = 60.0


def test_large_records_of_a_paused_partition_are_not_fetched(
    penstock_broker: ClusterStatus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may take more memory than the process has, long before there are many of them."""
    monkeypatch.setattr(tail_module, "_MOST_HELD_BYTES", 8 << 20)
    values = [os.urandom(250_000) for _ in range(4)]
    with open_log(clear(penstock_broker.address)) as log:
        log.create_topic("orders", 2)
        tail = cast(KafkaTailReader, log.tail())
        try:
            tail.add({P0: 0, P1: 0})
            tail.pause([P0])
            for _ in range(60):
                log.append("orders", 0, RecordColumns([None] * 4, values))
            held = tail._followed[P0].held
            deadline = time.monotonic() + TIMEOUT_S
            most = 0
            while not tail._followed[P0].is_fetch_paused:
                assert time.monotonic() < deadline
                assert tail.poll(0.05, 10_000) == []
                most = max(most, held.size)
            # Its half of the limit, and what one poll returns: the queue of the consumer, 16 MiB.
            assert 4 << 20 < most <= (4 << 20) + (20 << 20)
            found = 0
            tail.resume([P0])
            while found < 240:
                assert time.monotonic() < deadline
                for columns in tail.poll(0.05, 10_000):
                    assert columns.values == [values[each % 4] for each in columns.offsets]
                    assert columns.offsets[0] == found
                    found += len(columns)
        finally:
            tail.close()
