"""Errors for Java names: an unknown attribute such as `mapValues` names its Python method."""

from __future__ import annotations

import re
from abc import ABCMeta
from typing import TYPE_CHECKING, Any

#: Class -> Java name -> what to use in Python, where the Python name is not the same in snake case.
_SPECIAL: dict[str, dict[str, str]] = {
    "KStream": {
        "branch": "split().branch(predicate)",
        "count": "group_by_key().count()",
        "reduce": "group_by_key().reduce(reducer)",
        "aggregate": "group_by_key().aggregate(initializer, aggregator)",
        "through": "repartition(), or to() and StreamsBuilder.stream()",
        "transform": "process()",
        "flatTransform": "process()",
        "transformValues": "process_values()",
        "flatTransformValues": "process_values()",
    },
    "KTable": {
        "to": "to_stream().to(topic)",
        "foreach": "to_stream().foreach(action)",
        "print": "to_stream().print()",
        "queryableStoreName": "queryable_store_name",
    },
    "Materialized": {
        "as": "Materialized(name) or Materialized(supplier=...)",
        "with": "Materialized(key=..., value=...)",
        "withKeySerde": "Materialized(key=...)",
        "withValueSerde": "Materialized(value=...)",
        "withCachingEnabled": "Materialized(caching=True)",
        "withCachingDisabled": "Materialized(caching=False)",
        "withLoggingEnabled": "Materialized(log_config={...})",
        "withLoggingDisabled": "Materialized(logging=False)",
        "withRetention": "Materialized(retention=...)",
        "withStoreType": "Materialized(store_type=...)",
    },
    "TimeWindows": {
        "ofSizeWithNoGrace": "TimeWindows.of(size)",
        "ofSizeAndGrace": "TimeWindows.of(size, grace=...)",
        "grace": "TimeWindows.of(size, grace=...)",
    },
    "SlidingWindows": {
        "ofTimeDifferenceWithNoGrace": "SlidingWindows.of(time_difference)",
        "ofTimeDifferenceAndGrace": "SlidingWindows.of(time_difference, grace)",
    },
    "SessionWindows": {
        "ofInactivityGapWithNoGrace": "SessionWindows.of(inactivity_gap)",
        "ofInactivityGapAndGrace": "SessionWindows.of(inactivity_gap, grace)",
    },
    "JoinWindows": {
        "ofTimeDifferenceWithNoGrace": "JoinWindows.of(time_difference)",
        "ofTimeDifferenceAndGrace": "JoinWindows.of(time_difference, grace)",
    },
    "Serdes": {
        "ByteArray": "Serdes.bytes()",
        "ByteBuffer": "Serdes.bytes()",
        "Bytes": "Serdes.bytes()",
        "int": "Serdes.long(), or Serdes.integer() for 4 bytes",
        "str": "Serdes.string()",
        "bool": "Serdes.boolean()",
        "serdeFrom": "Serde.of(serializer, deserializer)",
        "WrapperSerde": "Serde.of(serializer, deserializer)",
    },
}


def _missing(owner: type[Any], name: str, obj: object) -> AttributeError:
    """The error for an attribute that does not exist."""
    text = f"'{owner.__name__}' has no attribute '{name}'"
    hint = _hint(owner, name)
    if hint is None:
        # Python adds the most similar name.
        return AttributeError(text, name=name, obj=obj)
    return AttributeError(f"{text}. In Python, use {hint}.")


def _hint(owner: type[Any], name: str) -> str | None:
    """Return what to use instead of a name of Java, also if it is written in snake case."""
    java_name = re.sub(r"_([a-z])", lambda found: found[1].upper(), name.rstrip("_"))
    hint = _SPECIAL.get(owner.__name__, {}).get(java_name)
    if hint is None and not name.startswith("_"):
        snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", java_name).lower()
        known = dir(owner)
        hint = next((each for each in (snake, java_name.lower()) if each in known), None)
    return hint


class _JavaNameHints(ABCMeta):
    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Any:
            raise _missing(cls, name, cls)


class JavaNames(metaclass=_JavaNameHints):
    """The base of classes with Kafka's names: an unknown Java name is an error with a hint."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise _missing(type(self), name, self)
