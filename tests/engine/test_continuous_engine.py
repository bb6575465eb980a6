"""The driver of continuous mode, with lanes that the test plays: who gets which task, and when."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from penstock import Serdes, StreamsBuilder, StreamsConfig
from penstock.engine.continuous import lane_pool
from penstock.engine.continuous.engine import ContinuousEngine
from penstock.engine.continuous.lane_handle import LaneStatus, WorkerLost
from penstock.engine.continuous.lane_observer import LaneObserver
from penstock.engine.continuous.lane_starter import OnConnection, OnEnded
from penstock.engine.continuous.messages import (
    Alive,
    Committed,
    Ended,
    Grant,
    Hello,
    Lag,
    PartitionLag,
    Ready,
    Release,
    Released,
    Restoring,
    Running,
    Start,
    Stop,
    decode_from_driver,
    encode,
)
from penstock.engine.packaging.failure import Failure
from penstock.engine.plan.task_records import TaskRecord
from penstock.engine.worker.outcome import (
    RestoredStore,
    RestoringStore,
    TaskOutcome,
    encode_outcome,
)
from penstock.errors import StreamsException
from penstock.log import Log, open_log
from penstock.log.errors import Fenced, LogBusy
from penstock.record import TaskId

PARTITIONS = 4
DEADLINE_S = 30.0


class PlayedLanes:
    """A `LaneStarter` whose lanes are connections in the hands of the test."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.leaving: frozenset[int] = frozenset()
        self.connections: dict[int, Connection] = {}
        self.cancelled: list[int] = []
        self.on_connection: OnConnection = lambda connection: None
        self.on_ended: OnEnded = lambda serial, error: None

    def open(self, *arguments: Any) -> PlayedLanes:
        *_, self.on_connection, self.on_ended = arguments
        return self

    def start(self, serial: int) -> None:
        ours, self.connections[serial] = Pipe()
        self.on_connection(ours)

    def cancel(self, serial: int) -> None:
        self.cancelled.append(serial)

    def close(self) -> None:
        for connection in self.connections.values():
            connection.close()


class ObserverCalls(LaneObserver):
    """Records what the engine reports about lanes."""

    def __init__(self) -> None:
        self.restoring: list[tuple[TaskId, Sequence[RestoringStore]]] = []
        self.restored: list[tuple[TaskId, Sequence[RestoredStore], float, bool]] = []
        self.stopped: set[TaskId] = set()
        self.lost = 0
        self.lag: tuple[PartitionLag, ...] = ()

    def task_restoring(self, task_id: TaskId, stores: Sequence[RestoringStore]) -> None:
        self.restoring.append((task_id, stores))

    def task_restored(
        self, task_id: TaskId, restored: Sequence[RestoredStore], seconds: float, *,
        lane: LaneStatus, is_last: bool,
    ) -> None:
        self.restored.append((task_id, restored, seconds, is_last))

    def task_stopped(self, task_id: TaskId) -> None:
        self.stopped.add(task_id)

    def lane_lost(self) -> None:
        self.lost += 1

    def lag_measured(self, lag: Sequence[PartitionLag]) -> None:
        self.lag = tuple(lag)


class Stage:
    """An engine with two played lanes."""

    def __init__(self, log: Log, directory: Path) -> None:
        builder = StreamsBuilder()
        text = Serdes.string()
        builder.stream("in", key=text, value=text).to("out", key=text, value=text)
        self.config = StreamsConfig(
            application_id="app", log=log.address, state_dir=str(directory),
            execution="continuous", task_timeout_ms=100,
        )
        self.lanes = PlayedLanes(2)
        self.lease = log.take_lease("app")
        self.observed = ObserverCalls()
        self.engine = ContinuousEngine(
            builder.build(), self.config, log, self.lease, self.lanes.open, self.observed
        )
        self.received: dict[int, list[Any]] = {}

    def send(self, serial: int, message: object) -> None:
        self.lanes.connections[serial].send_bytes(encode(message))

    def run_until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"Received: {self.received}"
            self.engine.run_batch()
            self.engine.wait(0.01)
            self.receive()

    def receive(self) -> None:
        for serial, connection in self.lanes.connections.items():
            while not connection.closed and connection.poll():
                try:
                    message = decode_from_driver(connection.recv_bytes())
                except EOFError:
                    connection.close()
                    break
                if not isinstance(message, Alive):
                    self.received.setdefault(serial, []).append(message)

    def make_ready(self, *serials: int) -> None:
        for serial in serials:
            self.run_until(lambda serial=serial: serial in self.lanes.connections)
            self.send(serial, Hello(serial, f"host{serial}", 1))
        self.run_until(lambda: all(self.of(Start, serial) for serial in serials))
        for serial in serials:
            self.send(serial, Ready())

    def of(self, kind: type, serial: int) -> list[Any]:
        return [each for each in self.received.get(serial, ()) if isinstance(each, kind)]

    def granted(self, serial: int) -> set[TaskId]:
        return {grant.plan.task_id for grant in self.of(Grant, serial)}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with open_log(str(tmp_path / "log.db")) as log:
        log.create_topic("in", PARTITIONS)
        log.create_topic("out", PARTITIONS)
        stage = Stage(log, tmp_path / "state")
        yield stage
        stage.engine.cancel()
        stage.engine.close()


