"""The errors for optional packages that are not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.errors import MissingDependencyException

_SPARK = (
    "PySpark is not installed. Install it with `pip install 'penstock[spark]'`, or run without "
    'Spark: master="inline".'
)
_KAFKA = "confluent-kafka is not installed. Install it with `pip install 'penstock[kafka]'`."

#: The message for each missing package.
_ADVICE = {"pyspark": _SPARK, "py4j": _SPARK, "confluent_kafka": _KAFKA}


@contextmanager
def explain_missing_extra() -> Iterator[None]:
    """Raise `MissingDependencyException` for an import of a missing optional package."""
    try:
        yield
    except ModuleNotFoundError as error:
        advice = _ADVICE.get((error.name or "").partition(".")[0])
        if advice is None:
            raise
        raise MissingDependencyException(advice) from error
