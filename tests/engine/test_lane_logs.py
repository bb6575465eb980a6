"""Lines that user code logs in a lane reach the driver, with or without a commit."""

from __future__ import annotations

import logging
import multiprocessing
import os
import socket
import time
from collections.abc import Callable, Iterator
from multiprocessing import Pipe
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from penstock import ContextualProcessor, Record, Serdes, StreamsBuilder, StreamsConfig
from penstock.cli.run_logging import JsonFormatter
from penstock.engine.continuous.engine import ContinuousEngine
from penstock.engine.continuous.lane import run_lane
from penstock.engine.continuous.lane_starter import OnConnection, OnEnded
from penstock.engine.packaging.bundle import Bundle
from penstock.log import Log, open_log
from penstock.record import RecordColumns

DEADLINE_S = 60.0


class ProcessLanes:
    """A `LaneStarter` with one lane in a process of its own, without Spark."""

    slots = 1
    leaving: frozenset[int] = frozenset()

    def __init__(self) -> None:
        self.processes: list[BaseProcess] = []
        self._bundle = b""
        self._on_connection: OnConnection = lambda connection: None

    def open(
        self, topology: Any, config: Any, graph: Any, log: Log, on_connection: OnConnection,
        on_ended: OnEnded,
    ) -> ProcessLanes:
        self._bundle = Bundle(topology, config, graph, log.address, 1).dump()
        self._on_connection = on_connection
        return self

    def start(self, serial: int) -> None:
        ours, lanes = Pipe()
        process = multiprocessing.get_context("spawn").Process(
            target=run_lane, args=(self._bundle, lanes, serial)
        )
        process.start()
        lanes.close()
        self.processes.append(process)
        self._on_connection(ours)

    def cancel(self, serial: int) -> None:
        pass

    def close(self) -> None:
        for process in self.processes:
            process.join(10)
            process.kill()
            process.join()


class Chatty(ContextualProcessor[str, str, str, str]):
    """Logs each record, an error with its traceback, and its end."""

    def process(self, record: Record[str, str]) -> None:
        log = logging.getLogger("shop")
        log.warning("got %s", record.value)
        try:
            raise ValueError("too bad")
        except ValueError:
            log.exception("failed")

    def close(self) -> None:
        logging.getLogger("shop").warning("closed")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(str(tmp_path / "log.db")) as log:
        log.create_topic("in")
        log.append("in", 0, RecordColumns([None], [b"tea"]))
        yield log


@pytest.fixture
def lanes() -> Iterator[ProcessLanes]:
    lanes = ProcessLanes()
    yield lanes
    lanes.close()


def shop_records(caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    return {
        each.getMessage(): each for each in caplog.records if each.name == "shop"
    }


def run_until(engine: ContinuousEngine, condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        engine.run_batch()
        engine.wait(0.05)


def test_lines_reach_the_driver_before_a_commit_and_at_the_end(
    log: Log, tmp_path: Path, lanes: ProcessLanes, caplog: pytest.LogCaptureFixture
) -> None:
    builder = StreamsBuilder()
    text = Serdes.string()
    builder.stream("in", key=text, value=text).process(Chatty)
    config = StreamsConfig(
        application_id="app", log=log.address, state_dir=str(tmp_path / "state"),
        execution="continuous", commit_interval_ms=3_600_000,
    )
    engine = ContinuousEngine(builder.build(), config, log, log.take_lease("app"), lanes.open)
    try:
        run_until(engine, lambda: "failed" in shop_records(caplog))
        assert sum(engine.planner.committed.values()) == 0, "nothing is committed yet"
        replayed_at = time.time()
    finally:
        engine.close()
    records = shop_records(caplog)
    assert list(records) == ["got tea", "failed", "closed"]
    for record in records.values():
        assert (record.host, record.lane, record.task) == (socket.gethostname(), 1, "0_0")
        assert record.process == lanes.processes[0].pid != os.getpid()
    assert records["got tea"].created < replayed_at
    row = JsonFormatter().format(records["failed"])
    assert '"message":"failed","exception":"Traceback (most recent call last)' in row
    assert '"lane":1,"task":"0_0"' in row
