"""Batch sizes: within their limits, and close to the target duration."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.plan.batch_size import BatchLimits, BatchSize, fair_shares


def run(size: BatchSize, batches: int, overhead: float, per_record: float) -> list[int]:
    """Return the sizes of batches with this cost, while there is a backlog."""
    sizes = []
    for _ in range(batches):
        sizes.append(size.records)
        size.observe(size.records, overhead + size.records * per_record)
    return sizes


def test_batches_grow_to_the_target_duration() -> None:
    sizes = run(BatchSize(BatchLimits()), 20, overhead=0.08, per_record=5e-6)
    assert sizes[0] == 10_000
    assert sizes[-1] * 5e-6 + 0.08 == pytest.approx(1.0, rel=0.02)


def test_batches_of_expensive_records_shrink() -> None:
    sizes = run(BatchSize(BatchLimits()), 20, overhead=0.08, per_record=1e-3)
    assert sizes[-1] * 1e-3 + 0.08 == pytest.approx(1.0, rel=0.05)


def test_large_overhead_extends_the_target_duration() -> None:
    sizes = run(BatchSize(BatchLimits(target_ms=100)), 30, overhead=0.4, per_record=1e-5)
    assert sizes[-1] * 1e-5 == pytest.approx(0.4, rel=0.05)


def test_slow_first_batch_does_not_shrink_later_ones() -> None:
    size = BatchSize(BatchLimits())
    size.observe(size.records, 12.0)
    assert run(size, 5, overhead=0.08, per_record=5e-6)[-1] > 150_000


def test_size_is_stable_under_noise() -> None:
    """Noise of 10% changes the size by at most 20%."""
    size = BatchSize(BatchLimits())
    run(size, 20, overhead=0.08, per_record=5e-6)
    found = size.records
    for number in range(50):
        noise = 1.1 if number % 2 else 0.9
        size.observe(size.records, (0.08 + size.records * 5e-6) * noise)
        assert found * 0.8 < size.records < found * 1.2


@given(st.lists(st.tuples(st.integers(0, 10**6), st.floats(0, 100)), max_size=40))
def test_size_stays_within_its_limits(
    observed: list[tuple[int, float]],
) -> None:
    size = BatchSize(BatchLimits(max_records=300_000))
    for records, seconds in observed:
        size.observe(records, seconds)
        assert 100 <= size.records <= 300_000


@given(st.dictionaries(st.integers(0, 9), st.integers(0, 1000), max_size=6), st.integers(0, 2000))
def test_shares_are_fair(requested: dict[int, int], budget: int) -> None:
    shares = fair_shares(requested, budget)
    assert sum(shares.values()) == min(sum(requested.values()), budget) or (
        sum(shares.values()) > budget - len(requested)
    )
    for at, share in shares.items():
        assert share <= requested[at]
        # A share that was reduced is not smaller than any other, except for rounding.
        if share < requested[at]:
            assert share >= max(shares.values()) - 1
