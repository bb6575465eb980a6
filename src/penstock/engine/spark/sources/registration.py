"""Registers the data source in a Spark session."""

from __future__ import annotations

import contextlib
import os
import sys

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from penstock.engine.spark.pyspark_internals import worker_settings
from penstock.engine.spark.settings import is_local_master
from penstock.engine.spark.sources.source import PenstockDataSource


def register(session: SparkSession) -> None:
    """Register the data source. Doing it again has no effect.

    Spark 4.3 lets it replace the one that Spark has found itself. Other versions may refuse.
    """
    with chosen_python(session):
        try:
            session.dataSource.register(PenstockDataSource)
        except AnalysisException as error:
            if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                raise


def chosen_python(session: SparkSession) -> contextlib.AbstractContextManager[None]:
    """Choose the Python of functions: on this host the present one, unless the user chose one."""
    try:
        context = session.sparkContext
    except AttributeError:
        # A session of Spark Connect has none.
        return contextlib.nullcontext()
    if "PYSPARK_PYTHON" in os.environ or not is_local_master(context.master or ""):
        return contextlib.nullcontext()
    # User functions can import what the application can import.
    paths = os.pathsep.join(map(os.path.abspath, sys.path))
    return worker_settings(context, sys.executable, {"PYTHONPATH": paths})
