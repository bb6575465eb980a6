"""Batch sizes: within their limits, and close to the target duration."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.plan.batch_size import BatchDuration, BatchLimits, BatchSize, fair_shares


def run(size: BatchSize, batches: int, overhead: float, per_record: float) -> list[int]:
    """Return the sizes of batches with this cost, while there is a backlog."""
    sizes = []
    for _ in range(batches):
        sizes.append(size.records)
        size.observe(size.records, BatchDuration(overhead + size.records * per_record))
    return sizes


def test_batches_grow_to_the_target_duration() -> None:
    sizes = run(BatchSize(BatchLimits()), 20, overhead=0.08, per_record=5e-6)
    assert sizes[0] == 40_000
    assert sizes[-1] * 5e-6 + 0.08 == pytest.approx(1.0, rel=0.02)


def test_batches_of_expensive_records_shrink() -> None:
    sizes = run(BatchSize(BatchLimits()), 20, overhead=0.08, per_record=1e-3)
    assert sizes[-1] * 1e-3 + 0.08 == pytest.approx(1.0, rel=0.05)


def test_large_overhead_extends_the_target_duration() -> None:
    sizes = run(BatchSize(BatchLimits(target_ms=100)), 30, overhead=0.4, per_record=1e-5)
    assert sizes[-1] * 1e-5 == pytest.approx(0.4, rel=0.05)


def test_slow_first_batch_does_not_shrink_later_ones() -> None:
    size = BatchSize(BatchLimits())
    size.observe(size.records, BatchDuration(12.0))
    assert run(size, 5, overhead=0.08, per_record=5e-6)[-1] > 150_000


def test_size_is_stable_under_noise() -> None:
    """Noise of 10% changes the size by at most 20%."""
    size = BatchSize(BatchLimits())
    run(size, 20, overhead=0.08, per_record=5e-6)
    found = size.records
    for number in range(50):
        noise = 1.1 if number % 2 else 0.9
        size.observe(size.records, BatchDuration((0.08 + size.records * 5e-6) * noise))
        assert found * 0.8 < size.records < found * 1.2


durations = st.builds(BatchDuration, st.floats(0, 100), st.floats(0, 100), st.booleans())


@given(st.lists(st.tuples(st.integers(0, 10**6), durations), max_size=40))
def test_size_stays_within_its_limits_and_grows_at_most_by_four(
    observed: list[tuple[int, BatchDuration]],
) -> None:
    size = BatchSize(BatchLimits(max_records=300_000))
    for records, duration in observed:
        before = size.records
        size.observe(records, duration)
        assert 100 <= size.records <= 300_000
        assert size.records <= max(before, 4 * records)


def test_first_batch_reads_the_backlog_up_to_a_conservative_rate() -> None:
    size = BatchSize(BatchLimits())
    assert size.shares({0: ("in", 7_000), 1: ("in", 9_000)}) == {0: 7_000, 1: 9_000}
    assert sum(size.shares(dict.fromkeys(range(4), ("in", 10 ** 6))).values()) == 40_000


def test_cold_batch_may_enlarge_the_next_one() -> None:
    """Batches do not become slower when the workers are warm."""
    size = BatchSize(BatchLimits())
    size.observe(40_000, BatchDuration(3.4, 3.0, is_cold=True))
    assert size.records == 100_000


def test_cold_workers_and_restored_stores_do_not_shrink_batches() -> None:
    """Two executors with four workers each. Spark takes an idle worker or starts another one, so
    new workers appear in several batches. The first task on each host restores its stores."""
    size = BatchSize(BatchLimits())
    start_up = (
        BatchDuration(9.1, 2.2, is_cold=True), BatchDuration(5.3, 1.9, is_cold=True),
        BatchDuration(3.8, 2.6), BatchDuration(4.0, 1.8, is_cold=True), BatchDuration(2.9, 2.1),
    )
    for duration in start_up:
        size.observe(size.records, duration)
        assert size.records >= 40_000
    assert run(size, 4, overhead=0.08, per_record=5e-6)[-1] == pytest.approx(184_000, rel=0.1)


def test_restores_that_never_end_are_measured_after_a_while() -> None:
    size = BatchSize(BatchLimits())
    for _ in range(20):
        seconds = 0.5 + size.records * 1e-4
        size.observe(size.records, BatchDuration(seconds * 2, seconds, is_cold=True))
    assert size.records == pytest.approx(5_000, rel=0.1)


#: Records and seconds of batches 5 to 19 of a run on two hosts, without preferred hosts and with
#: the whole duration taken for the cost of records. The next batches had 20,000, 65,000, 114,000
#: and 164,000 records.
RECORDED = (
    (3_789, 0.504), (4_428, 0.478), (5_245, 0.840), (5_515, 0.450), (6_550, 2.767), (4_286, 2.398),
    (3_362, 0.786), (3_483, 0.459), (3_842, 0.339), (4_403, 2.838), (3_151, 1.071), (3_115, 1.210),
    (3_010, 2.169), (3_649, 2.300), (4_999, 0.733),
)


def test_catch_ups_of_a_recorded_run_leave_batches_even() -> None:
    """That run did not measure catch-ups. They are taken to be what exceeds a usual batch of 0.2 s
    and 20 us for each record."""
    size = BatchSize(BatchLimits())
    sizes = []
    for records, seconds in ((0, 12.0), *RECORDED):
        preparation_s = seconds - (0.2 + records * 2e-5)
        sizes.append(size.records)
        usual_s = 0.2 + size.records * 2e-5
        size.observe(size.records, BatchDuration(usual_s + preparation_s, preparation_s))
    assert all(34_000 < each < 46_000 for each in sizes)


def test_catch_ups_are_not_taken_for_the_cost_of_records() -> None:
    """A lane that moves to another host reads its changelogs there."""
    size = BatchSize(BatchLimits())
    run(size, 10, overhead=0.1, per_record=2e-5)
    expected = size.records
    for number in range(12):
        seconds = 0.1 + size.records * 2e-5
        catch_up = (0.0, 4.0, 0.15)[number % 3]
        size.observe(size.records, BatchDuration(seconds + catch_up, catch_up))
        assert size.records == pytest.approx(expected, rel=0.05)


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
