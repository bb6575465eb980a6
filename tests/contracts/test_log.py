"""The contract of every log: topics, appends, staged records, waiting."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest
from msgspec.structs import replace

from contracts.conftest import LogUnderTest
from contracts.log_records import NOW, numbered, offsets, pairs, records, values
from penstock.log import Log, RecordColumns, TopicPartition
from penstock.log.errors import (
    InvalidRecord,
    InvalidTopic,
    OffsetOutOfRange,
    RecordTooLarge,
    StagedRecordsGone,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
)
from penstock.log.types import COLUMNS, Append, record_size

# Topics


def test_new_topic_is_empty_and_visible_to_all_handles(logs: LogUnderTest) -> None:
    creator, other = logs.open(), logs.open()
    created = creator.create_topic("orders", 3, {"retention.ms": 1000})
    assert other.topic("orders") == created
    assert (created.partitions, created.config) == (3, {"retention.ms": "1000"})
    assert created.setting("max.message.bytes") == "1048588"
    assert [topic.name for topic in other.topics()] == ["orders"]
    for partition in range(3):
        found = other.offsets([TopicPartition("orders", partition)])
        assert found["orders", partition][:2] == (0, 0)
        assert list(other.read("orders", partition, 0)) == []


def test_topics_are_ordered_by_name(log: Log) -> None:
    for name in ("b", "c", "a"):
        log.create_topic(name)
    assert [topic.name for topic in log.topics()] == ["a", "b", "c"]


def test_existing_topic_cannot_be_created(log: Log) -> None:
    log.create_topic("orders")
    with pytest.raises(TopicExists, match="'orders' already exists"):
        log.create_topic("orders")


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "x" * 250])
def test_illegal_topic_names_are_rejected(log: Log, name: str) -> None:
    with pytest.raises(InvalidTopic):
        log.create_topic(name)


@pytest.mark.parametrize(
    "config",
    [{"retention": 1}, {"retention.ms": "soon"}, {"retention.ms": -2},
     {"cleanup.policy": "shrink"}, {"message.timestamp.type": "Never"},
     {"min.cleanable.dirty.ratio": "2"}],
)
def test_invalid_settings_are_rejected(log: Log, config: dict[str, object]) -> None:
    with pytest.raises(InvalidTopic):
        log.create_topic("orders", 1, config)
    assert log.topics() == []


def test_topic_without_partitions_is_rejected(log: Log) -> None:
    with pytest.raises(InvalidTopic, match="at least 1 partition"):
        log.create_topic("orders", 0)


def test_unknown_topic_is_reported_with_the_existing_ones(log: Log) -> None:
    log.create_topic("orders", 2)
    message = r"Topic 'order' does not exist\. Did you mean 'orders'\? Topics: 'orders'\."
    with pytest.raises(UnknownTopic, match=message):
        log.topic("order")
    with pytest.raises(UnknownPartition, match="It has 2"):
        log.append("orders", 2, numbered([1]))
    with pytest.raises(UnknownTopic):
        log.read("order", 0, 0)
    with pytest.raises(UnknownTopic):
        log.commit_offsets("group", {TopicPartition("order", 0): 1})


def test_settings_are_changed_and_reset(log: Log) -> None:
    log.create_topic("orders", 1, {"retention.ms": 1, "retention.bytes": 2})
    log.alter_topic("orders", {"retention.ms": None, "cleanup.policy": "delete, compact"})
    topic = log.topic("orders")
    assert topic.config == {"retention.bytes": "2", "cleanup.policy": "compact,delete"}
    assert topic.setting("retention.ms") == "604800000"
    with pytest.raises(InvalidTopic):
        log.alter_topic("orders", {"retention": None})


def test_partitions_can_only_be_added(log: Log) -> None:
    log.create_topic("orders", 2)
    log.append("orders", 1, numbered([1]))
    assert log.add_partitions("orders", 4).partitions == 4
    log.append("orders", 3, numbered([2]))
    assert pairs(log, "orders", 1) == [(b"k1", b"1")]
    with pytest.raises(InvalidTopic):
        log.add_partitions("orders", 3)


def test_deleting_a_topic_deletes_its_records_and_offsets(log: Log) -> None:
    before = log.create_topic("orders")
    log.append("orders", 0, numbered(range(5)))
    log.commit_offsets("group", {TopicPartition("orders", 0): 5})
    log.delete_topic("orders")
    assert log.topics() == []
    assert log.committed("group") == {}
    assert log.create_topic("orders").id != before.id
    assert log.append("orders", 0, numbered([7])).base_offset == 0
    assert pairs(log, "orders") == [(b"k7", b"7")]


def test_reader_fails_when_its_topic_is_deleted(log: Log) -> None:
    log.create_topic("orders")
    for _ in range(3):
        log.append("orders", 0, numbered(range(5000)))
    reader = log.read("orders", 0, 0)
    next(reader)
    log.delete_topic("orders")
    with pytest.raises(UnknownTopic):
        list(reader)


# Appends


def test_records_are_read_as_they_were_appended(logs: LogUnderTest) -> None:
    log = logs.open()
    log.create_topic("orders")
    log.append("orders", 0, RecordColumns(
        [b"a", None, b"", b"\x00\xff"],
        [b"1", b"", None, b"x" * 100_000],
        [0, 1, 2, NOW],
        [[], [("h", b"1"), ("h", None)], [("ä", b"")], []],
    ))
    (batch,) = logs.open().read("orders", 0, 0)
    assert tuple(batch.records.schema.names) == COLUMNS
    assert batch.records.schema.types[:4] == [pa.int64(), pa.int64(), pa.binary(), pa.binary()]
    columns = batch.columns()
    assert (columns.topic, columns.partition, list(columns.offsets)) == ("orders", 0, [0, 1, 2, 3])
    assert columns.timestamps == [0, 1, 2, NOW]
    assert columns.keys == [b"a", None, b"", b"\x00\xff"]
    assert columns.values == [b"1", b"", None, b"x" * 100_000]
    assert columns.headers == [(), (("h", b"1"), ("h", None)), (("ä", b""),), ()]
    assert batch.next_offset == 4


def test_arrow_data_can_be_appended(log: Log) -> None:
    log.create_topic("orders")
    log.create_topic("copy")
    batch = pa.record_batch({
        "key": pa.array(["a", "b"]),
        "value": pa.array([b"1", None], pa.large_binary()),
        "timestamp": pa.array([5, 6], pa.timestamp("ms")),
    })
    assert log.append("orders", 0, batch)[2:] == (0, 2, -1)
    log.append("orders", 0, pa.Table.from_batches([batch.slice(1), batch.slice(0, 1)]))
    assert pairs(log, "orders") == [(b"a", b"1"), (b"b", None), (b"b", None), (b"a", b"1")]
    # A batch that was read can be appended elsewhere.
    for read in log.read("orders", 0, 1):
        log.append("copy", 0, read.records)
    (copied,) = log.read("copy", 0, 0)
    assert copied.columns().timestamps == [6, 6, 5]
    assert list(copied.columns().offsets) == [0, 1, 2]


def test_offsets_continue_across_appends(log: Log) -> None:
    log.create_topic("orders", 2)
    assert log.append("orders", 0, numbered(range(3)))[2:4] == (0, 3)
    assert log.append("orders", 1, numbered(range(1)))[2:4] == (0, 1)
    assert log.append("orders", 0, numbered([]))[2:4] == (3, 3)
    assert log.append("orders", 0, numbered(range(2)))[2:4] == (3, 5)
    assert offsets(log.read("orders", 0, 0)) == [0, 1, 2, 3, 4]


def test_log_assigns_missing_timestamps(log: Log) -> None:
    log.create_topic("orders")
    appended = log.append("orders", 0, RecordColumns([b"a", b"b"], [b"1", b"2"]))
    (batch,) = log.read("orders", 0, 0)
    assert batch.columns().timestamps == [appended.timestamp] * 2
    assert NOW <= appended.timestamp < NOW + 3_600_000


def test_log_append_time_replaces_timestamps(log: Log) -> None:
    log.create_topic("orders", 1, {"message.timestamp.type": "LogAppendTime"})
    appended = log.append("orders", 0, records((b"a", b"1"), at=7))
    (batch,) = log.read("orders", 0, 0)
    assert batch.columns().timestamps == [appended.timestamp]
    assert appended.timestamp >= NOW


@pytest.mark.parametrize(
    "bad",
    [
        RecordColumns([b"a"], [b"1", b"2"], [1]),
        RecordColumns([b"a"], [b"1"], [-1]),
        RecordColumns([b"a"], [1], [1]),  # type: ignore[list-item]
        RecordColumns([b"a"], [b"1"], [None]),  # type: ignore[list-item]
        RecordColumns([b"a"], [b"1"], [NOW + 90_000_000]),
        pa.record_batch({"key": pa.array([b"a"])}),
    ],
    ids=["lengths", "negative time", "no bytes", "no time", "future", "no value column"],
)
def test_invalid_record_rejects_the_whole_append(log: Log, bad: RecordColumns) -> None:
    log.create_topic("orders", 2)
    with pytest.raises(InvalidRecord):
        log.append_many([Append("orders", 1, numbered([1])), Append("orders", 0, bad)])
    assert pairs(log, "orders", 1) == []


def test_too_large_record_rejects_the_whole_append(log: Log) -> None:
    log.create_topic("orders", 2, {"max.message.bytes": 1000})
    large = RecordColumns([b"k"], [b"v" * 500], [1], [[("name", b"h" * 600)]])
    assert record_size(b"k", b"v" * 500, [("name", b"h" * 600)]) == 1105
    with pytest.raises(RecordTooLarge) as caught:
        log.append_many([Append("orders", 1, numbered([1])), Append("orders", 0, large)])
    assert (caught.value.size, caught.value.limit) == (1105, 1000)
    many = replace(numbered(range(100), size=10), values=[b"x"] * 99 + [b"x" * 1200])
    with pytest.raises(RecordTooLarge):
        log.append("orders", 0, many)
    assert pairs(log, "orders", 0) == pairs(log, "orders", 1) == []


def test_compacted_topic_rejects_records_without_a_key(log: Log) -> None:
    log.create_topic("table", 1, {"cleanup.policy": "compact"})
    with pytest.raises(InvalidRecord, match="is compacted"):
        log.append("table", 0, records((None, b"1")))
    log.append("table", 0, records((b"", b"1"), (b"a", None)))
    assert pairs(log, "table") == [(b"", b"1"), (b"a", None)]


def test_append_to_several_partitions_returns_a_result_for_each(log: Log) -> None:
    log.create_topic("a", 2)
    log.create_topic("b")
    log.append("b", 0, numbered([0]))
    results = log.append_many([
        Append("a", 1, numbered([1, 2])), Append("b", 0, numbered([3])),
        Append("a", 1, numbered([4])),
    ])
    assert [result[:4] for result in results] == [("a", 1, 0, 2), ("b", 0, 1, 2), ("a", 1, 2, 3)]
    with pytest.raises(UnknownTopic):
        log.append_many([Append("a", 1, numbered([5])), Append("c", 0, numbered([6]))])
    assert values(log.read("a", 1, 0)) == [b"1", b"2", b"4"]


# Staged records


def test_staged_records_are_invisible_until_they_are_appended(logs: LogUnderTest) -> None:
    worker, driver = logs.open(), logs.open()
    driver.create_topic("orders")
    staged = worker.stage_records(numbered(range(40_000)))
    assert sum(part.records for part in staged) == 40_000
    assert pairs(driver, "orders") == []
    with driver.transaction() as transaction:
        for part in staged:
            transaction.append("orders", 0, part)
    assert values(driver.read("orders", 0, 0)) == [b"%d" % n for n in range(40_000)]


def test_staged_records_can_be_appended_once(log: Log) -> None:
    log.create_topic("orders", 2, {"max.message.bytes": 100})
    (staged,) = log.stage_records(numbered([1]))
    log.append("orders", 0, staged)
    with pytest.raises(StagedRecordsGone):
        log.append_many([Append("orders", 1, numbered([2])), Append("orders", 1, staged)])
    assert pairs(log, "orders", 1) == []
    (large,) = log.stage_records(numbered([1], size=200))
    with pytest.raises(RecordTooLarge):
        log.append("orders", 1, large)
    log.drop_staged([large])
    log.drop_staged([large])
    with pytest.raises(StagedRecordsGone):
        log.append("orders", 1, large)


# Waiting


def test_commit_of_another_handle_ends_the_wait(logs: LogUnderTest) -> None:
    waiting, writing = logs.open(), logs.open()
    writing.create_topic("orders")
    while waiting.wait_for_change(0):
        pass
    assert not waiting.wait_for_change(0.01)
    writer = threading.Thread(target=lambda: writing.append("orders", 0, numbered([1])))
    writer.start()
    assert waiting.wait_for_change(60)
    writer.join()
    assert pairs(waiting, "orders") == [(b"k1", b"1")]


def test_own_commit_and_wake_end_the_wait(log: Log) -> None:
    log.create_topic("orders")
    assert log.wait_for_change(60)
    while log.wait_for_change(0):
        pass
    threading.Timer(0.02, log.wake).start()
    assert log.wait_for_change(60)


def test_id_identifies_a_log(logs: LogUnderTest) -> None:
    assert logs.open().id == logs.open().id != logs.elsewhere().id


def test_closed_log_raises(log: Log) -> None:
    log.create_topic("orders")
    log.close()
    log.close()
    with pytest.raises(Exception, match="closed"):
        log.topics()
    with pytest.raises(Exception, match="closed"):
        log.append("orders", 0, numbered([1]))


def test_offset_out_of_range_is_reported_with_the_range(log: Log) -> None:
    log.create_topic("orders")
    log.append("orders", 0, numbered(range(10)))
    assert list(log.read("orders", 0, 10)) == []
    for offset in (-1, 11):
        with pytest.raises(OffsetOutOfRange) as caught:
            log.read("orders", 0, offset)
        assert (caught.value.start, caught.value.end) == (0, 10)
