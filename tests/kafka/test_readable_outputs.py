"""A caller that waits until an application has caught up can read its output at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from faults.engine_processes import wait_until
from kafka.cluster import clear
from penstock import Serdes, Streams, StreamsBuilder, StreamsConfig, Topology
from penstock.broker.cluster import ClusterStatus
from penstock.log import Log, RecordColumns, TopicPartition, open_log

pytestmark = pytest.mark.kafka

OUT = TopicPartition("out", 0)


@pytest.fixture
def log(penstock_broker: ClusterStatus) -> Iterator[Log]:
    with open_log(clear(penstock_broker.address)) as log:
        log.create_topic("out")
        yield log


@pytest.fixture
def producer(penstock_broker: ClusterStatus, log: Log) -> Producer:
    """A producer with an open transaction in the output topic.

    Records behind it are not readable before it ends, even if their own transaction is committed.
    """
    producer = Producer({
        "bootstrap.servers": penstock_broker.bootstrap_servers, "transactional.id": "other",
    })
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("out", b"of another application", partition=0)
    producer.flush()
    return producer


def copy() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", key=Serdes.bytes(), value=Serdes.bytes()).to("out")
    return builder.build()


def test_output_that_is_not_readable_yet_is_awaited(
    log: Log, producer: Producer, tmp_path: Path
) -> None:
    log.create_topic("in")
    log.append("in", 0, RecordColumns([b"k"], [b"v"]))
    config = StreamsConfig(application_id="copy", log=log.address, state_dir=str(tmp_path))
    with Streams(copy(), config, master="inline") as streams:
        wait_until("the record is committed", lambda: offset_of(log, "copy") == 1)
        assert not streams.is_caught_up(0.5)
        producer.abort_transaction()
        streams.run_until_caught_up(60)
        (batch,) = log.read("out", 0, 0)
        assert batch.columns().values == [b"v"]


def offset_of(log: Log, group: str) -> int | None:
    found = log.committed(group, [TopicPartition("in", 0)])
    return next((each.offset for each in found.values()), None)


def test_records_behind_an_open_transaction_are_not_readable(log: Log, producer: Producer) -> None:
    end = log.append("out", 0, RecordColumns([b"k"], [b"v"])).next_offset
    assert not log.is_readable({OUT: end})
    producer.abort_transaction()
    wait_until("the record is readable", lambda: log.is_readable({OUT: end}))
    assert log.offsets([OUT])[OUT].end >= end


def test_ends_of_deleted_topics_are_ignored(log: Log) -> None:
    assert log.is_readable({OUT: 17})
    assert log.is_readable({TopicPartition("missing", 0): 17})
