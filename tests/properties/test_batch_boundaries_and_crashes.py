"""Results depend neither on batch boundaries nor on crashes.

The topologies and inputs are the generated conformance cases. Hypothesis chooses an action after
each event: a new batch, a commit, or a crash.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conformance.cases import Case
from conformance.compare import EVERYTHING, first_difference
from conformance.runner import CaseResult
from properties.case_run import (
    can_be_restored,
    has_hops,
    random_cases,
    run_with_actions,
    sample,
    without_event_indices,
)

CASES = random_cases()
RESTORABLE = [case for case in CASES if can_be_restored(case)]
#: The parts that do not depend on commits. A suppress buffer logs a key once for each commit.
INDEPENDENT = ("output", "stores", "internal_stores", "dropped", "branches")

Actions = dict[int, tuple[str, ...]]

property_test = settings(
    max_examples=150, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@st.composite
def case_with_actions(
    draw: st.DrawFn, cases: list[Case], *choices: tuple[str, ...]
) -> tuple[Case, Actions]:
    """A case and the actions after each of its events: one of the choices, or none."""
    case = draw(st.sampled_from(cases))
    action = st.sampled_from([(), (), *choices])
    events = len(case["input"])
    chosen = draw(st.lists(action, min_size=events, max_size=events))
    return case, {index: actions for index, actions in enumerate(chosen) if actions}


def difference(expected: dict[str, Any], result: CaseResult, parts: tuple[str, ...]) -> str | None:
    return first_difference({"expect": expected}, result, parts)


@property_test
@given(case_with_actions(sample(CASES, 200, 1), ("new_batch",)))
def test_results_do_not_depend_on_batch_boundaries(drawn: tuple[Case, Actions]) -> None:
    case, actions = drawn
    parts = tuple(part for part in EVERYTHING if part not in {"describe", "observed", "printed"})
    assert difference(case["expect"], run_with_actions(case, actions), parts) is None


@property_test
@given(case_with_actions(
    sample(RESTORABLE, 200, 2), ("crash",), ("new_batch",), ("crash", "crash")
))
def test_crash_after_a_commit_changes_nothing(drawn: tuple[Case, Actions]) -> None:
    case, actions = drawn
    parts = tuple(part for part in EVERYTHING if part not in {"describe", "observed", "printed"})
    assert difference(case["expect"], run_with_actions(case, actions), parts) is None


@property_test
@given(case_with_actions(sample(RESTORABLE, 200, 3), ("crash",), ("commit",), ("commit", "crash")))
def test_lost_work_is_repeated(drawn: tuple[Case, Actions]) -> None:
    case, actions = drawn
    commits = {
        index: tuple(each for each in done if each == "commit")
        for index, done in actions.items()
    }
    lost = run_with_actions(case, actions, auto_commit=False)
    lost.found = without_event_indices(lost.found)
    reference = without_event_indices(run_with_actions(case, commits, auto_commit=False).found)
    assert difference(reference, lost, INDEPENDENT) is None
    if not has_hops(case):
        assert difference(without_event_indices(case["expect"]), lost, INDEPENDENT) is None


@property_test
@given(case_with_actions(
    sample(RESTORABLE, 200, 4), ("crash",), ("commit",), ("new_batch",), ("commit", "crash")
))
def test_lost_work_of_several_tasks_is_repeated(drawn: tuple[Case, Actions]) -> None:
    case, actions = drawn
    commits = {
        index: tuple("commit" for each in done if each != "crash")
        for index, done in actions.items()
    }
    reference = run_with_actions(case, commits, auto_commit=False, partitions=2).found
    lost = run_with_actions(case, actions, auto_commit=False, partitions=2)
    assert difference(reference, lost, INDEPENDENT) is None
