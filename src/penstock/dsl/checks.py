"""Checks of the arguments of DSL steps. Each error names the step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from penstock.dsl.functions import check_function
from penstock.errors import TopologyException
from penstock.serdes.arguments import given_serde
from penstock.serdes.base import Serde
from penstock.topology.offset_reset import AutoOffsetReset


def as_serdes(step: str, **serdes: Any) -> list[Serde[Any] | None]:
    """Return each argument as a serde: a serde, the serde of a type, or None."""
    return [given_serde(serde, option, where=step) for option, serde in serdes.items()]


def check_source_options(step: str, timestamp: Any, offset_reset: Any) -> None:
    """Raise unless the timestamp extractor and the offset reset are valid or None."""
    if isinstance(timestamp, type):
        raise TypeError(
            f"{step}: timestamp= takes a function of (record, partition_time), not the class "
            f"{timestamp.__name__}. Call it: {timestamp.__name__}()."
        )
    if timestamp is not None:
        check_function(timestamp, 2, step=step, what="the timestamp extractor")
    if offset_reset is not None and not isinstance(offset_reset, AutoOffsetReset):
        raise TypeError(
            f"{step}: offset_reset= takes an AutoOffsetReset, not {_describe(offset_reset)}. "
            "AutoOffsetReset.earliest(), for example."
        )


def check_partitioner(step: str, partitioner: Callable[..., Any] | None) -> None:
    """Raise unless the partitioner is a function of (topic, key, value, partitions) or None."""
    if partitioner is not None:
        check_function(partitioner, 4, step=step, what="the partitioner")


def check_store_builder(builder: Any, *, step: str) -> None:
    """Raise unless the argument is a store builder; suppliers and names are common mistakes."""
    if hasattr(builder, "build") and hasattr(builder, "name"):
        return
    hint = "Create one with Stores.key_value_store_builder(supplier, key, value)."
    raise TypeError(f"{step}: a store is added as a StoreBuilder, not {_describe(builder)}. {hint}")


def given_options(**options: Any) -> dict[str, Any]:
    """Return the options that are not None."""
    return {name: option for name, option in options.items() if option is not None}


def check_options(step: str, given: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raise for an option that the step does not have."""
    for option in given:
        if option not in known:
            raise TypeError(
                f"{step} got an unexpected keyword argument {option!r}. "
                f"Options: {', '.join(known)}."
            )


def check_same_builder(step: str, builder: Any, other_builder: Any) -> None:
    """Raise if two streams or tables were created by different builders."""
    if builder is not other_builder:
        raise TopologyException(
            f"{step}: the two sides come from different StreamsBuilders. "
            "Create both with the same builder."
        )


def _describe(argument: Any) -> str:
    if callable(argument):
        return f"{getattr(argument, '__name__', type(argument).__name__)!r}"
    return f"{type(argument).__name__}: {argument!r}"
