"""Runs the queries of `Streams.query` on one partition of a store.

The choice of queries for each store is Kafka's. Key-value stores support KeyQuery and RangeQuery,
timestamped ones also TimestampedKeyQuery and TimestampedRangeQuery. Versioned stores support
VersionedKeyQuery and MultiVersionedKeyQuery, window stores WindowKeyQuery and WindowRangeQuery by
window start, session stores WindowRangeQuery by key.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from penstock.errors import SchemaRegistryException, SerializationException
from penstock.queries.custom_stores import run_custom_query
from penstock.queries.position import PositionBound
from penstock.queries.query_types import (
    KeyQuery,
    MultiVersionedKeyQuery,
    Query,
    QueryConfig,
    RangeQuery,
    ResultOrder,
    TimestampedKeyQuery,
    TimestampedRangeQuery,
    VersionedKeyQuery,
    WindowKeyQuery,
    WindowRangeQuery,
)
from penstock.queries.results import FailureReason, QueryResult
from penstock.queries.source import PartitionReader, StoreInfo
from penstock.queries.store_types import (
    KEY_VALUE,
    SESSION,
    TIMESTAMPED_KEY_VALUE,
    TIMESTAMPED_WINDOW,
    Convert,
)
from penstock.stores.api.results import StoreIterator

#: Runs a query on a typed store. The result is a value, or an iterator over the store.
Handler = Callable[[Any, Any], Any]

_ONLY_START_RANGE = (
    "This store ({store}) doesn't know how to execute the given query ({query}) because "
    "WindowStores only supports WindowRangeQuery.with_window_start_range."
)
_ONLY_KEY = (
    "This store ({store}) doesn't know how to execute the given query ({query}) because "
    "SessionStores only support WindowRangeQuery.with_key."
)


def run_query(
    info: StoreInfo, reader: PartitionReader, query: Query[Any], bound: PositionBound,
    *, collect_info: bool,
) -> QueryResult[Any]:
    """Run a query on a partition that has reached the bound."""
    started = time.perf_counter_ns() if collect_info else 0
    result = _run(info, reader, query, bound, QueryConfig(collect_info))
    if collect_info:
        elapsed = time.perf_counter_ns() - started
        result.add_execution_info(f"Handled in {info.kind} store '{info.name}' in {elapsed}ns")
    return result


def _run(
    info: StoreInfo, reader: PartitionReader, query: Query[Any], bound: PositionBound,
    config: QueryConfig,
) -> QueryResult[Any]:
    refused = _refuse(info, query)
    if refused is not None:
        return refused
    handler = _HANDLERS.get((type(query), _family(info.kind)))
    if not bound.is_unbounded:
        reader.reach(bound.position)
    session = reader.acquire()
    is_released = False
    try:
        position = reader.position(session)
        is_known = _is_known(query, info.kind)
        if info.kind == "custom" and hasattr(session.store, "query"):
            is_known = True
            handler = partial(run_custom_query, bound=bound, config=config)
        if is_known and not bound.is_unbounded and not reader.reaches(session, bound.position):
            result = QueryResult.not_up_to_bound(position, bound, reader.partition)
        elif handler is None or not is_known:
            result = QueryResult.for_unknown_query_type(query, f"{info.kind} '{info.name}'")
        else:
            found = _handle(handler, session.store, query)
            convert = _conversion(query, info.kind)
            if isinstance(found, QueryResult):
                result = found
            elif isinstance(found, StoreIterator | Iterator):
                rows = _rows(found, convert, reader, session)
                next(rows)
                is_released = True
                result = QueryResult.for_result(
                    rows if isinstance(query, MultiVersionedKeyQuery) else StoreIterator(rows)
                )
            else:
                result = QueryResult.for_result(
                    found if found is None or convert is None else convert(found)
                )
        result.position = position.copy()
        return result
    finally:
        if not is_released:
            reader.release(session)


def _handle(handler: Handler, store: Any, query: Query[Any]) -> Any:
    """Run a handler. An exception of the store is a failure; wrong arguments and serdes raise."""
    try:
        return handler(store, query)
    except (SerializationException, SchemaRegistryException, TypeError, ValueError):
        raise
    except Exception as error:
        return QueryResult.for_failure(
            FailureReason.STORE_EXCEPTION,
            f"Store {store.name} failed to handle the query {query}: "
            f"{type(error).__name__}: {error}",
        )


def _rows(
    found: Any, convert: Convert, reader: PartitionReader, session: Any
) -> Iterator[Any]:
    """Yield None once, then the entries. Releases the session at the end."""
    try:
        yield None
        if convert is None:
            yield from found
        else:
            for key, value in found:
                yield key, convert(value)
    finally:
        reader.release(session)


def _refuse(info: StoreInfo, query: Query[Any]) -> QueryResult[Any] | None:
    """The failure of a query that the store refuses before it looks at the bound, or None."""
    family = _family(info.kind)
    if family == "versioned" and isinstance(query, KeyQuery | RangeQuery):
        raise NotImplementedError(
            f"Versioned stores do not support {type(query).__name__} queries at this time. "
            "Use VersionedKeyQuery."
        )
    message = None
    if family == "window" and isinstance(query, WindowRangeQuery) and query.time_from is None:
        message = _ONLY_START_RANGE
    if family == "session" and isinstance(query, WindowRangeQuery) and query.key is None:
        message = _ONLY_KEY
    if message is None:
        return None
    return QueryResult.for_failure(
        FailureReason.UNKNOWN_QUERY_TYPE, message.format(store=info.name, query=query)
    )


def _is_known(query: Query[Any], kind: str) -> bool:
    """Whether a store checks the bound before it refuses the query, as Kafka's stores do.

    All stores know all queries, except those with timestamps: only timestamped key-value stores
    know them. A class of queries of the caller is unknown.
    """
    if isinstance(query, TimestampedKeyQuery | TimestampedRangeQuery):
        return TIMESTAMPED_KEY_VALUE.accepts(kind)
    return any(type(query) is known for known, _ in _HANDLERS)


def _family(kind: str) -> str:
    """The queries of a kind of store: "key_value", "versioned", "window" or "session"."""
    for family in ("versioned", "key_value", "window", "session"):
        if family in kind:
            return family
    return kind


def _conversion(query: Query[Any], kind: str) -> Convert:
    """How a stored value is shown. Only KeyQuery and RangeQuery hide timestamps, as in Kafka."""
    if isinstance(query, KeyQuery | RangeQuery):
        return KEY_VALUE.conversions.get(kind)
    if isinstance(query, TimestampedKeyQuery | TimestampedRangeQuery):
        return TIMESTAMPED_KEY_VALUE.conversions.get(kind)
    if kind == "timestamped_window_with_headers":
        return TIMESTAMPED_WINDOW.conversions[kind]
    return SESSION.conversions.get(kind)


def _get(store: Any, query: KeyQuery[Any, Any] | TimestampedKeyQuery[Any, Any]) -> Any:
    return store.get(query.key)


def _range(store: Any, query: RangeQuery[Any, Any] | TimestampedRangeQuery[Any, Any]) -> Any:
    bounds = query.lower_bound, query.upper_bound
    if query.result_order is ResultOrder.DESCENDING:
        return store.reverse_range(*bounds)
    return store.range(*bounds)


def _version(store: Any, query: VersionedKeyQuery[Any, Any]) -> Any:
    return store.get_version(query.key, query.as_of_timestamp)


def _versions(store: Any, query: MultiVersionedKeyQuery[Any, Any]) -> Any:
    if (
        query.time_from is not None and query.time_to is not None
        and query.time_from > query.time_to
    ):
        raise ValueError(
            "The `from_time` timestamp must be smaller than the `to_time` timestamp."
        )
    ascending = query.result_order is ResultOrder.ASCENDING
    return store.versions(query.key, query.time_from, query.time_to, not ascending)


def _windows_of_key(store: Any, query: WindowKeyQuery[Any, Any]) -> Any:
    return store.fetch(query.key, query.time_from, query.time_to)


def _windows(store: Any, query: WindowRangeQuery[Any, Any]) -> Any:
    return store.fetch_all(query.time_from, query.time_to)


def _sessions(store: Any, query: WindowRangeQuery[Any, Any]) -> Any:
    return store.fetch(query.key)


_HANDLERS: dict[tuple[type, str], Handler] = {
    (KeyQuery, "key_value"): _get,
    (TimestampedKeyQuery, "key_value"): _get,
    (RangeQuery, "key_value"): _range,
    (TimestampedRangeQuery, "key_value"): _range,
    (VersionedKeyQuery, "versioned"): _version,
    (MultiVersionedKeyQuery, "versioned"): _versions,
    (WindowKeyQuery, "window"): _windows_of_key,
    (WindowRangeQuery, "window"): _windows,
    (WindowRangeQuery, "session"): _sessions,
}
