"""What a user may give to a step: checked when it is said, and the step is named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from penstock.dsl.functions import plain_function
from penstock.errors import TopologyException
from penstock.serdes.builtin import Serde
from penstock.topology.offset_reset import AutoOffsetReset


def check_serdes(step: str, **serdes: Any) -> None:
    """Each is a serde, or None."""
    for option, serde in serdes.items():
        if serde is None or isinstance(serde, Serde):
            continue
        hint = "Serdes.string() or Serdes.json(Order), for example."
        if callable(serde) and getattr(serde, "__module__", "") == "penstock.serdes.builtin":
            hint = f"Call it: Serdes.{serde.__name__}()."
        raise TypeError(f"{step}: {option}= takes a serde, not {_shown(serde)}. {hint}")


def check_reading(step: str, timestamp: Any, offset_reset: Any) -> None:
    """A timestamp extractor and an offset reset, where they are given."""
    if isinstance(timestamp, type):
        raise TypeError(
            f"{step}: timestamp= takes a function of (record, partition_time), not the class "
            f"{timestamp.__name__}. Call it: {timestamp.__name__}()."
        )
    if timestamp is not None:
        plain_function(timestamp, 2, step=step, what="the timestamp extractor")
    if offset_reset is not None and not isinstance(offset_reset, AutoOffsetReset):
        raise TypeError(
            f"{step}: offset_reset= takes an AutoOffsetReset, not {_shown(offset_reset)}. "
            "AutoOffsetReset.earliest(), for example."
        )


def check_partitioner(step: str, partitioner: Callable[..., Any] | None) -> None:
    """A function of (topic, key, value, partitions), where one is given."""
    if partitioner is not None:
        plain_function(partitioner, 4, step=step, what="the partitioner")


def check_store_builder(builder: Any, *, step: str) -> None:
    """A builder of a store, not its supplier or name."""
    if hasattr(builder, "build") and hasattr(builder, "name"):
        return
    hint = "Stores.key_value_store_builder(supplier, key, value) makes one of a supplier."
    raise TypeError(f"{step}: a store is added by its builder, not {_shown(builder)}. {hint}")


def check_options(step: str, given: Mapping[str, Any], known: Iterable[str]) -> None:
    """No option that the step does not have."""
    for option in given:
        if option not in known:
            raise TypeError(
                f"{step} got an unexpected keyword argument {option!r}. "
                f"Options: {', '.join(known)}."
            )


def check_same_builder(step: str, here: Any, there: Any) -> None:
    """Both streams or tables came from one builder."""
    if here is not there:
        raise TopologyException(
            f"{step}: the two sides come from different StreamsBuilders. "
            "Make both with the same builder."
        )


def _shown(thing: Any) -> str:
    if callable(thing):
        return f"{getattr(thing, '__name__', type(thing).__name__)!r}"
    return f"{type(thing).__name__}: {thing!r}"
