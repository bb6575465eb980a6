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
def explain_missing_extra(extra: str | None = None) -> Iterator[None]:
    """Raise `MissingDependencyException` for an import of a missing optional package.

    `extra` is the extra with all packages that are imported in the block, if there is one.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        advice = _ADVICE.get(package)
        if extra is not None and package != "penstock":
            advice = (
                f"The package '{package}' is not installed. Install it with "
                f"`pip install 'penstock[{extra}]'`."
            )
        if advice is None:
            raise
        raise MissingDependencyException(advice) from error
