"""How many records a task processes between two looks at the clock."""

from __future__ import annotations

import pytest

from penstock.task import chunk_size
from penstock.task.chunk_size import TARGET_S, ChunkSize
from penstock.task.queue import CHUNK


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def process(size: ChunkSize, clock: Clock, cost_s: float) -> int:
    """Process a chunk of records of the same cost. Returns how many."""
    records = size.begin(0)
    clock.now += records * cost_s
    size.end(records)
    return records


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(chunk_size, "perf_counter", clock)
    return clock


def test_chunks_of_quick_records_become_large_soon(clock: Clock) -> None:
    size = ChunkSize()
    sizes = [process(size, clock, 4e-6) for _ in range(4)]
    assert sizes[0] < sizes[1] <= sizes[2] == sizes[3] == CHUNK


@pytest.mark.parametrize(("cost_s", "records"), [(TARGET_S / 100, 100), (60.0, 1)])
def test_chunks_of_slow_records_take_the_target(
    clock: Clock, cost_s: float, records: int
) -> None:
    size = ChunkSize()
    for _ in range(4):
        process(size, clock, cost_s)
    assert process(size, clock, cost_s) == pytest.approx(records, abs=1)


def test_one_slow_chunk_is_forgotten(clock: Clock) -> None:
    size = ChunkSize()
    for cost_s in (4e-6, 4e-6, 4e-6, 10.0):
        process(size, clock, cost_s)
    assert size.records == 1
    for _ in range(5):
        process(size, clock, 4e-6)
    assert size.records == CHUNK


def test_chunk_without_a_record_is_no_measurement_of_zero(clock: Clock) -> None:
    size = ChunkSize()
    size.begin(0)
    size.end(0)
    assert size.records >= 1
