"""`Streams.close` with a timeout, while a batch runs on Spark."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from engine.harness import config_of, topology_of
from engine.instances import PATIENCE_S, received, send, until
from penstock import State, Streams
from penstock.engine.spark.backend import SparkBackend
from penstock.log import open_log

pytestmark = [pytest.mark.slow, pytest.mark.spark]


def test_expired_close_timeout_cancels_the_job_and_commits_nothing(
    backend: SparkBackend, tmp_path: Path
) -> None:
    began, may_continue = tmp_path / "began", tmp_path / "may-continue"

    def wait(value: str) -> str:
        began.touch()
        while not may_continue.exists():
            time.sleep(0.01)
        return value.upper()

    topology = topology_of(lambda builder: builder.stream("in").map_values(wait).to("out"))
    with open_log(tmp_path / "log.db") as log:
        log.create_topic("in", 1)
        log.create_topic("out", 1)
        send(log, "a")
        config = config_of(log=str(tmp_path / "log.db"), state_dir=str(tmp_path / "state"))
        streams = Streams(topology, config, spark=backend.context)
        streams.start()
        until(began.exists)
        assert not streams.close(0.1)
        # The user's function never returns, so only a cancelled job lets the instance close.
        assert streams.close(PATIENCE_S)
        assert (streams.state, streams.failure) == (State.NOT_RUNNING, None)
        assert (received(log), log.committed("app")) == ([], {})
        may_continue.touch()
        with Streams(topology, config, spark=backend.context) as again:
            again.run_until_caught_up(PATIENCE_S)
        assert received(log) == [b"A"]