def start_two(stage: Stage) -> None:
    stage.make_ready(1, 2)
    stage.run_until(lambda: len(stage.granted(1) | stage.granted(2)) == PARTITIONS)
    assert len(stage.granted(1)) == len(stage.granted(2)) == 2
    assert not stage.engine.is_ready
    for serial in (1, 2):
        for task_id in stage.granted(serial):
            stage.send(serial, Running(task_id))
    stage.run_until(lambda: stage.engine.is_ready)


def test_restores_of_lanes_are_passed_on(stage: Stage) -> None:
    stage.make_ready(1, 2)
    stage.run_until(lambda: len(stage.granted(1) | stage.granted(2)) == PARTITIONS)
    task_id, *others = sorted(stage.granted(1) | stage.granted(2))
    serial = 1 if task_id in stage.granted(1) else 2
    running = (RestoringStore("rows", "changes", 0, 0, 4, 10),)
    stage.send(serial, Restoring(task_id, running))
    done = (RestoredStore("rows", "changes", 0, 0, 10, 9, task_id),)
    stage.send(serial, Running(task_id, done, 2.5))
    stage.run_until(lambda: stage.observed.restored)
    assert stage.observed.restoring == [(task_id, running)]
    assert stage.observed.restored == [(task_id, done, 2.5, False)]
    for other in others:
        stage.send(1 if other in stage.granted(1) else 2, Running(other))
    stage.run_until(lambda: stage.engine.is_ready)
    assert [is_last for *_, is_last in stage.observed.restored] == [False, False, False, True]
    assert stage.observed.stopped == set()
    stage.lanes.connections[serial].close()
    stage.run_until(lambda: stage.observed.stopped == stage.granted(serial))


def test_tasks_return_to_the_hosts_with_their_newest_replicas(stage: Stage) -> None:
    """The driver knows from the lanes what an earlier driver has granted."""
    tasks = [TaskId(0, partition) for partition in range(PARTITIONS)]
    stage.run_until(lambda: 2 in stage.lanes.connections)
    replicas = {1: {tasks[0]: 5, tasks[2]: 7, tasks[3]: 7}, 2: {tasks[0]: 9, tasks[1]: 1}}
    for serial, held in replicas.items():
        stage.send(serial, Hello(serial, f"host{serial}", 1, held))
        stage.send(serial, Ready())
    stage.run_until(lambda: len(stage.granted(1) | stage.granted(2)) == PARTITIONS)
    assert stage.granted(1) == {tasks[2], tasks[3]}
    assert stage.granted(2) == {tasks[0], tasks[1]}


def test_tasks_of_a_lost_lane_are_granted_after_it_is_fenced(stage: Stage) -> None:
    start_two(stage)
    lost = stage.granted(1)
    stage.lanes.connections[1].close()
    stage.run_until(lambda: stage.granted(2) >= lost)
    with pytest.raises(Fenced), stage.engine._log.open_writer(
        stage.of(Start, 1)[0].grant, lambda: b""
    ).transaction():
        pass


