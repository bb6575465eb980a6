"""Measures the nodes of a task record by record, if the recording level is DEBUG or TRACE."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from penstock.processors.base import Forward
from penstock.record import Headers
from penstock.task.runtime import Runtime


def measured_source(forward: Forward, runtime: Runtime) -> Forward:
    """The function of a source, with the latency and the lateness of each record.

    The ages of its records are measured at all levels, see `Meters.consumed`.
    """
    meters = runtime.meters
    if not meters.records("process-latency"):
        return forward
    latency, lateness = meters.meter("process-latency"), meters.meter("lateness")

    def measured(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        lateness.record(runtime.stream_time - timestamp)
        started = perf_counter()
        forward(key, value, timestamp, headers)
        latency.record((perf_counter() - started) * 1000)

    return measured


def measured_end(name: str, process: Forward, runtime: Runtime) -> Forward:
    """The function of a processor without children, with the ages of its records."""
    if not runtime.meters.records("process-latency"):
        return process
    age = runtime.meters.meter("e2e-latency", name)

    def measured(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        process(key, value, timestamp, headers)
        age.record(runtime.now() - timestamp)

    return measured
