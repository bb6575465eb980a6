"""A standby instance keeps Spark and its workers ready."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from engine.harness import config_of
from engine.instances import PATIENCE_S, received, send, until, upper, word_count
from penstock import ConfigException, State, Streams, Topology
from penstock.engine.batch_report import BatchReport
from penstock.engine.observe.restore import replica_positions
from penstock.engine.spark.backend import PARALLELISM, SparkBackend
from penstock.engine.spark.job import SparkCompute
from penstock.log import Log, open_log

pytestmark = [pytest.mark.slow, pytest.mark.spark]


def record_calls(monkeypatch: pytest.MonkeyPatch, name: str) -> list[Any]:
    """Collect the objects whose method has returned."""
    objects: list[Any] = []
    method: Callable[..., Any] = getattr(SparkCompute, name)

    def call(self: Any, *arguments: Any) -> Any:
        result = method(self, *arguments)
        objects.append(self)
        return result

    monkeypatch.setattr(SparkCompute, name, call)
    return objects


def start_standby(
    log: Log, tmp_path: Path, backend: SparkBackend, topology: Topology | None = None,
    extra: Mapping[str, str] | None = None,
    on_batch: Callable[[BatchReport], object] | None = None, **settings: Any,
) -> Streams:
    config = config_of(
        log=str(tmp_path / "log.db"), state_dir=str(tmp_path / "state"),
        # The other instance sends no heartbeats, but its lease must not expire.
        extra={"session.timeout.ms": "600000", **(extra or {})}, **settings,
    )
    streams = Streams(topology or upper(), config, spark=backend.context, on_batch=on_batch)
    streams.start()
    until(lambda: streams.waits_for == "another" or streams.state.has_ended)
    return streams


@pytest.fixture
def log(tmp_path: Path) -> Any:
    with open_log(tmp_path / "log.db") as log:
        log.create_topic("in", 2)
        log.create_topic("out", 1)
        yield log


def test_failover_uses_the_workers_that_are_ready(
    log: Log, tmp_path: Path, backend: SparkBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm, computing = record_calls(monkeypatch, "warm_up"), record_calls(monkeypatch, "compute")
    lease = log.take_lease("app", holder="another")
    streams = start_standby(log, tmp_path, backend)
    until(lambda: warm)
    assert streams.state is State.REBALANCING
    # The standby has written nothing, and the other instance still holds the lease.
    assert [topic.name for topic in log.topics()] == ["in", "out"]
    lease.renew()
    send(log, "a")
    lease.release()
    until(lambda: received(log) == [b"A"])
    assert {*computing} == {*warm}
    assert streams.close()


def test_failover_restores_nothing_that_the_standby_holds(
    log: Log, tmp_path: Path, backend: SparkBackend
) -> None:
    send(log, "a a", "a")
    before = config_of(log=str(tmp_path / "log.db"), state_dir=str(tmp_path / "first"))
    with Streams(word_count(), before, master="inline") as first:
        first.run_until_caught_up(PATIENCE_S)
    lease = log.take_lease("app", holder="another")
    reports: list[BatchReport] = []
    streams = start_standby(
        log, tmp_path, backend, word_count(), num_standby_replicas=1, on_batch=reports.append
    )
    rows = [tmp_path / "state" / "app" / task for task in ("1_0", "1_1")]
    until(lambda: any(replica_positions(each).get("counts") for each in rows))
    send(log, "a")
    lease.release()
    streams.run_until_caught_up(PATIENCE_S)
    assert [int.from_bytes(value, "big") for value in received(log)][-1] == 4
    assert not any(report.restored for report in reports)
    assert streams.close()


def test_standby_with_an_invalid_setting_fails(
    log: Log, tmp_path: Path, backend: SparkBackend
) -> None:
    log.take_lease("app", holder="another")
    streams = start_standby(log, tmp_path, backend, extra={PARALLELISM: "none"})
    with pytest.raises(ConfigException, match=r"penstock\.parallelism must be a number"):
        streams.wait(60)
    assert streams.state is State.ERROR
