"""One SparkContext for all tests of a run, because a JVM takes seconds to start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import penstock.spark
from engine.harness import config_of
from engine.spark.application import SparkApplication
from penstock import Topology
from penstock.engine.spark.backend import SparkBackend, open_backend
from penstock.log import Log, open_log

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


@pytest.fixture(scope="session")
def spark(backend: SparkBackend) -> SparkSession:
    """A session in which the data source is registered."""
    session = SparkSession(backend.context)
    penstock.spark.register(session)
    return session


@pytest.fixture
def source_log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "log.db") as log:
        yield log
