"""A lane, driven step by step over its connection."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from penstock import Serdes, StreamsBuilder, StreamsConfig
from penstock.engine.continuous import restorer as restorer_module
from penstock.engine.continuous.lane import Lane
from penstock.engine.continuous.messages import (
    Ended,
    Grant,
    Pause,
    Ready,
    Release,
    Released,
    Running,
    Start,
    decode_from_lane,
    encode,
)
from penstock.engine.layout.execution_graph import build_graph_for_log
from penstock.engine.layout.internal_topics import ensure_internal_topics
from penstock.engine.packaging.bundle import Bundle
from penstock.engine.plan.batch_plan import TaskPlan
from penstock.engine.worker.worker import Worker
from penstock.log import Log, open_log
from penstock.record import TaskId

TASK = TaskId(0, 0)


class Driver:
    """The driver's end of the connection of a lane that runs in `receive`."""

    def __init__(self, lane: Lane, connection: Connection) -> None:
        self.lane = lane
        self._connection = connection

    def send(self, message: object) -> None:
        self._connection.send_bytes(encode(message))

    def receive(self, *kinds: type) -> Any:
        """Run the lane until it sends a message of one of these kinds."""
        while True:
            self.lane.step(0.001)
            while self._connection.poll():
                message = decode_from_lane(self._connection.recv_bytes())
                if isinstance(message, kinds):
                    return message

    @property
    def has_messages(self) -> bool:
        return self._connection.poll()

    def run_until(self, condition: Callable[[], object]) -> None:
        while not condition():
            self.lane.step(0.001)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "log.db") as log:
        log.create_topic("words")
        yield log


@pytest.fixture
def driver(log: Log, tmp_path: Path) -> Iterator[Driver]:
    builder = StreamsBuilder()
    builder.stream("words").group_by_key().count(store="counts")
    topology = builder.build()
    config = StreamsConfig(
        application_id="words", log=log.address, state_dir=str(tmp_path / "state"),
        execution="continuous", default_key_serde=Serdes.string(),
        default_value_serde=Serdes.string(),
    )
    graph = build_graph_for_log(log, topology, config)
    ensure_internal_topics(log, graph, -1)
    worker = Worker(
        Bundle.load(Bundle(topology, config, graph, log.address, 1).dump()), own_process=False
    )
    ours, lanes = Pipe()
    lane = Lane(worker, lanes, 1, own_process=False)
    driver = Driver(lane, ours)
    driver.send(Start(log.take_lease("words").create_writer(), b"", "first"))
    driver.receive(Ready)
    yield driver
    lane.close(Ended())
    worker.close()


def test_task_that_is_released_during_its_restore_is_never_run(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the lane would run it beside the lane that gets it next."""
    is_restoring, may_restore = threading.Event(), threading.Event()
    restore = restorer_module.restore_replica

    def wait_and_restore(*arguments: Any) -> Any:
        is_restoring.set()
        may_restore.wait()
        return restore(*arguments)

    monkeypatch.setattr(restorer_module, "restore_replica", wait_and_restore)
    grant = Grant(TaskPlan(TASK, positions={"counts": 0}), {("words", 0): 0})
    driver.send(grant)
    driver.run_until(is_restoring.is_set)
    driver.send(Release(TASK))
    driver.send(Pause())
    driver.run_until(lambda: driver.lane._is_paused)
    assert not driver.has_messages, "the task is released while its replica is in use"
    may_restore.set()
    assert driver.receive(Running, Released) == Released(TASK)
    assert TASK not in driver.lane._tasks

    # It can be granted again.
    driver.send(grant)
    assert driver.receive(Running, Released) == Running(TASK)
