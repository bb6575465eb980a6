"""What runs the tasks of cases on Spark: one Spark for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock import StreamsConfig, Topology
from penstock.engine.compute import Compute, ComputeFactory
from penstock.engine.layout.execution_graph import ExecutionGraph
from penstock.engine.spark import compute_in
from penstock.engine.spark.backend import PARALLELISM, SparkBackend, spark_place
from penstock.log import Log


def in_place(place: SparkBackend) -> ComputeFactory:
    """Starts what computes. Topics of cases have one partition, so one lane does."""

    def start(
        topology: Topology, config: StreamsConfig, graph: ExecutionGraph, source: Log
    ) -> Compute:
        config = config.with_(extra={**config.extra, PARALLELISM: "1"})
        return compute_in(place, topology, config, graph, source)

    return start


@contextmanager
def started_spark() -> Iterator[ComputeFactory]:
    """A Spark of two cores, as long as it is needed."""
    place = spark_place(StreamsConfig(application_id="conformance"), master="local[2]")
    try:
        yield in_place(place)
    finally:
        place.close()
