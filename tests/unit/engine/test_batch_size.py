"""How large batches become: within their bounds, and about as long as is wanted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.plan.batch_size import BatchLimits, BatchSize, fair_shares


def run(size: BatchSize, batches: int, overhead: float, each: float) -> list[int]:
    """The sizes of batches that cost what is said, with more to read than they take."""
    sizes = []
    for _ in range(batches):
        sizes.append(size.records)
        size.observe(size.records, overhead + size.records * each)
    return sizes


def test_batches_grow_until_they_last_as_long_as_is_wanted() -> None:
    sizes = run(BatchSize(BatchLimits()), 20, overhead=0.08, each=5e-6)
    assert sizes[0] == 10_000
    assert sizes[-1] * 5e-6 + 0.08 == pytest.approx(1.0, rel=0.02)


def test_batches_of_dear_records_shrink() -> None:
    sizes = run(BatchSize(BatchLimits()), 20, overhead=0.08, each=1e-3)
    assert sizes[-1] * 1e-3 + 0.08 == pytest.approx(1.0, rel=0.05)


def test_where_starting_a_batch_costs_more_than_is_wanted_it_works_as_long_as_that() -> None:
    sizes = run(BatchSize(BatchLimits(target_ms=100)), 30, overhead=0.4, each=1e-5)
    assert sizes[-1] * 1e-5 == pytest.approx(0.4, rel=0.05)


def test_a_first_batch_that_waits_for_workers_makes_no_later_one_small() -> None:
    size = BatchSize(BatchLimits())
    size.observe(size.records, 12.0)
    assert run(size, 5, overhead=0.08, each=5e-6)[-1] > 150_000


def test_the_size_does_not_swing_once_it_is_found() -> None:
    """Noise of a tenth either way moves the size by no more than twice that."""
    size = BatchSize(BatchLimits())
    run(size, 20, overhead=0.08, each=5e-6)
    found = size.records
    for number in range(50):
        noise = 1.1 if number % 2 else 0.9
        size.observe(size.records, (0.08 + size.records * 5e-6) * noise)
        assert found * 0.8 < size.records < found * 1.2


@given(st.lists(st.tuples(st.integers(0, 10**6), st.floats(0, 100)), max_size=40))
def test_the_size_stays_within_its_bounds_whatever_happens(
    observed: list[tuple[int, float]],
) -> None:
    size = BatchSize(BatchLimits(max_records=300_000))
    for records, seconds in observed:
        size.observe(records, seconds)
        assert 100 <= size.records <= 300_000


@given(st.dictionaries(st.integers(0, 9), st.integers(0, 1000), max_size=6), st.integers(0, 2000))
def test_shares_are_fair(wanted: dict[int, int], budget: int) -> None:
    shares = fair_shares(wanted, budget)
    assert sum(shares.values()) == min(sum(wanted.values()), budget) or (
        sum(shares.values()) > budget - len(wanted)
    )
    for at, share in shares.items():
        assert share <= wanted[at]
        # Whoever wanted more got no less than anyone else, but for rounding.
        if share < wanted[at]:
            assert share >= max(shares.values()) - 1
