"""Settings take the types that their documentation names, and have one type when they are read."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import assert_type

from penstock import StreamsConfig

config = StreamsConfig(
    application_id="orders", log=Path("orders.db"), state_dir=Path("state"),
    commit_interval_ms=timedelta(seconds=1), max_task_idle_ms=timedelta(0), poll_ms=50,
    task_timeout_ms=timedelta(minutes=1), topology_optimization="all",
)
assert_type(config.log, str | None)
assert_type(config.state_dir, str)
assert_type(config.commit_interval_ms, int | None)
assert_type(config.max_task_idle_ms, int)
assert_type(config.topology_optimization, frozenset[str])
assert_type(StreamsConfig(application_id="orders").task_timeout_ms, int)
