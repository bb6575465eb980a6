"""A lane that commits punctuations only, on every log: it is fenced like any other."""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest

from engine.test_lane import Driver
from kafka.cluster import clear
from penstock import (
    Processor,
    PunctuationType,
    Record,
    Serdes,
    StreamsBuilder,
    StreamsConfig,
)
from penstock.engine.continuous.lane import Lane
from penstock.engine.continuous.messages import Committed, Ended, Grant, Ready, Running, Start
from penstock.engine.layout.execution_graph import build_graph_for_log
from penstock.engine.layout.internal_topics import ensure_internal_topics
from penstock.engine.packaging.bundle import Bundle
from penstock.engine.plan.batch_plan import TaskPlan
from penstock.engine.worker.worker import Worker
from penstock.log import Lease, Log, open_log
from penstock.log.errors import LogError
from penstock.log.types import TopicPartition
from penstock.record import TaskId

TASK = TaskId(0, 0)
IN = TopicPartition("in", 0)
TEXT = Serdes.string()


class Ticker(Processor[Any, Any, str, str]):
    """Forwards a record at each tick of the wall clock."""

    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(10, PunctuationType.WALL_CLOCK_TIME, self.tick)

    def process(self, record: Record[Any, Any]) -> None:
        """Do nothing."""

    def tick(self, now: int) -> None:
        self.context.forward(Record("tick", "tock", now))


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "kafka":
        return clear(request.getfixturevalue("penstock_broker").address)
    return str(tmp_path / "log.db")


@pytest.fixture
def log(address: str) -> Iterator[Log]:
    with open_log(address) as log:
        log.create_topic("in")
        log.create_topic("out")
        yield log


@pytest.fixture
def lease(log: Log) -> Lease:
    return log.take_lease("app")


@pytest.fixture
def driver(log: Log, lease: Lease, tmp_path: Path) -> Iterator[Driver]:
    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).process(Ticker).to("out", key=TEXT, value=TEXT)
    topology = builder.build()
    config = StreamsConfig(
        application_id="app", log=log.address, state_dir=str(tmp_path / "state"),
        execution="continuous",
    )
    graph = build_graph_for_log(log, topology, config)
    ensure_internal_topics(log, graph, -1)
    worker = Worker(
        Bundle.load(Bundle(topology, config, graph, log.address, 1).dump()), own_process=False
    )
    ours, lanes = Pipe()
    lane = Lane(worker, lanes, 1, own_process=False)
    driver = Driver(lane, ours)
    driver.send(Start(lease.create_writer(), lease.member_token(), "first"))
    driver.receive(Ready)
    driver.send(Grant(TaskPlan(TASK), {IN: 0}))
    driver.receive(Running)
    yield driver
    lane.close(Ended())
    worker.close()


def ticks(log: Log) -> int:
    return sum(len(batch.columns().keys) for batch in log.read("out", 0, 0))


def tick_until(driver: Driver, log: Log, count: int) -> None:
    while ticks(log) < count:
        driver.receive(Committed)


def assert_ends(driver: Driver) -> None:
    with pytest.raises(LogError) as raised:
        driver.run_until(lambda: False)
    assert driver.lane.describe_end(raised.value).is_fenced


def test_punctuations_commit_the_offsets_of_their_task(driver: Driver, log: Log) -> None:
    """A broker checks the lease only in transactions with offsets."""
    tick_until(driver, log, 1)
    assert log.committed("app")[IN].offset == 0


def test_fenced_lane_publishes_no_punctuation(driver: Driver, log: Log, lease: Lease) -> None:
    tick_until(driver, log, 2)
    lease.fence_writers([driver.lane._writer.grant])
    before = ticks(log)
    assert_ends(driver)
    assert ticks(log) == before


def test_lane_of_a_lost_lease_publishes_no_punctuation(
    driver: Driver, log: Log, address: str
) -> None:
    tick_until(driver, log, 2)
    with open_log(address) as other:
        other.take_lease("app")
        before = ticks(log)
        assert_ends(driver)
        assert ticks(log) == before
