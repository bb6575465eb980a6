from __future__ import annotations

import random

from penstock.log.kafka.client.column_buffer import ColumnBuffer, concatenate, slice_columns
from penstock.record import NO_HEADERS, Headers, PartitionColumns


def columns(offsets: list[int], *, headers: bool = False) -> PartitionColumns:
    return PartitionColumns(
        topic="orders", partition=1, offsets=offsets, timestamps=[10 * one for one in offsets],
        keys=[b"%d" % one for one in offsets], values=[None] * len(offsets),
        headers=[Headers([("n", b"%d" % one)]) for one in offsets] if headers else None,
    )


def test_records_are_taken_in_order_and_up_to_the_limits() -> None:
    buffer = ColumnBuffer()
    assert buffer.take(10) is None
    assert buffer.add(columns([0, 1, 4]), 0)
    assert buffer.add(columns([5, 8, 9], headers=True), 5)
    assert len(buffer) == 6
    first = buffer.take(2)
    assert first == columns([0, 1])
    assert buffer.take(10, 4) is None
    second = buffer.take(10, 8)
    assert second is not None
    assert (second.offsets, second.keys, second.timestamps) == ([4, 5], [b"4", b"5"], [40, 50])
    assert second.headers == [NO_HEADERS, (("n", b"5"),)]
    buffer.push_back(second)
    assert len(buffer) == 4
    rest = buffer.take(10)
    assert rest is not None
    assert rest.offsets == [4, 5, 8, 9]
    assert len(buffer) == 0


def test_records_that_were_fetched_before_are_dropped() -> None:
    buffer = ColumnBuffer()
    assert not buffer.add(columns([1, 2]), 3)
    assert buffer.add(columns([1, 2, 3, 7]), 3)
    assert buffer.take(10) == columns([3, 7])
    buffer.add(columns([8]), 8)
    buffer.clear()
    assert buffer.take(10) is None


def test_any_sequence_of_takes_returns_everything_once() -> None:
    rng = random.Random(7)
    for _ in range(200):
        buffer = ColumnBuffer()
        offsets = sorted(rng.sample(range(200), 60))
        start = 0
        while start < len(offsets):
            end = start + rng.randint(1, 20)
            buffer.add(columns(offsets[start:end], headers=rng.random() < 0.3), 0)
            start = end
        taken: list[PartitionColumns] = []
        while len(buffer):
            below = None if rng.random() < 0.5 else rng.randrange(220)
            part = buffer.take(rng.randint(1, 25), below)
            if part is None:
                continue
            keep = rng.randint(0, len(part))
            buffer.push_back(slice_columns(part, keep, len(part)))
            if keep:
                taken.append(slice_columns(part, 0, keep))
        assert concatenate(taken).offsets == offsets
