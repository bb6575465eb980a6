"""Runs batches on Spark, one job per batch. Only this package imports PySpark.

A lane is a slot of a stage, one Spark task.

    backend            `SparkBackend`: the SparkContext in which jobs run
    shared_context     the SparkContext that penstock creates
    settings           masters, and the settings of that context
    gateway            starts the JVM and reads its output
    jvm                starts it without spark-submit, which is faster
    class_archive      Spark's classes in a form that Java loads faster
    daemon             the process from which Spark forks the Python workers of this host
    cluster            waits for executors and follows their number
    placement          assigns lanes to the hosts that hold their state
    job_watch          logs what a job waits for
    job                `SparkCompute`: a plan becomes a job, which returns outcomes
    lane               runs in Spark's Python workers
    lanes              `SparkLanes`: the long-lived tasks of continuous mode
    keepalive          keeps those workers alive while the application is idle
    errors             translates Spark's exceptions, retries lost jobs
    pyspark_internals  PySpark's private names
    sources/           topics and stores as data of Spark: the format `penstock`
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.config import StreamsConfig
from penstock.extras import explain_missing_extra

with explain_missing_extra():
    from penstock.engine.spark.backend import SparkBackend, open_backend
    from penstock.engine.spark.cluster import ClusterMonitor

# Everything else is imported while the JVM starts.
if TYPE_CHECKING:
    from penstock.engine.continuous.lane_starter import OnConnection, OnEnded
    from penstock.engine.layout.execution_graph import ExecutionGraph
    from penstock.engine.packaging.bundle import Bundle
    from penstock.engine.spark.job import SparkCompute
    from penstock.engine.spark.lanes import SparkLanes
    from penstock.log.base import Log
    from penstock.topology.topology import Topology


def compute_on(
    backend: SparkBackend, topology: Topology, config: StreamsConfig, graph: ExecutionGraph,
    source: Log,
) -> SparkCompute:
    """Return a `Compute` for an application. The caller closes the backend."""
    from penstock.engine.packaging.bundle import Bundle  # noqa: PLC0415
    from penstock.engine.packaging.pack import pack_bundle  # noqa: PLC0415
    from penstock.engine.spark.job import SparkCompute  # noqa: PLC0415

    with backend.report_jvm_loss():
        backend.wait_for_slots()
        bundle = Bundle(topology, config, graph, source.address, backend.parallelism(config))
        bundle = _for_hosts_of(backend, bundle)
        return SparkCompute(backend, bundle, pack_bundle(bundle))


def lanes_on(
    backend: SparkBackend, topology: Topology, config: StreamsConfig, graph: ExecutionGraph,
    source: Log, on_connection: OnConnection, on_ended: OnEnded,
) -> SparkLanes:
    """Return what starts the lanes of an application in continuous mode."""
    from penstock.engine.packaging.bundle import Bundle  # noqa: PLC0415
    from penstock.engine.packaging.pack import pack_bundle  # noqa: PLC0415
    from penstock.engine.spark.lanes import SparkLanes  # noqa: PLC0415

    with backend.report_jvm_loss():
        backend.wait_for_slots()
        backend.warn_of_starved_jobs(config)
        bundle = Bundle(topology, config, graph, source.address, backend.lane_slots(config))
        bundle = _for_hosts_of(backend, bundle)
        return SparkLanes(
            backend, bundle, pack_bundle(bundle), on_connection=on_connection, on_ended=on_ended
        )


def _for_hosts_of(backend: SparkBackend, bundle: Bundle) -> Bundle:
    """Return the bundle for workers that may be on other hosts."""
    if backend.is_local:
        return bundle
    return replace(bundle, staging_threshold_bytes=None, is_local=False)


__all__ = [
    "ClusterMonitor", "SparkBackend", "compute_on", "lanes_on", "open_backend",
]