def test_lane_that_cannot_be_fenced_keeps_its_tasks(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_two(stage)
    lost = stage.granted(1)
    refusals = [LogBusy("busy"), LogBusy("still busy")]
    fence = stage.lease.fence_writers

    def refuse(grants: Any) -> None:
        if refusals:
            raise refusals.pop()
        fence(grants)

    monkeypatch.setattr(stage.lease, "fence_writers", refuse)
    stage.lanes.connections[1].close()
    for _ in range(2):
        with pytest.raises(LogBusy):
            stage.run_until(lambda: False)
        assert not stage.granted(2) & lost
    stage.run_until(lambda: stage.granted(2) >= lost)


def test_lanes_of_a_lost_host_are_fenced_together(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Kafka each may have an open transaction, which takes half a second to abort."""
    start_two(stage)
    fence, calls = stage.lease.fence_writers, []

    def note(grants: Any) -> None:
        calls.append(sorted(grant.serial for grant in grants))
        fence(grants)

    monkeypatch.setattr(stage.lease, "fence_writers", note)
    monkeypatch.setattr(lane_pool, "SILENCE_S", 0.2)
    stage.run_until(lambda: calls)
    assert calls[0] == [1, 2]


def test_silent_lane_is_replaced(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    start_two(stage)
    monkeypatch.setattr(lane_pool, "SILENCE_S", 0.2)
    lost = stage.granted(1)

    def keep_alive() -> bool:
        stage.send(2, Alive())
        return stage.granted(2) >= lost

    stage.run_until(keep_alive)
    assert stage.lanes.cancelled == [1]


def test_new_lane_gets_tasks_after_their_release(stage: Stage) -> None:
    stage.lanes.slots = 1
    stage.make_ready(1)
    stage.run_until(lambda: len(stage.granted(1)) == PARTITIONS)
    stage.lanes.slots = 2
    stage.make_ready(2)
    stage.run_until(lambda: len(stage.of(Release, 1)) == 2)
    assert not stage.granted(2)
    released = {message.task_id for message in stage.of(Release, 1)}
    for task_id in released:
        stage.send(1, Released(task_id))
    stage.run_until(lambda: stage.granted(2) == released)


def test_failure_of_a_lane_that_never_connects_is_raised(stage: Stage) -> None:
    stage.run_until(lambda: 1 in stage.lanes.connections)
    stage.lanes.on_ended(1, StreamsException("no such module"))
    with pytest.raises(StreamsException, match="no such module"):
        stage.run_until(lambda: False)


def test_lane_whose_process_is_lost_while_it_starts_is_replaced(stage: Stage) -> None:
    stage.run_until(lambda: 2 in stage.lanes.connections)
    stage.lanes.on_ended(1, WorkerLost("Python worker exited unexpectedly (crashed)."))
    stage.make_ready(2, 3)
    stage.run_until(lambda: len(stage.granted(2) | stage.granted(3)) == PARTITIONS)


def test_lanes_that_end_in_succession_are_a_failure(stage: Stage) -> None:
    def lose_all() -> bool:
        for serial, connection in list(stage.lanes.connections.items()):
            if not connection.closed and not stage.of(Start, serial):
                stage.send(serial, Hello(serial, "host", 1))
                stage.send(serial, Ended(reason="killed", is_fenced=True))
        return False

    with pytest.raises(StreamsException, match="in succession without a commit"):
        stage.run_until(lose_all)


def test_task_whose_lanes_end_in_succession_is_a_failure_while_others_commit(
    stage: Stage,
) -> None:
    """One of its records ends the process. The other tasks of the application make progress."""
    poisoned, alive = TaskId(0, 0), TaskId(0, 1)
    greeted: set[int] = set()

    def play() -> bool:
        for serial, connection in list(stage.lanes.connections.items()):
            if connection.closed:
                continue
            if serial not in greeted:
                greeted.add(serial)
                stage.send(serial, Hello(serial, "host", 1))
                stage.send(serial, Ready())
            if alive in stage.granted(serial):
                outcome = TaskOutcome(alive, TaskRecord(1, 1), records_consumed=1)
                stage.send(serial, Committed((encode_outcome(outcome),), {}, (0.0, 0.0)))
            if poisoned in stage.granted(serial):
                stage.send(serial, Running(poisoned))
                stage.send(serial, Ended(reason="killed", is_fenced=True))
        return False

    with pytest.raises(StreamsException, match="of these tasks: 0_0"):
        stage.run_until(play)


def test_lane_ends_when_there_are_fewer_slots(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It commits its tasks first. The other lane takes them over."""
    stage.make_ready(1, 2)
    stage.run_until(lambda: stage.granted(1) and stage.granted(2))
    for serial in (1, 2):
        for task_id in stage.granted(serial):
            stage.send(serial, Running(task_id))
    before = stage.granted(1)
    monkeypatch.setattr(lane_pool, "EXCESS_S", 0.0)
    stage.lanes.slots = 1
    stage.run_until(lambda: stage.of(Stop, 2))
    assert not stage.of(Stop, 1)
    assert stage.granted(1) == before
    stage.send(2, Ended())
    stage.run_until(lambda: len(stage.granted(1)) == PARTITIONS)
    assert not stage.of(Release, 2)
    assert [lane.name for lane in stage.engine.lanes()] == ["lane 1 on host1 (process 1)"]


def test_lane_of_a_decommissioned_executor_ends_at_once(stage: Stage) -> None:
    """It commits its tasks first. The other lane takes them over, and a new lane waits."""
    stage.make_ready(1, 2)
    stage.run_until(lambda: stage.granted(1) and stage.granted(2))
    stage.lanes.leaving = frozenset((1,))
    stage.run_until(lambda: stage.of(Stop, 1))
    assert not stage.of(Stop, 2)
    stage.send(1, Ended())
    stage.run_until(lambda: len(stage.granted(2)) == PARTITIONS)
    stage.run_until(lambda: 3 in stage.lanes.connections)


def test_lane_that_waits_for_a_slot_is_cancelled_when_there_are_fewer(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.make_ready(1)
    stage.run_until(lambda: 2 in stage.lanes.connections)
    monkeypatch.setattr(lane_pool, "EXCESS_S", 0.0)
    stage.lanes.slots = 1
    stage.run_until(lambda: stage.lanes.cancelled == [2])
    stage.run_until(lambda: len(stage.granted(1)) == PARTITIONS)
    assert not stage.of(Stop, 1)


def states(stage: Stage) -> dict[str, str]:
    return {lane.host or "?": lane.state for lane in stage.engine.lanes()}


def test_state_of_a_lane_is_that_of_a_thread_of_kafka_streams(stage: Stage) -> None:
    stage.run_until(lambda: len(stage.lanes.connections) == 2)
    assert [lane.state for lane in stage.engine.lanes()] == ["STARTING"] * 2
    stage.make_ready(1, 2)
    stage.run_until(lambda: len(stage.granted(1)) == len(stage.granted(2)) == 2)
    assert states(stage) == {"host1": "PARTITIONS_ASSIGNED", "host2": "PARTITIONS_ASSIGNED"}
    for task_id in stage.granted(1):
        stage.send(1, Running(task_id))
    stage.run_until(lambda: states(stage)["host1"] == "RUNNING")
    assert states(stage)["host2"] == "PARTITIONS_ASSIGNED"


def test_killed_lane_is_gone_and_counted_and_a_stopped_one_is_not_counted(stage: Stage) -> None:
    stage.make_ready(1, 2)
    stage.run_until(lambda: stage.granted(1) and stage.granted(2))
    stage.lanes.connections[1].close()
    stage.run_until(lambda: 3 in stage.lanes.connections)
    assert states(stage) == {"host2": "PARTITIONS_ASSIGNED", "?": "STARTING"}
    assert stage.observed.lost == 1
    stage.lanes.leaving = frozenset((2,))
    stage.run_until(lambda: stage.of(Stop, 2))
    assert states(stage)["host2"] == "PENDING_SHUTDOWN"
    stage.lanes.connections[2].close()
    stage.run_until(lambda: "host2" not in states(stage))
    assert stage.observed.lost == 1


def test_lag_of_a_lane_is_reported(stage: Stage) -> None:
    stage.make_ready(1)
    lag = PartitionLag(TaskId(0, 1), "in", 1, 7)
    stage.send(1, Lag((lag,)))
    stage.run_until(lambda: stage.observed.lag == (lag,))


def test_close_ends_lanes_that_have_not_introduced_themselves(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise they wait until the driver has been silent for long, and the starter for them."""
    stage.run_until(lambda: 2 in stage.lanes.connections)
    ended = []

    def wait_for_lanes() -> None:
        for serial, connection in stage.lanes.connections.items():
            assert connection.poll(DEADLINE_S), f"lane {serial} runs on"
            with pytest.raises(EOFError):
                connection.recv_bytes()
            ended.append(serial)

    monkeypatch.setattr(stage.lanes, "close", wait_for_lanes)
    stage.engine.close()
    assert ended == [1, 2]


def test_failure_of_a_last_commit_is_logged(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.run_until(lambda: 2 in stage.lanes.connections)
    stage.make_ready(1)
    closing = threading.Thread(target=stage.engine.close)
    closing.start()
    while not isinstance(decode_from_driver(stage.lanes.connections[1].recv_bytes()), Stop):
        pass
    failure = Failure.of("0_0", ValueError("no such currency"))
    outcome = TaskOutcome(TaskId(0, 0), TaskRecord(0, 0), failure=failure)
    stage.send(1, Ended(outcome=encode_outcome(outcome), reason="no such currency"))
    closing.join(DEADLINE_S)
    (message,) = [each.message for each in caplog.records if each.levelname == "ERROR"]
    assert "A last commit has failed." in message
    assert "no such currency" in message


def test_lane_that_starts_during_close_is_refused(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`close` would wait for it, because it was not asked to end."""
    stage.run_until(lambda: 2 in stage.lanes.connections)
    stage.make_ready(1)
    monkeypatch.setattr(stage.lanes, "close", lambda: None)
    closing = threading.Thread(target=stage.engine.close)
    closing.start()
    first, second = (stage.lanes.connections[serial] for serial in (1, 2))
    while not isinstance(decode_from_driver(first.recv_bytes()), Stop):
        pass
    with contextlib.suppress(OSError):
        stage.send(2, Hello(2, "host2", 1))
    assert second.poll(DEADLINE_S)
    with pytest.raises(EOFError):
        second.recv_bytes()
    stage.send(1, Ended())
    closing.join(DEADLINE_S)
    assert not closing.is_alive()
