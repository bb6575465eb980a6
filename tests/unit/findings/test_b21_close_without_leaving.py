"""`close(leave_group=False)` keeps the lease, or says that the log cannot do that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock import Serdes, Streams, StreamsBuilder, StreamsConfig
from penstock.log import open_log


@pytest.fixture
def streams(tmp_path: Path) -> Streams:
    text = Serdes.string()
    builder = StreamsBuilder()
    builder.stream("in", key=text, value=text).to("out", key=text, value=text)
    with open_log(tmp_path / "log.db") as log:
        log.create_topic("in")
        log.create_topic("out")
    config = StreamsConfig(
        application_id="app", log=str(tmp_path / "log.db"), state_dir=str(tmp_path / "state")
    )
    started = Streams(builder.build(), config, master="inline")
    started.run_until_caught_up(60)
    return started


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "penstock.app"]


def test_lease_is_kept_in_a_file(
    streams: Streams, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert streams.close(60, leave_group=False)
    assert warnings(caplog) == []
    with open_log(tmp_path / "log.db") as log:
        candidate = log.candidate("app")
        assert candidate.try_acquire() is None
        assert candidate.holder is not None


@pytest.mark.parametrize("leave_group", [True, False])
def test_log_whose_client_always_leaves_is_reported(
    streams: Streams, caplog: pytest.LogCaptureFixture, leave_group: bool
) -> None:
    source: Any = streams._instance.log
    source.capabilities = replace(source.capabilities, is_remote=True)
    assert streams.close(60, leave_group=leave_group)
    expected = [] if leave_group else [
        "close(leave_group=False) has no effect: the client of the log leaves the group."
    ]
    assert warnings(caplog) == expected
