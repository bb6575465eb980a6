"""Nothing depends on where a batch was cut, or on whether work was lost and done again.

The topologies and inputs are the random ones of the conformance cases; where what happens is chosen
by hypothesis.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conformance.cases import Case
from conformance.compare import EVERYTHING, first_difference
from conformance.runner import Answer
from properties.play import can_be_restored, has_hops, play, random_cases, sample
from properties.play import without_times_of_day as timeless

CASES = random_cases()
RESTORABLE = [case for case in CASES if can_be_restored(case)]
#: What does not depend on when commits are. A suppress buffer logs a key once a commit.
LASTING = ("output", "stores", "internal_stores", "dropped", "branches")

Happenings = dict[int, tuple[str, ...]]

property_test = settings(
    max_examples=150, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@st.composite
def played(
    draw: st.DrawFn, cases: list[Case], *choices: tuple[str, ...]
) -> tuple[Case, Happenings]:
    """A case, and what happens after each of its events: one of the choices, or nothing."""
    case = draw(st.sampled_from(cases))
    happening = st.sampled_from([(), (), *choices])
    events = len(case["input"])
    chosen = draw(st.lists(happening, min_size=events, max_size=events))
    return case, {index: what for index, what in enumerate(chosen) if what}


def difference(expected: dict[str, Any], answer: Answer, parts: tuple[str, ...]) -> str | None:
    return first_difference({"expect": expected}, answer, parts)


@property_test
@given(played(sample(CASES, 200, 1), ("new_batch",)))
def test_a_batch_can_be_cut_anywhere(drawn: tuple[Case, Happenings]) -> None:
    case, happenings = drawn
    parts = tuple(part for part in EVERYTHING if part not in {"describe", "observed", "printed"})
    assert difference(case["expect"], play(case, happenings), parts) is None


@property_test
@given(played(sample(RESTORABLE, 200, 2), ("crash",), ("new_batch",), ("crash", "crash")))
def test_a_crash_after_a_commit_changes_nothing(drawn: tuple[Case, Happenings]) -> None:
    case, happenings = drawn
    parts = tuple(part for part in EVERYTHING if part not in {"describe", "observed", "printed"})
    assert difference(case["expect"], play(case, happenings), parts) is None


@property_test
@given(played(sample(RESTORABLE, 200, 3), ("crash",), ("commit",), ("commit", "crash")))
def test_work_that_is_lost_is_done_again(drawn: tuple[Case, Happenings]) -> None:
    case, happenings = drawn
    commits = {
        index: tuple(each for each in what if each == "commit")
        for index, what in happenings.items()
    }
    lost = play(case, happenings, auto_commit=False)
    lost.found = timeless(lost.found)
    undisturbed = timeless(play(case, commits, auto_commit=False).found)
    assert difference(undisturbed, lost, LASTING) is None
    if not has_hops(case):
        assert difference(timeless(case["expect"]), lost, LASTING) is None


@property_test
@given(played(
    sample(RESTORABLE, 200, 4), ("crash",), ("commit",), ("new_batch",), ("commit", "crash")
))
def test_work_that_is_lost_is_done_again_by_several_tasks(drawn: tuple[Case, Happenings]) -> None:
    case, happenings = drawn
    commits = {
        index: tuple("commit" for each in what if each != "crash")
        for index, what in happenings.items()
    }
    undisturbed = play(case, commits, auto_commit=False, partitions=2).found
    lost = play(case, happenings, auto_commit=False, partitions=2)
    assert difference(undisturbed, lost, LASTING) is None
