"""Task records: their encoding, and reading them from the log."""

from __future__ import annotations

import pytest

from penstock.engine.layout.internal_topics import tasks_topic
from penstock.engine.plan.batch_plan import BatchPlan
from penstock.engine.plan.task_records import (
    APPLICATION_KEY,
    BATCH_KEY,
    BatchRecord,
    TaskRecord,
    decode_batch,
    decode_task,
    encode_batch,
    encode_task,
    read_task_records,
    task_key,
)
from penstock.errors import StreamsException
from penstock.log import Log, RecordColumns
from penstock.record import TaskId
from penstock.task.punctuation import ScheduleState
from penstock.task.result import TaskState

FULL = TaskRecord(
    17, 4,
    TaskState(
        1_000, {("b", 1): 5, ("a", 0): -1}, {"clock": 7}, {"store": {"stream_time": 9, "seq": 2}},
        (ScheduleState("n", 0, 100, False),),
        (ScheduleState("z", 1, 300, True), ScheduleState("a", 0, 200, False)), 3,
    ),
    {"store": 12}, {"app-x-repartition": 40}, 200,
)


def write(log: Log, *pairs: tuple[bytes, bytes | None]) -> None:
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    log.append(tasks_topic("app"), 0, RecordColumns(keys, values))


@pytest.fixture
def tasks(log: Log) -> Log:
    log.create_topic(tasks_topic("app"), 1, {"cleanup.policy": "compact"})
    return log


def test_task_record_survives_encoding_and_decoding() -> None:
    assert decode_task(encode_task(FULL)) == FULL
    assert decode_task(encode_task(TaskRecord(1, 0))) == TaskRecord(1, 0)


def test_equal_records_have_equal_bytes() -> None:
    other = TaskRecord(
        17, 4,
        TaskState(
            1_000, {("a", 0): -1, ("b", 1): 5}, {"clock": 7},
            {"store": {"seq": 2, "stream_time": 9}}, FULL.state.stream_schedules,
            FULL.state.wall_schedules, 3,
        ),
        {"store": 12}, {"app-x-repartition": 40}, 200,
    )
    assert encode_task(other) == encode_task(FULL)


def test_batch_record_survives_encoding_and_decoding() -> None:
    plan = BatchPlan(3, 1, 99, {}, {("g", 1): 4, ("g", 0): 5})
    record = BatchRecord.of(plan, {"orders": 2})
    assert decode_batch(encode_batch(record)) == record
    assert record == BatchRecord(3, 99, {("g", 0): 5, ("g", 1): 4}, {"orders": 2})


def test_application_that_never_ran_has_no_records(log: Log) -> None:
    records = read_task_records(log, "app")
    assert (records.tasks, records.batch, records.application) == ({}, None, None)


def test_newest_record_of_each_key_wins(tasks: Log) -> None:
    zero, ten = TaskId(0, 0), TaskId(10, 11)
    write(tasks, (task_key(zero), encode_task(TaskRecord(1, 0))), (task_key(ten), b"{}"))
    write(
        tasks, (task_key(ten), encode_task(FULL)), (BATCH_KEY, encode_batch(BatchRecord(2, 5))),
        (APPLICATION_KEY, b"anything"),
    )
    write(tasks, (task_key(zero), encode_task(TaskRecord(2, 0))))
    records = read_task_records(tasks, "app")
    assert records.tasks == {zero: TaskRecord(2, 0), ten: FULL}
    assert records.batch == BatchRecord(2, 5)
    assert records.application == b"anything"


def test_tombstone_deletes_a_record(tasks: Log) -> None:
    write(tasks, (b"0_0", encode_task(FULL)), (b"0_0", None))
    assert read_task_records(tasks, "app").tasks == {}


def test_record_of_a_newer_version_is_refused(tasks: Log) -> None:
    write(tasks, (b"0_1", encode_task(FULL).replace(b'"format_version":1', b'"format_version":2')))
    with pytest.raises(StreamsException, match="'0_1' of topic 'app-tasks' was written by a newer"):
        read_task_records(tasks, "app")


def test_unreadable_record_is_refused(tasks: Log) -> None:
    write(tasks, (BATCH_KEY, b"what?"))
    with pytest.raises(StreamsException, match="'batch' of topic 'app-tasks' cannot be read"):
        read_task_records(tasks, "app")
