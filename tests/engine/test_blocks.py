"""Blocks between tasks: what arrives is what was sent, in an order that every run gives."""

from __future__ import annotations

import random
from typing import Any

from penstock.engine.worker.blocks import Block, ConsumedBlock, encode_block, shuffled_ranges
from penstock.engine.worker.record_groups import group_records
from penstock.record import NO_HEADERS, Headers, TaskId

SOME = Headers((("a", b"1"),))
TARGET = TaskId(1, 2)


def block(sender: TaskId, *rows: tuple[str, int], headers: Headers = NO_HEADERS) -> Block:
    """A block of (value, timestamp) that `sender` wrote."""
    written = [("topic", 2, b"k", value.encode(), time, headers) for value, time in rows]
    ((_, records),) = group_records(written, running_maximum=True).groups()
    return Block.read(encode_block(sender, 7, TARGET, "topic", records))


def values(found: Any) -> list[str]:
    (records,) = found.values()
    return [value.decode() for value in records.records.values]


def test_a_block_says_whose_it_is() -> None:
    sent = block(TaskId(0, 1), ("x", 5), ("y", 6))
    assert sent.header[:5] == (TaskId(0, 1), 7, TARGET, "topic", 2)
    assert sent.consumed == ConsumedBlock(TaskId(0, 1), 7, "topic", 2)


def test_the_records_of_one_sender_keep_their_order() -> None:
    found = shuffled_ranges(TARGET, [block(TaskId(0, 0), ("x", 9), ("y", 3), ("z", 5))], {})
    (records,) = found.values()
    assert list(found) == [("topic", 2)]
    assert values(found) == ["x", "y", "z"]
    assert list(records.records.timestamps) == [9, 3, 5]
    assert records.whole
    assert not records.cut
    assert records.records.headers is None


def test_senders_are_merged_by_the_largest_time_they_had_sent() -> None:
    found = shuffled_ranges(TARGET, [
        block(TaskId(0, 1), ("b4", 4), ("b1", 1), ("b6", 6)),
        block(TaskId(0, 0), ("a2", 2), ("a4", 4), ("a5", 5), ("a9", 9)),
    ], {})
    assert values(found) == ["a2", "a4", "b4", "b1", "a5", "b6", "a9"]


def test_the_order_does_not_depend_on_the_order_of_arrival() -> None:
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
    found = shuffled_ranges(TARGET, [
        block(TaskId(0, 1), ("b", 1), headers=SOME), block(TaskId(0, 0), ("a", 2)),
    ], {})
    (records,) = found.values()
    assert values(found) == ["b", "a"]
    assert records.records.headers == [SOME, NO_HEADERS]


def test_offsets_go_on_from_the_batches_before() -> None:
    sent = block(TaskId(0, 1), ("x", 5), ("y", 6))
    (records,) = shuffled_ranges(TARGET, [sent], {"topic": 40, "other": 7}).values()
    assert list(records.records.offsets) == [40, 41]
