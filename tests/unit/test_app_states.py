"""The states of an application: the table, refusals with their history, and the listener."""

from __future__ import annotations

import threading
from itertools import pairwise

import pytest

from penstock.engine.lifecycle import FOLLOWING, LifeCycle, RefusedTransition, State

#: Kafka's own table, by ordinals: KafkaStreams.State of 4.3.0.
KAFKAS = {
    0: {1, 3}, 1: {2, 3, 5}, 2: {1, 2, 3, 5}, 3: {4}, 4: set(), 5: {6}, 6: set(),
}
#: A way to every state.
WAYS = {
    State.CREATED: [],
    State.REBALANCING: [State.REBALANCING],
    State.RUNNING: [State.REBALANCING, State.RUNNING],
    State.PENDING_SHUTDOWN: [State.PENDING_SHUTDOWN],
    State.NOT_RUNNING: [State.PENDING_SHUTDOWN, State.NOT_RUNNING],
    State.PENDING_ERROR: [State.REBALANCING, State.PENDING_ERROR],
    State.ERROR: [State.REBALANCING, State.PENDING_ERROR, State.ERROR],
}


def at(state: State) -> LifeCycle:
    life = LifeCycle("app", clock=lambda: 3723.5)
    for step in WAYS[state]:
        life.to(step)
    assert life.state is state
    return life


def test_the_table_is_kafkas() -> None:
    states = list(State)
    assert {
        states.index(old): {states.index(new) for new in new_ones}
        for old, new_ones in FOLLOWING.items()
    } == KAFKAS


@pytest.mark.parametrize("new", State)
@pytest.mark.parametrize("old", State)
def test_only_what_the_table_allows_can_follow(old: State, new: State) -> None:
    life = at(old)
    if new in FOLLOWING[old]:
        life.to(new)
        assert life.state is new
    else:
        assert not life.try_to(new)
        with pytest.raises(RefusedTransition):
            life.to(new)
        assert life.state is old


def test_a_refused_transition_tells_the_history() -> None:
    life = LifeCycle("orders", clock=lambda: 3723.5)
    life.to(State.REBALANCING)
    life.to(State.PENDING_ERROR, "ValueError: oh")
    with pytest.raises(RefusedTransition) as refused:
        life.to(State.RUNNING)
    assert str(refused.value) == (
        "Application 'orders' cannot become RUNNING: it is PENDING_ERROR.\n"
        "The states so far:\n"
        "  01:02:03.500Z  CREATED\n"
        "  01:02:03.500Z  REBALANCING\n"
        "  01:02:03.500Z  PENDING_ERROR (ValueError: oh)"
    )


def test_the_history_keeps_the_last_states_only() -> None:
    life = at(State.RUNNING)
    for number in range(100):
        life.to(State.RUNNING, f"replaced {number}")
    assert len(life.story().splitlines()) == 1 + LifeCycle.HISTORY
    assert "replaced 99" in life.story()


def test_the_listener_hears_new_and_old() -> None:
    heard: list[tuple[State, State]] = []
    life = LifeCycle("app", listener=lambda new, old: heard.append((new, old)))
    for step in WAYS[State.ERROR]:
        life.to(step)
    assert heard == [
        (State.REBALANCING, State.CREATED), (State.PENDING_ERROR, State.REBALANCING),
        (State.ERROR, State.PENDING_ERROR),
    ]


def test_a_listener_that_fails_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def broken(new: State, old: State) -> None:
        raise ValueError("oh")

    life = LifeCycle("app", listener=broken)
    life.to(State.REBALANCING)
    assert life.state is State.REBALANCING
    assert "The state listener failed on REBALANCING after CREATED." in caplog.text


def test_a_listener_may_change_the_state_itself() -> None:
    life = LifeCycle("app")
    life.listener = lambda new, old: new is State.RUNNING and life.to(State.PENDING_SHUTDOWN)
    life.to(State.REBALANCING)
    life.to(State.RUNNING)
    assert life.state is State.PENDING_SHUTDOWN


def test_the_listener_hears_changes_of_many_threads_in_order() -> None:
    heard: list[tuple[State, State]] = []
    life = at(State.RUNNING)
    life.listener = lambda new, old: heard.append((old, new))

    def swing() -> None:
        for _ in range(200):
            life.try_to(State.REBALANCING)
            life.try_to(State.RUNNING)

    threads = [threading.Thread(target=swing) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(heard) > 200
    assert all(before[1] is after[0] for before, after in pairwise(heard))


def test_waiting_for_a_state() -> None:
    life = at(State.RUNNING)
    assert life.wait_until(lambda state: state is State.RUNNING, 0)
    assert not life.wait_until(lambda state: state.has_ended, 0.01)
    waiter = threading.Thread(target=lambda: life.wait_until(lambda state: state.has_ended, 60))
    waiter.start()
    life.to(State.PENDING_SHUTDOWN)
    life.to(State.NOT_RUNNING)
    waiter.join(60)
    assert not waiter.is_alive()
