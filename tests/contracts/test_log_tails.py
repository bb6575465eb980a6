"""The contract of every log: readers that follow partitions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from contracts.conftest import LogUnderTest
from contracts.log_records import NOW, numbered
from penstock.log import Log, RecordColumns, TopicPartition
from penstock.log.base import TailReader
from penstock.log.errors import OffsetOutOfRange, UnknownTopic
from penstock.record import PartitionColumns

ALSO_WITH_PYTHON_CLIENTS = True
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
TIMEOUT_S = 60.0


@pytest.fixture
def tail(log: Log) -> Iterator[TailReader]:
    log.create_topic("orders", 2)
    reader = log.tail()
    yield reader
    reader.close()


class Collected:
    """The values that a reader has returned, by partition."""

    def __init__(self, reader: TailReader) -> None:
        self._reader = reader
        self.values: dict[TopicPartition, list[bytes | None]] = {}
        self.offsets: dict[TopicPartition, list[int]] = {}

    def poll(self, timeout: float = 0.2, max_records: int = 1000) -> list[PartitionColumns]:
        polled = self._reader.poll(timeout, max_records)
        for columns in polled:
            where = TopicPartition(columns.topic or "", columns.partition)
            self.values.setdefault(where, []).extend(columns.values)
            self.offsets.setdefault(where, []).extend(columns.offsets)
            assert len(columns) > 0
        return polled

    def poll_until(self, is_done: Callable[[], bool], max_records: int = 1000) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not is_done():
            assert time.monotonic() < deadline, self.values
            self.poll(max_records=max_records)


def numbers(*ranges: range) -> list[bytes]:
    return [b"%d" % number for one in ranges for number in one]


def test_tail_returns_the_records_of_each_partition_in_order(
    log: Log, tail: TailReader
) -> None:
    seen = Collected(tail)
    assert tail.poll(0.01, 100) == []
    log.append("orders", 0, numbered(range(100)))
    tail.add({P0: 10, P1: 0})
    seen.poll_until(lambda: len(seen.values.get(P0, [])) == 90)
    for start in range(100, 160, 10):
        log.append("orders", 0, numbered(range(start, start + 10)))
        log.append("orders", 1, numbered(range(start, start + 10)))
    seen.poll_until(lambda: sum(map(len, seen.values.values())) == 150 + 60)
    assert seen.values == {P0: numbers(range(10, 160)), P1: numbers(range(100, 160))}
    assert seen.offsets[P0] == list(range(10, 160))
    assert tail.position(P0) == 160


def test_tail_returns_keys_timestamps_and_headers(log: Log, tail: TailReader) -> None:
    log.append("orders", 0, RecordColumns(
        [None, b"", b"k"], [b"v", None, b""], [NOW, 0, NOW + 1],
        [(), (("a", b"1"), ("a", None)), ()],
    ))
    log.append("orders", 1, numbered([1]))
    tail.add({P0: 0, P1: 0})
    found: dict[int, PartitionColumns] = {}
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < 2:
        assert time.monotonic() < deadline
        found |= {columns.partition: columns for columns in tail.poll(0.2, 100)}
    columns = found[0]
    assert list(columns.keys) == [None, b"", b"k"]
    assert list(columns.values) == [b"v", None, b""]
    assert list(columns.timestamps) == [NOW, 0, NOW + 1]
    assert columns.headers is not None
    assert list(map(list, columns.headers)) == [[], [("a", b"1"), ("a", None)], []]
    assert found[1].headers is None
    assert (found[1].topic, list(found[1].offsets)) == ("orders", [0])


def test_log_append_time_is_the_timestamp_of_records(log: Log) -> None:
    log.create_topic("stamped", 1, {"message.timestamp.type": "LogAppendTime"})
    log.append("stamped", 0, numbered([1], at=5))
    reader = log.tail()
    reader.add({TopicPartition("stamped", 0): 0})
    deadline = time.monotonic() + TIMEOUT_S
    while not (polled := reader.poll(0.2, 10)):
        assert time.monotonic() < deadline
    assert polled[0].timestamps[0] >= NOW
    reader.close()


def test_max_records_limits_a_poll(log: Log, tail: TailReader) -> None:
    log.append("orders", 0, numbered(range(95)))
    tail.add({P0: 0})
    seen = Collected(tail)
    sizes = []

    def is_complete() -> bool:
        return len(seen.values.get(P0, [])) == 95

    deadline = time.monotonic() + TIMEOUT_S
    while not is_complete():
        assert time.monotonic() < deadline
        sizes += [len(columns) for columns in seen.poll(max_records=10)]
        assert tail.position(P0) == len(seen.values.get(P0, []))
    assert max(sizes) <= 10
    assert seen.values[P0] == numbers(range(95))


def test_position_counts_offsets_without_a_record(log: Log, tail: TailReader) -> None:
    """On Kafka the marker of a transaction has an offset."""
    with log.transaction() as transaction:
        transaction.append("orders", 0, numbered([1]))
        transaction.append("orders", 1, numbered([2]))
    log.append("orders", 0, numbered([3]))
    with log.transaction() as transaction:
        transaction.append("orders", 0, numbered([4]))
    tail.add({P0: 0, P1: 0})
    seen = Collected(tail)
    ends = {where: found.end for where, found in log.offsets([P0, P1]).items()}
    seen.poll_until(lambda: all(tail.position(where) == end for where, end in ends.items()))
    assert seen.values == {P0: [b"1", b"3", b"4"], P1: [b"2"]}
    assert seen.offsets[P0] == sorted(seen.offsets[P0])
    assert tail.is_at_end(P0)


def test_tail_skips_gaps(log: Log, tail: TailReader) -> None:
    log.append("orders", 0, numbered(range(10)))
    log.delete_records("orders", 0, 6)
    tail.add({P0: 6})
    seen = Collected(tail)
    seen.poll_until(lambda: tail.position(P0) == 10)
    assert seen.offsets[P0] == [6, 7, 8, 9]


def test_end_of_a_partition_is_reported(log: Log, tail: TailReader) -> None:
    log.append("orders", 0, numbered(range(20)))
    tail.add({P0: 0, P1: 0})
    assert not tail.is_at_end(P0)
    seen = Collected(tail)
    seen.poll_until(lambda: tail.is_at_end(P1))
    seen.poll_until(lambda: tail.is_at_end(P0), max_records=7)
    assert len(seen.values[P0]) == 20
    log.append("orders", 1, numbered([1]))
    seen.poll_until(lambda: P1 in seen.values)
    seen.poll_until(lambda: tail.is_at_end(P1))


def test_end_is_known_without_a_request(log: Log, tail: TailReader) -> None:
    log.append("orders", 0, numbered(range(100)))
    tail.add({P0: 10})
    assert tail.end(P0) == tail.position(P0) == 10, "nothing is fetched yet"
    seen = Collected(tail)
    seen.poll_until(lambda: tail.position(P0) > 10, max_records=5)
    assert tail.end(P0) == 100
    seen.poll_until(lambda: tail.is_at_end(P0))
    assert tail.end(P0) == tail.position(P0) == 100


def test_poll_returns_when_records_arrive(logs: LogUnderTest) -> None:
    log, other = logs.open(), logs.open()
    log.create_topic("orders", 2)
    reader = log.tail()
    reader.add({P0: 0})
    seen = Collected(reader)
    seen.poll_until(lambda: reader.is_at_end(P0))
    timer = threading.Timer(0.1, lambda: other.append("orders", 0, numbered([1])))
    timer.start()
    started = time.monotonic()
    while P0 not in seen.values:
        seen.poll(timeout=30)
    assert time.monotonic() - started < 20
    timer.join()
    reader.close()


def test_wake_ends_a_poll(log: Log, tail: TailReader) -> None:
    tail.add({P0: 0})
    Collected(tail).poll_until(lambda: tail.is_at_end(P0))
    timer = threading.Timer(0.1, tail.wake)
    timer.start()
    started = time.monotonic()
    assert tail.poll(30, 100) == []
    assert time.monotonic() - started < 20
    timer.join()
    tail.wake()
    assert tail.poll(30, 100) == []
    assert time.monotonic() - started < 20


def test_paused_partition_returns_nothing_until_it_is_resumed(
    log: Log, tail: TailReader
) -> None:
    log.append("orders", 0, numbered(range(50)))
    tail.add({P0: 0, P1: 0})
    seen = Collected(tail)
    seen.poll_until(lambda: P0 in seen.values, max_records=10)
    tail.pause([P0])
    before = list(seen.values[P0])
    position = tail.position(P0)
    log.append("orders", 0, numbered(range(50, 60)))
    log.append("orders", 1, numbered([1]))
    seen.poll_until(lambda: P1 in seen.values)
    assert seen.poll() == []
    assert seen.values[P0] == before
    assert tail.position(P0) == position
    tail.resume([P0])
    seen.poll_until(lambda: len(seen.values[P0]) == 60)
    assert seen.values[P0] == numbers(range(60))


def test_long_pause_loses_nothing(log: Log, tail: TailReader) -> None:
    """More records arrive during the pause than a reader holds."""
    tail.add({P0: 0, P1: 0})
    seen = Collected(tail)
    tail.pause([P0])
    for start in range(0, 60_000, 10_000):
        log.append("orders", 0, numbered(range(start, start + 10_000)))
        log.append("orders", 1, numbered(range(start, start + 10_000)))
    seen.poll_until(lambda: len(seen.values.get(P1, [])) == 60_000, max_records=50_000)
    assert P0 not in seen.values
    tail.resume([P0])
    seen.poll_until(lambda: len(seen.values.get(P0, [])) == 60_000)
    assert seen.values[P0] == numbers(range(60_000))


def test_partitions_can_be_removed_and_added_again(log: Log, tail: TailReader) -> None:
    log.append("orders", 0, numbered(range(30)))
    log.append("orders", 1, numbered(range(30)))
    tail.add({P0: 0})
    seen = Collected(tail)
    seen.poll_until(lambda: P0 in seen.values, max_records=10)
    tail.remove([P0])
    tail.add({P1: 20})
    seen.values.clear()
    seen.poll_until(lambda: len(seen.values.get(P1, [])) == 10)
    assert list(seen.values) == [P1]
    with pytest.raises(KeyError):
        tail.position(P0)
    assert not tail.is_at_end(P0)
    tail.remove([P0])
    tail.pause([TopicPartition("orders", 7)])
    tail.resume([TopicPartition("orders", 7)])
    tail.add({P0: 5})
    seen.poll_until(lambda: len(seen.values.get(P0, [])) == 25)
    assert seen.values == {P0: numbers(range(5, 30)), P1: numbers(range(20, 30))}


def test_partition_that_does_not_exist_is_refused(log: Log, tail: TailReader) -> None:
    def follow(where: TopicPartition) -> None:
        tail.add({where: 0})
        tail.poll(0.01, 1)

    for where in (TopicPartition("other", 0), TopicPartition("orders", 2)):
        with pytest.raises(UnknownTopic):
            follow(where)
        tail.remove([where])


def test_followed_partition_can_be_moved(log: Log, tail: TailReader) -> None:
    log.append("orders", 0, numbered(range(30)))
    tail.add({P0: 20})
    seen = Collected(tail)
    seen.poll_until(lambda: len(seen.values.get(P0, [])) == 10)
    tail.add({P0: 5})
    assert tail.position(P0) == 5
    seen.poll_until(lambda: len(seen.values[P0]) == 35)
    assert seen.values[P0] == numbers(range(20, 30), range(5, 30))


@pytest.mark.parametrize("position", [2, 11])
def test_position_out_of_range_raises(log: Log, tail: TailReader, position: int) -> None:
    log.append("orders", 0, numbered(range(10)))
    log.delete_records("orders", 0, 5)

    def follow() -> None:
        tail.add({P0: position})
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            tail.poll(0.2, 100)

    with pytest.raises(OffsetOutOfRange) as raised:
        follow()
    assert (raised.value.start, raised.value.end, raised.value.offset) == (5, 10, position)
    tail.remove([P0])
    tail.add({P0: 5})
    seen = Collected(tail)
    seen.poll_until(lambda: len(seen.values.get(P0, [])) == 5)


def test_records_beyond_a_poll_are_not_lost(log: Log, tail: TailReader) -> None:
    log.append("orders", 0, numbered(range(100)))
    log.append("orders", 1, numbered(range(100)))
    tail.add({P0: 0, P1: 0})
    seen = Collected(tail)
    seen.poll_until(lambda: len(seen.values.get(P0, [])) > 0, max_records=20)
    taken = len(seen.values[P0])
    assert tail.position(P0) == taken < 100
    assert not tail.is_at_end(P0)
    tail.pause([P0])
    seen.poll_until(lambda: len(seen.values.get(P1, [])) == 100, max_records=20)
    assert len(seen.values[P0]) == taken
    assert not tail.is_at_end(P0)
    tail.resume([P0])
    seen.poll_until(lambda: len(seen.values[P0]) == 100 and tail.is_at_end(P0), max_records=20)
    assert seen.values == {P0: numbers(range(100)), P1: numbers(range(100))}


def test_moved_partition_continues_at_the_new_offset(log: Log, tail: TailReader) -> None:
    log.append("orders", 0, numbered(range(100)))
    tail.add({P0: 0})
    first = Collected(tail)
    first.poll_until(lambda: len(first.values.get(P0, [])) > 0, max_records=10)
    tail.add({P0: 3})
    assert tail.position(P0) == 3
    again = Collected(tail)
    again.poll_until(lambda: len(again.values.get(P0, [])) == 97, max_records=10)
    assert again.values == {P0: numbers(range(3, 100))}
