"""The contract of every log: ranges, limits, offsets for timestamps."""

from __future__ import annotations

import random
import threading

import pytest
from msgspec.structs import replace

from contracts.log_records import NOW, numbered, offsets, pairs, records, values
from penstock.log import Log, TopicPartition
from penstock.log.errors import OffsetOutOfRange, UnknownTopic
from penstock.log.types import OffsetAndTimestamp, VerifyReport, record_size

ALSO_WITH_PYTHON_CLIENTS = True


@pytest.fixture
def orders(log: Log) -> Log:
    """A log with offsets 0 to 29,999, in appends of many sizes."""
    log.create_topic("orders")
    rng = random.Random(4)
    begin = 0
    while begin < 30_000:
        end = min(begin + rng.choice((1, 7, 100, 9000)), 30_000)
        log.append("orders", 0, numbered(range(begin, end), at=NOW))
        begin = end
    return log


def test_range_returns_exactly_its_records(orders: Log) -> None:
    rng = random.Random(5)
    for _ in range(60):
        start = rng.randrange(30_001)
        end = min(start + rng.choice((0, 1, 50, 12_000)), 30_000)
        reader = orders.read("orders", 0, start, end)
        assert values(reader) == [b"%d" % n for n in range(start, end)]
        assert reader.position == end
    assert offsets(orders.read("orders", 0, 0, 99_999)) == list(range(30_000))


def test_record_limit_is_exact(orders: Log) -> None:
    for limit in (1, 2, 101, 9001, 20_000, 50_000):
        reader = orders.read("orders", 0, 5, max_records=limit)
        assert offsets(reader) == list(range(5, min(5 + limit, 30_000)))
        assert reader.position == min(5 + limit, 30_000)


def test_byte_limit_allows_at_least_one_record(orders: Log) -> None:
    size = record_size(b"k10000", b"10000")
    for limit, count in ((1, 1), (size - 1, 1), (size, 1), (2 * size, 2), (2500 * size + 3, 2500)):
        reader = orders.read("orders", 0, 10_000, max_bytes=limit)
        assert offsets(reader) == list(range(10_000, 10_000 + count))
        assert reader.position == 10_000 + count
    both = orders.read("orders", 0, 10_000, max_records=5, max_bytes=3 * size)
    assert offsets(both) == [10_000, 10_001, 10_002]


def test_steps_have_a_bounded_size(log: Log) -> None:
    log.create_topic("orders")
    log.append("orders", 0, numbered(range(60_000), size=100))
    sizes = [(len(batch), batch.records.nbytes) for batch in log.read("orders", 0, 0)]
    assert sum(count for count, _ in sizes) == 60_000
    assert max(count for count, _ in sizes) <= 20_000
    assert max(size for _, size in sizes) < 8 * 1024 * 1024


def test_batches_are_continuous(orders: Log) -> None:
    reader = orders.read("orders", 0, 100)
    position = 100
    for batch in reader:
        columns = batch.columns()
        assert columns.offsets[0] == position
        position = batch.next_offset
        assert columns.offsets[-1] + 1 == position == reader.position
    assert position == 30_000


def test_range_without_an_end_stops_at_the_end_of_its_start_time(orders: Log) -> None:
    reader = orders.read("orders", 0, 29_990)
    orders.append("orders", 0, numbered([0]))
    assert offsets(reader) == list(range(29_990, 30_000))
    assert offsets(orders.read("orders", 0, 30_000)) == [30_000]


def test_records_below_any_offset_can_be_deleted(orders: Log) -> None:
    reader = orders.read("orders", 0, 10)
    assert orders.delete_records("orders", 0, 12_345) == 12_345
    assert orders.delete_records("orders", 0, 5) == 12_345
    assert orders.offsets([TopicPartition("orders", 0)])["orders", 0][:2] == (12_345, 30_000)
    with pytest.raises(OffsetOutOfRange, match="Retention has deleted"):
        next(reader)
    with pytest.raises(OffsetOutOfRange):
        orders.read("orders", 0, 12_344)
    assert offsets(orders.read("orders", 0, 12_345))[0] == 12_345
    with pytest.raises(OffsetOutOfRange):
        orders.delete_records("orders", 0, 30_001)
    orders.delete_records("orders", 0, 30_000)
    assert pairs(orders, "orders") == []
    assert orders.append("orders", 0, numbered([1])).base_offset == 30_000


def test_offset_for_time_returns_the_first_record_that_is_not_older(log: Log) -> None:
    log.create_topic("orders")
    for times in ((5, 5, 9), (7,), (8, 20, 10)):
        for time in times:
            log.append("orders", 0, records((b"k", b"v"), at=time))
    expected = {0: (0, 5), 5: (0, 5), 6: (2, 9), 9: (2, 9), 10: (5, 20), 20: (5, 20)}
    for time, found in expected.items():
        assert log.offset_for_time("orders", 0, time) == OffsetAndTimestamp(*found)
    assert log.offset_for_time("orders", 0, 21) is None
    log.delete_records("orders", 0, 6)
    assert log.offset_for_time("orders", 0, 9) == OffsetAndTimestamp(6, 10)
    assert log.offset_for_time("orders", 0, 11) is None


def test_offset_for_time_searches_inside_a_batch(log: Log) -> None:
    log.create_topic("orders")
    batch = replace(numbered(range(1000)), timestamps=list(range(1000)))
    log.append("orders", 0, batch)
    assert log.offset_for_time("orders", 0, 777) == OffsetAndTimestamp(777, 777)
    log.delete_records("orders", 0, 800)
    assert log.offset_for_time("orders", 0, 777) == OffsetAndTimestamp(800, 800)


def test_verify_counts_the_records_of_an_intact_partition(orders: Log) -> None:
    assert orders.verify("orders", 0) == VerifyReport(records=30_000)
    assert orders.verify_metadata() == []
    with pytest.raises(UnknownTopic):
        orders.verify("nothing", 0)


def test_settled_offsets_cut_no_transaction(log: Log) -> None:
    log.create_topic("orders", 2)
    where = [TopicPartition("orders", 0), TopicPartition("orders", 1)]
    ended = threading.Event()

    def write() -> None:
        for number in range(60):
            with log.transaction() as transaction:
                for topic, partition in where:
                    transaction.append(topic, partition, records((b"k", b"%d" % number)))
        ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while True:
            is_last = ended.is_set()
            found = log.settled_offsets(where, timeout_s=60)
            zero, one = (
                values(log.read(*each, found[each].start, found[each].end)) for each in where
            )
            assert zero == one
            if is_last:
                break
    finally:
        writer.join()
    assert len(zero) == 60
