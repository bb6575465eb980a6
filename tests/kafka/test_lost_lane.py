"""The state that the driver reads from the log after a lane was lost, while other lanes write."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import TopicPartition as KafkaPartition

from kafka.cluster import clear
from kafka.test_writers import TIMEOUT_S, acquire, open_writer
from penstock import Serdes, StreamsBuilder, StreamsConfig
from penstock.broker.cluster import ClusterStatus
from penstock.engine.continuous.progress import ContinuousProgress
from penstock.engine.layout.execution_graph import build_graph_for_log
from penstock.engine.layout.internal_topics import ensure_internal_topics, tasks_topic
from penstock.engine.plan.task_records import TaskRecord, TaskRecords, encode_task, task_key
from penstock.log import Lease, Log, RecordColumns, TopicPartition, open_log
from penstock.log.kafka.client.producers import create_delivery
from penstock.log.kafka.encoding import check_columns
from penstock.log.kafka.writers import KafkaWriter
from penstock.record import TaskId

pytestmark = pytest.mark.kafka

LOST, OTHER = TaskId(0, 0), TaskId(0, 1)
TASKS = tasks_topic("app")


@pytest.fixture
def log(penstock_broker: ClusterStatus) -> Iterator[Log]:
    with open_log(clear(penstock_broker.address)) as log:
        log.create_topic("orders", 2)
        yield log


@pytest.fixture
def lease(log: Log) -> Lease:
    return acquire(log.candidate("app"))


@pytest.fixture
def progress(log: Log, lease: Lease) -> ContinuousProgress:
    """Of an application that has just started."""
    builder = StreamsBuilder()
    orders = builder.stream("orders", key=Serdes.string(), value=Serdes.string())
    orders.group_by_key().count(store="counts")
    topology = builder.build()
    config = StreamsConfig(application_id="app", log=log.address)
    graph = build_graph_for_log(log, topology, config)
    ensure_internal_topics(log, graph, 1)
    started = ContinuousProgress(log, graph, config, topology, now_ms=1, records=TaskRecords())
    started.record_start(lease, 1)
    return started


def commit(writer: KafkaWriter, task_id: TaskId, batch: int) -> None:
    """Commit a task as a lane does."""
    with writer.transaction() as transaction:
        record = encode_task(TaskRecord(batch, 0))
        transaction.append(TASKS, 0, RecordColumns([task_key(task_id)], [record]))
        transaction.commit_offsets("app", {TopicPartition("orders", task_id.partition): batch})


def leave_open(writer: KafkaWriter) -> None:
    """Write a task record and offsets, and do not commit them."""
    producer = writer.producer()
    producer.begin_transaction()
    record = RecordColumns([task_key(OTHER)], [encode_task(TaskRecord(9, 0))])
    create_delivery(producer).send((TASKS, 0), [check_columns(record)], 1_000_000, TIMEOUT_S)
    producer.flush(TIMEOUT_S)


def test_last_commit_of_a_lost_lane_is_read_behind_an_open_transaction(
    log: Log, lease: Lease, progress: ContinuousProgress
) -> None:
    """Readers see the last record of the lane only after the broker has ended the transaction of
    another one, in this test after its timeout."""
    lost, other = open_writer(log, lease), open_writer(log, lease)
    commit(lost, LOST, 1)
    leave_open(other)
    commit(lost, LOST, 2)
    lease.fence_writers([lost.grant])
    progress.reload(lease, [LOST])
    assert progress.records[LOST].batch == 2
    assert progress.offsets[TopicPartition("orders", 0)] == 2


def test_state_that_other_lanes_have_reported_is_kept(
    log: Log, lease: Lease, progress: ContinuousProgress
) -> None:
    """Their records may be newer than those that can be read."""
    lost = open_writer(log, lease)
    commit(lost, OTHER, 1)
    commit(lost, LOST, 1)
    progress.commit(OTHER, TaskRecord(5, 0), {("orders", 1): 50})
    progress.advance({("orders", 1): 50})
    lease.fence_writers([lost.grant])
    progress.reload(lease, [LOST])
    assert progress.records[OTHER].batch == 5
    assert progress.offsets[TopicPartition("orders", 1)] == 50


def test_offsets_in_open_transactions_of_other_lanes_are_not_awaited(
    log: Log, lease: Lease, progress: ContinuousProgress
) -> None:
    """With many lanes, some transaction is always open."""
    lost, other = open_writer(log, lease), open_writer(log, lease)
    commit(lost, LOST, 1)
    producer = other.producer()
    producer.begin_transaction()
    metadata = other.token()
    producer.send_offsets_to_transaction([KafkaPartition("orders", 1, 7)], metadata, TIMEOUT_S)
    lease.fence_writers([lost.grant])
    progress.reload(lease, [LOST])
    assert progress.offsets[TopicPartition("orders", 0)] == 1
