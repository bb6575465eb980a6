"""Kafka Streams for Python, running on Apache Spark.

Reading order, along the path of a record:

    dsl/         the user's API: StreamsBuilder, KStream, KTable
    topology/    the plan, its rewrite rules, the topology and its description
    task/        one sub-topology over one partition, record by record
    processors/  one module for each family of operators
    serdes/      serializers and deserializers
    stores/      state stores, in four layers over bytes
    native/      the code that every record passes, in C; each function has a Python twin
    testing/     TopologyTestDriver
    log/         the log interface; the embedded log and Kafka implement it
    clients/     Producer, Consumer and AdminClient for any log
    engine/      runs a topology on a log: plan, compute on Spark, commit
    queries/     reads the committed state of a running application
    web/         the dashboard in the browser
    broker/      starts a local Kafka broker, for development and tests
    app.py       Streams: an application and its life cycle
    cli/         the command line

The stub `__init__.pyi` lists the public names.
"""

import os as _os
import sys as _sys
from typing import Any as _Any

import lazy_loader

if _os.path.exists(f"{__file__}i"):
    _load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
else:
    # The package is in an archive (spark-submit --py-files). This extracts the stub for a moment.
    from importlib import resources as _resources

    with _resources.as_file(_resources.files(__name__) / "__init__.pyi") as _stub:
        _load, __dir__, __all__ = lazy_loader.attach_stub(__name__, str(_stub))


def __getattr__(name: str) -> _Any:
    if name in __all__ or name.startswith("__"):
        return _load(name)
    from penstock.java_classes import missing_name_error  # noqa: PLC0415  (only for errors)

    raise missing_name_error(name, __all__, _sys._getframe(1))
