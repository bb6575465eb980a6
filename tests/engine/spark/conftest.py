"""One Spark for all tests of a run: a JVM takes seconds to start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.harness import config_of
from engine.spark.application import SparkApplication
from penstock import Topology
from penstock.engine.spark.backend import SparkBackend, open_backend

MakeApplication = Callable[..., SparkApplication]


@pytest.fixture(scope="session")
def place() -> Iterator[SparkBackend]:
    place = open_backend(config_of("tests"), master="local[2]")
    yield place
    place.close()


@pytest.fixture
def started(tmp_path: Path, place: SparkBackend) -> Iterator[MakeApplication]:
    """Starts applications on Spark; they are closed at the end."""
    opened: list[SparkApplication] = []

    def start(topology: Topology, topics: dict[str, int], **options: Any) -> SparkApplication:
        opened.append(SparkApplication(place, topology, tmp_path, topics, **options))
        return opened[-1]

    yield start
    for app in opened:
        app.close()
