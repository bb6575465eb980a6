"""Blocks between tasks arrive unchanged, in an order that is the same in every run."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa

from penstock.engine.worker.blocks import Block, ConsumedBlock, encode_block, shuffled_ranges
from penstock.engine.worker.origins import OriginColumns, ShuffleOrigins
from penstock.engine.worker.record_groups import group_records
from penstock.record import NO_HEADERS, Headers, TaskId

SOME = Headers((("a", b"1"),))
TARGET = TaskId(1, 2)


def block(sender: TaskId, *rows: tuple[str, int], headers: Headers = NO_HEADERS) -> Block:
    """A block of (value, timestamp) rows from `sender`."""
    written = [("topic", 2, b"k", value.encode(), time, headers) for value, time in rows]
    origins = OriginColumns(
        (("in", sender.partition),), pa.array([0] * len(rows), pa.int32()),
        pa.array(range(100, 100 + len(rows)), pa.int64()),
    )
    ((_, records),) = group_records(written, running_maximum=True, origins=origins).groups()
    return Block.read(encode_block(sender, 7, TARGET, "topic", records, origins.sources))


def values(ranges: Any) -> list[str]:
    (found,) = ranges.values()
    return [value.decode() for value in found.records.values]


def test_block_names_its_sender_and_receiver() -> None:
    sent = block(TaskId(0, 1), ("x", 5), ("y", 6))
    assert sent.header[:5] == (TaskId(0, 1), 7, TARGET, "topic", 2)
    assert sent.consumed == ConsumedBlock(TaskId(0, 1), 7, "topic", 2)


def test_records_of_one_sender_keep_their_order() -> None:
    ranges = shuffled_ranges(TARGET, [block(TaskId(0, 0), ("x", 9), ("y", 3), ("z", 5))], {})
    (found,) = ranges.values()
    assert list(ranges) == [("topic", 2)]
    assert values(ranges) == ["x", "y", "z"]
    assert list(found.records.timestamps) == [9, 3, 5]
    assert found.whole
    assert not found.cut
    assert found.records.headers is None


def test_senders_are_merged_by_their_running_maximum_of_timestamps() -> None:
    found = shuffled_ranges(TARGET, [
        block(TaskId(0, 1), ("b4", 4), ("b1", 1), ("b6", 6)),
        block(TaskId(0, 0), ("a2", 2), ("a4", 4), ("a5", 5), ("a9", 9)),
    ], {})
    assert values(found) == ["a2", "a4", "b4", "b1", "a5", "b6", "a9"]


def test_order_is_independent_of_the_order_of_arrival() -> None:
    draw = random.Random(3)
    blocks = [
        block(TaskId(0, n), *[(f"{n}-{m}", draw.randrange(20)) for m in range(30)],
              headers=SOME if n % 2 else NO_HEADERS)
        for n in range(12)
    ]
    first = shuffled_ranges(TARGET, blocks, {})
    for _ in range(5):
        draw.shuffle(blocks)
        assert shuffled_ranges(TARGET, blocks, {}) == first


def test_headers_stay_with_their_records() -> None:
    ranges = shuffled_ranges(TARGET, [
        block(TaskId(0, 1), ("b", 1), headers=SOME), block(TaskId(0, 0), ("a", 2)),
    ], {})
    (found,) = ranges.values()
    assert values(ranges) == ["b", "a"]
    assert found.records.headers == [SOME, NO_HEADERS]


def test_offsets_continue_from_earlier_batches() -> None:
    sent = block(TaskId(0, 1), ("x", 5), ("y", 6))
    (found,) = shuffled_ranges(TARGET, [sent], {"topic": 40, "other": 7}).values()
    assert list(found.records.offsets) == [40, 41]


def test_origins_follow_the_records_of_several_senders() -> None:
    first = block(TaskId(0, 0), ("a", 1), ("d", 4))
    second = block(TaskId(0, 1), ("b", 2), ("c", 3))
    (found,) = shuffled_ranges(TARGET, [second, first], {}).values()
    origins = found.records.origins
    assert isinstance(origins, ShuffleOrigins)
    assert [value.decode() for value in found.records.values] == ["a", "b", "c", "d"]
    positions = [origins.position(index) for index in range(4)]
    assert positions == [("in", 0, 100), ("in", 1, 100), ("in", 1, 101), ("in", 0, 101)]
    taken = origins.take([3, 1])
    assert [
        (*taken.sources[number], offset) for number, offset in
        zip(taken.numbers.to_pylist(), taken.offsets.to_pylist(), strict=True)
    ] == [positions[3], positions[1]]
