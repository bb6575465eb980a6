"""The engine on a real broker: the crash tests' application has the same results as elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from faults.engine_app import (
    PIECES,
    Input,
    Row,
    append,
    config,
    is_drained,
    make_topics,
    run_reference,
    start_inline,
    topology,
    verify,
)
from kafka.cluster import clear
from penstock import StandbyUpdateListener, Streams
from penstock.broker.cluster import ClusterStatus
from penstock.engine.batch_report import BatchReport
from penstock.log import Log, TopicPartition, open_log
from penstock.record import TaskId

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

TIMEOUT_S = 240.0


@pytest.fixture
def address(penstock_broker: ClusterStatus) -> str:
    return clear(penstock_broker.address)


@pytest.fixture
def log(address: str) -> Iterator[Log]:
    with open_log(address) as log:
        make_topics(log)
        yield log


def waves(count: int) -> list[list[list[Row]]]:
    source = Input(seed=5)
    made = [list(islice(source.wave(number), PIECES)) for number in range(1, count + 1)]
    return [[source.first()], *made, [source.every_key(count + 1)]]


def compare(log: Log, given: list[list[list[Row]]], directory: Path) -> None:
    with open_log(run_reference(directory / "undisturbed", given)) as expected:
        verify(log, expected, given)


@pytest.mark.parametrize(
    ("master", "guarantee"),
    [
        pytest.param("inline", "exactly_once", marks=pytest.mark.smoke),
        ("inline", "at_least_once"),
        pytest.param(
            "local[2]", "exactly_once", marks=[pytest.mark.spark, pytest.mark.soak]
        ),
    ],
)
def test_results_on_kafka_equal_those_on_the_embedded_log(
    log: Log, address: str, tmp_path: Path, master: str, guarantee: str
) -> None:
    given = waves(1)
    settings = config(address, str(tmp_path / "state"), processing_guarantee=guarantee)
    streams = (
        Streams(topology(), settings, compute=start_inline) if master == "inline"
        else Streams(topology(), settings, master=master)
    )
    with streams:
        for wave in given:
            feed(log, wave, streams)
    compare(log, given, tmp_path)


def feed(log: Log, wave: list[list[Row]], streams: Streams) -> None:
    """Append a wave, and wait until it is processed."""
    for rows in wave:
        append(log, rows)
    deadline = time.monotonic() + TIMEOUT_S
    while not is_drained(log):
        assert time.monotonic() < deadline
        streams.run_until_caught_up(timeout=TIMEOUT_S)


class Positions(StandbyUpdateListener):
    """Records the positions of standby stores."""

    def __init__(self) -> None:
        self.known: dict[TopicPartition, int] = {}

    def on_batch_loaded(
        self, partition: TopicPartition, store: str, task_id: TaskId, batch_end_offset: int,
        batch_size: int, current_end_offset: int,
    ) -> None:
        self.known[partition] = batch_end_offset

    def are_at_the_end_of(self, log: Log) -> bool:
        changelogs = log.offsets(
            TopicPartition(topic.name, number) for topic in log.topics()
            if topic.name.endswith("-changelog") for number in range(topic.partitions)
        )
        return all(self.known.get(at, 0) == bounds.end for at, bounds in changelogs.items())


def test_standby_takes_over_without_restoring(log: Log, address: str, tmp_path: Path) -> None:
    given = waves(2)
    reports: list[BatchReport] = []
    first = Streams(topology(), config(address, str(tmp_path / "first")), compute=start_inline)
    second = Streams(
        topology(), config(address, str(tmp_path / "second"), num_standby_replicas=1),
        compute=start_inline, on_batch=reports.append,
    )
    positions = Positions()
    second.set_standby_update_listener(positions)
    with first:
        feed(log, given[0], first)
        second.start()
        feed(log, given[1], first)
        deadline = time.monotonic() + TIMEOUT_S
        while not positions.are_at_the_end_of(log):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    with contextlib.closing(second):
        for wave in given[2:]:
            feed(log, wave, second)
    assert not [each for report in reports for each in report.restored if each.records]
    compare(log, given, tmp_path)
