from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.instances import PATIENCE_S, TEXT, CreateStreams, upper
from penstock import Streams, StreamsConfig, Topology
from penstock.log import Log, open_log


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = open_log(tmp_path / "log.db")
    log.create_topic("in", 2)
    log.create_topic("out", 1)
    yield log
    log.close()


@pytest.fixture
def create_streams(tmp_path: Path, log: Log) -> Iterator[CreateStreams]:
    """A function that creates instances on the log. They are closed at the end."""
    created: list[Streams] = []

    def create(topology: Topology | None = None, *, extra: Any = (), **settings: Any) -> Streams:
        options = {
            name: settings.pop(name) for name in ("compute", "on_batch", "on_standby", "out")
            if name in settings
        }
        config = StreamsConfig(**{
            "application_id": "app", "log": tmp_path / "log.db",
            "state_dir": tmp_path / "state", "default_key_serde": TEXT,
            "default_value_serde": TEXT,
            "extra": {"session.timeout.ms": "10000", **dict(extra)}, **settings,
        })
        created.append(Streams(topology or upper(), config, master="inline", **options))
        return created[-1]

    yield create
    for streams in created:
        streams.close(PATIENCE_S)
