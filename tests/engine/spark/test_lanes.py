"""Lanes on Spark: how many slots they use, beside other applications and other jobs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import Serdes, Streams, StreamsBuilder, StreamsConfig, Topology
from penstock.engine.continuous import lane_pool
from penstock.engine.spark.backend import SparkBackend
from penstock.engine.spark.lane_shares import LaneShares
from penstock.log import Log, RecordColumns, open_log

pytestmark = pytest.mark.spark

TIMEOUT_S = 240.0


def copy(source: str) -> Topology:
    builder = StreamsBuilder()
    text = Serdes.string()
    builder.stream(source, key=text, value=text).to(f"{source}-out", key=text, value=text)
    return builder.build()


@pytest.fixture
def log(tmp_path: Path) -> Log:
    log = open_log(tmp_path / "log.db")
    for name in ("a", "b"):
        log.create_topic(name, 4)
        log.create_topic(f"{name}-out", 4)
        for partition in range(4):
            log.append(name, partition, RecordColumns([b"k"], [b"v"]))
    return log


@pytest.fixture
def config(tmp_path: Path, log: Log) -> Callable[[str], StreamsConfig]:
    return lambda name: StreamsConfig(
        application_id=name, log=log.address, execution="continuous",
        state_dir=tmp_path / "state", extra={"auto.offset.reset": "earliest"},
    )


def test_slots_are_divided_among_the_applications(backend: SparkBackend) -> None:
    shares, context = LaneShares(), backend.context
    first, second, third = object(), object(), object()
    for user in (first, second, third):
        shares.join(context, user)
    assert [shares.share(context, user, 8) for user in (first, second, third)] == [3, 3, 2]
    assert [shares.share(context, user, 2) for user in (first, second, third)] == [1, 1, 1]
    shares.leave(context, second)
    shares.leave(context, second)
    assert [shares.share(context, user, 5) for user in (first, third)] == [3, 2]


def test_second_application_gets_a_slot_of_the_first_one(
    config: Callable[[str], StreamsConfig], log: Log, backend: SparkBackend,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On two slots. When it ends, the first one uses both again."""
    monkeypatch.setattr(lane_pool, "EXCESS_S", 0.5)
    with Streams(copy("a"), config("first"), master="local[2]") as first:
        first.run_until_caught_up(TIMEOUT_S)
        assert len(first.metadata_for_local_threads()) == 2
        with Streams(copy("b"), config("second"), master="local[2]") as second:
            second.run_until_caught_up(TIMEOUT_S)
            for partition in range(4):
                log.append("a", partition, RecordColumns([b"k"], [b"v"]))
            first.run_until_caught_up(TIMEOUT_S)


def test_job_of_the_user_completes_while_lanes_run(
    config: Callable[[str], StreamsConfig], log: Log, backend: SparkBackend
) -> None:
    """In a session of the user, one slot is left for other jobs."""
    with Streams(copy("a"), config("app"), spark=backend.context) as streams:
        streams.run_until_caught_up(TIMEOUT_S)
        assert len(streams.metadata_for_local_threads()) == 1
        assert backend.context.parallelize(range(100), 4).map(lambda n: n + 1).sum() == 5050
        log.append("a", 0, RecordColumns([b"k"], [b"v"]))
        streams.run_until_caught_up(TIMEOUT_S)
