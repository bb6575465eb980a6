"""Spark: a batch is one job. The only part of penstock that knows pyspark.

    session.py   where jobs run: the user's session, or one of our own
    gateway.py   starts the JVM, listens to it, forgets one that has ended
    job.py       `SparkCompute`: a plan becomes a job, the job answers outcomes
    lane.py      what runs in Spark's Python workers
    warmth.py    keeps those workers alive while nothing happens
    errors.py    what Spark raises, in our words
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.config import StreamsConfig
from penstock.engine.layout.execution_graph import ExecutionGraph
from penstock.engine.packaging.bundle import Bundle
from penstock.engine.packaging.pack import pack
from penstock.extras import explain_missing_extra
from penstock.log.base import Log
from penstock.topology.topology import Topology

with explain_missing_extra():
    from penstock.engine.spark.backend import SparkBackend, open_backend
    from penstock.engine.spark.job import SparkCompute


def start_spark(
    topology: Topology, config: StreamsConfig, graph: ExecutionGraph, source: Log, *,
    spark: Any = None, master: str | None = None,
) -> SparkCompute:
    """What computes the batches of an application on Spark; a `ComputeFactory` of the loop."""
    place = open_backend(config, spark=spark, master=master)
    try:
        return compute_on(place, topology, config, graph, source, on_close=place.close)
    except BaseException:
        place.close()
        raise


def compute_on(
    place: SparkBackend, topology: Topology, config: StreamsConfig, graph: ExecutionGraph,
    source: Log, **options: Any,
) -> SparkCompute:
    """The same in a place that is there already, and stays."""
    with place.telling_loss():
        bundle = Bundle(topology, config, graph, source.address, place.parallelism(config))
        if not place.is_local:
            bundle = replace(bundle, staging_threshold_bytes=None)
        return SparkCompute(place, bundle, pack(bundle), **options)


__all__ = ["SparkCompute", "SparkBackend", "compute_on", "open_backend", "start_spark"]
