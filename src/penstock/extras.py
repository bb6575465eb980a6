"""Optional packages: a clear error where one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.errors import MissingDependencyException

_ADVICE = {
    "pyspark": "PySpark is not installed. Install it with `pip install 'penstock[spark]'`, or run "
               "without Spark: master=\"inline\".",
    "confluent_kafka": "confluent-kafka is not installed. Install it with "
                       "`pip install 'penstock[kafka]'`.",
}


@contextmanager
def explain_missing_extra() -> Iterator[None]:
    """Raises `MissingDependencyException` if an import inside needs an optional package."""
    try:
        yield
    except ModuleNotFoundError as error:
        advice = _ADVICE.get((error.name or "").partition(".")[0])
        if advice is None:
            raise
        raise MissingDependencyException(advice) from error
