"""One SparkContext for all tests of a run, because a JVM takes seconds to start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.harness import config_of
from engine.spark.application import SparkApplication
from penstock import Topology
from penstock.engine.spark.backend import SparkBackend, open_backend

StartApplication = Callable[..., SparkApplication]


@pytest.fixture(scope="session")
def backend() -> Iterator[SparkBackend]:
    backend = open_backend(config_of("tests"), master="local[2]")
    yield backend
    backend.close()


@pytest.fixture
def start(tmp_path: Path, backend: SparkBackend) -> Iterator[StartApplication]:
    """Starts applications on Spark and closes them at the end."""
    opened: list[SparkApplication] = []

    def start(topology: Topology, topics: dict[str, int], **options: Any) -> SparkApplication:
        opened.append(SparkApplication(backend, topology, tmp_path, topics, **options))
        return opened[-1]

    yield start
    for app in opened:
        app.close()
