"""Runs the tasks of cases on Spark, in one session for all cases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock import StreamsConfig, Topology
from penstock.engine.compute import Compute, ComputeFactory
from penstock.engine.layout.execution_graph import ExecutionGraph
from penstock.engine.spark import compute_on
from penstock.engine.spark.backend import PARALLELISM, SparkBackend, open_backend
from penstock.log import Log


def start_on(backend: SparkBackend) -> ComputeFactory:
    """Run tasks on a Spark backend. Topics of cases have one partition, so one lane suffices."""

    def start(
        topology: Topology, config: StreamsConfig, graph: ExecutionGraph, source: Log
    ) -> Compute:
        config = config.with_(extra={**config.extra, PARALLELISM: "1"})
        return compute_on(backend, topology, config, graph, source)

    return start


@contextmanager
def started_spark() -> Iterator[ComputeFactory]:
    """A Spark session with two cores."""
    backend = open_backend(StreamsConfig(application_id="conformance"), master="local[2]")
    try:
        yield start_on(backend)
    finally:
        backend.close()
