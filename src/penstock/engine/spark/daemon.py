"""The process from which Spark forks Python workers on this host: `spark.python.daemon.module`.

PySpark's own daemon imports nothing, so each worker imports PySpark, penstock and PyArrow for half
a second. This one imports them once, before the first fork. None of them may start a thread that a
fork would lose. jemalloc, which PyArrow contains, restarts its thread after a fork.
"""

from __future__ import annotations

import contextlib
import importlib

from pyspark.daemon import manager

MODULES = (
    "pyspark.worker", "penstock.engine.spark.lane", "penstock.engine.spark.lanes",
    "penstock.engine.worker.worker", "penstock.engine.continuous.lane",
    "penstock.log.embedded.log", "penstock.log.kafka.log",
)


def import_modules() -> None:
    """Import what workers need. A package may be missing: that of a log which is not used."""
    for name in MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


if __name__ == "__main__":
    import_modules()
    manager()
