"""The life cycle: the table of transitions, refused transitions, and the state listener."""

from __future__ import annotations

import threading
from itertools import pairwise

import pytest

from penstock.engine.lifecycle import TRANSITIONS, IllegalTransition, LifeCycle, State

#: The transitions of KafkaStreams.State in Kafka 4.3.0, by ordinals.
KAFKA_TRANSITIONS = {
    0: {1, 3}, 1: {2, 3, 5}, 2: {1, 2, 3, 5}, 3: {4}, 4: set(), 5: {6}, 6: set(),
}
#: State -> the transitions that lead to it.
PATHS = {
    State.CREATED: [],
    State.REBALANCING: [State.REBALANCING],
    State.RUNNING: [State.REBALANCING, State.RUNNING],
    State.PENDING_SHUTDOWN: [State.PENDING_SHUTDOWN],
    State.NOT_RUNNING: [State.PENDING_SHUTDOWN, State.NOT_RUNNING],
    State.PENDING_ERROR: [State.REBALANCING, State.PENDING_ERROR],
    State.ERROR: [State.REBALANCING, State.PENDING_ERROR, State.ERROR],
}


def lifecycle_in(state: State) -> LifeCycle:
    lifecycle = LifeCycle("app", clock=lambda: 3_723_500)
    for step in PATHS[state]:
        lifecycle.transition_to(step)
    assert lifecycle.state is state
    return lifecycle


def test_transitions_are_those_of_kafka_streams() -> None:
    states = list(State)
    assert {
        states.index(old): {states.index(new) for new in new_ones}
        for old, new_ones in TRANSITIONS.items()
    } == KAFKA_TRANSITIONS


@pytest.mark.parametrize("new", State)
@pytest.mark.parametrize("old", State)
def test_only_transitions_of_the_table_are_allowed(old: State, new: State) -> None:
    lifecycle = lifecycle_in(old)
    if new in TRANSITIONS[old]:
        lifecycle.transition_to(new)
        assert lifecycle.state is new
    else:
        assert not lifecycle.try_transition_to(new)
        with pytest.raises(IllegalTransition):
            lifecycle.transition_to(new)
        assert lifecycle.state is old


def test_refused_transition_reports_the_history() -> None:
    lifecycle = LifeCycle("orders", clock=lambda: 3_723_500)
    lifecycle.transition_to(State.REBALANCING)
    lifecycle.transition_to(State.PENDING_ERROR, "ValueError: failed")
    with pytest.raises(IllegalTransition) as refused:
        lifecycle.transition_to(State.RUNNING)
    assert str(refused.value) == (
        "Application 'orders' cannot become RUNNING: it is PENDING_ERROR.\n"
        "State history:\n"
        "  01:02:03.500Z  CREATED\n"
        "  01:02:03.500Z  REBALANCING\n"
        "  01:02:03.500Z  PENDING_ERROR (ValueError: failed)"
    )


def test_history_keeps_only_the_last_states() -> None:
    lifecycle = lifecycle_in(State.RUNNING)
    for number in range(100):
        lifecycle.transition_to(State.RUNNING, f"replaced {number}")
    assert len(lifecycle.history().splitlines()) == 1 + LifeCycle.HISTORY
    assert "replaced 99" in lifecycle.history()


def test_listener_receives_the_new_and_the_old_state() -> None:
    received: list[tuple[State, State]] = []
    lifecycle = LifeCycle("app", listener=lambda new, old: received.append((new, old)))
    for step in PATHS[State.ERROR]:
        lifecycle.transition_to(step)
    assert received == [
        (State.REBALANCING, State.CREATED), (State.PENDING_ERROR, State.REBALANCING),
        (State.ERROR, State.PENDING_ERROR),
    ]


def test_failing_listener_does_not_prevent_the_transition(caplog: pytest.LogCaptureFixture) -> None:
    def broken(new: State, old: State) -> None:
        raise ValueError("failed")

    lifecycle = LifeCycle("app", listener=broken)
    lifecycle.transition_to(State.REBALANCING)
    assert lifecycle.state is State.REBALANCING
    assert "The state listener failed on REBALANCING after CREATED." in caplog.text


def test_listener_can_change_the_state() -> None:
    lifecycle = LifeCycle("app")
    lifecycle.listener = lambda new, old: (
        new is State.RUNNING and lifecycle.transition_to(State.PENDING_SHUTDOWN)
    )
    lifecycle.transition_to(State.REBALANCING)
    lifecycle.transition_to(State.RUNNING)
    assert lifecycle.state is State.PENDING_SHUTDOWN


def test_listener_receives_the_changes_of_many_threads_in_order() -> None:
    received: list[tuple[State, State]] = []
    lifecycle = lifecycle_in(State.RUNNING)
    lifecycle.listener = lambda new, old: received.append((old, new))

    def alternate() -> None:
        for _ in range(200):
            lifecycle.try_transition_to(State.REBALANCING)
            lifecycle.try_transition_to(State.RUNNING)

    threads = [threading.Thread(target=alternate) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(180)
    assert len(received) > 200
    assert all(before[1] is after[0] for before, after in pairwise(received))


def test_wait_until_returns_when_the_state_matches() -> None:
    lifecycle = lifecycle_in(State.RUNNING)
    assert lifecycle.wait_until(lambda state: state is State.RUNNING, 0)
    assert not lifecycle.wait_until(lambda state: state.has_ended, 0.01)
    waiter = threading.Thread(
        target=lambda: lifecycle.wait_until(lambda state: state.has_ended, 60)
    )
    waiter.start()
    lifecycle.transition_to(State.PENDING_SHUTDOWN)
    lifecycle.transition_to(State.NOT_RUNNING)
    waiter.join(180)
    assert not waiter.is_alive()
