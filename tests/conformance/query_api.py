"""Repeats the queries of a case with `store` and `query`, whose results must be the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from conformance.dump import query_store, show_pairs, show_stored, show_version
from penstock import (
    KeyQuery,
    MultiVersionedKeyQuery,
    Query,
    QueryableStoreTypes,
    RangeQuery,
    StateQueryRequest,
    TimestampedKeyQuery,
    TimestampedRangeQuery,
    VersionedKeyQuery,
    WindowKeyQuery,
    WindowRangeQuery,
)
from penstock.queries.service import StoreQueries

_FULL_TYPES = {
    "timestamped_key_value": QueryableStoreTypes.timestamped_key_value_store(),
    "timestamped_key_value_with_headers":
        QueryableStoreTypes.timestamped_key_value_store_with_headers(),
    "timestamped_window": QueryableStoreTypes.timestamped_window_store(),
    "timestamped_window_with_headers": QueryableStoreTypes.timestamped_window_store_with_headers(),
    "session_with_headers": QueryableStoreTypes.session_store_with_headers(),
}


def check_queries(queries: StoreQueries, query: dict[str, Any], kind: str) -> Any:
    """Return the result of a query through `store`, and check it against that of `query`."""
    name = query["store"]
    info = queries.source.stores[name]
    store: Any = queries.store(name, _FULL_TYPES.get(info.kind), stale=True)
    found = query_store(store, query, kind)
    for request, show in _requests(query, info.kind):
        if info.is_global or "headers" in info.kind:
            continue
        result = queries.query(StateQueryRequest.in_store(name).with_query(request))
        shown = show(result.partition_results[0].result)
        expected = found
        if isinstance(request, KeyQuery | RangeQuery):
            expected = _without_timestamps(found)
        assert shown == expected, f"{request}: {shown} instead of {expected}"
    return found


def _requests(query: dict[str, Any], kind: str) -> Iterator[tuple[Query[Any], Any]]:
    """The query objects for a query of a case, and how their results are shown."""
    is_descending = bool(query.get("reverse"))
    if "versioned" in kind:
        yield from _versioned_requests(query, is_descending)
    elif "get" in query:
        yield KeyQuery.with_key(query["get"]), show_stored
        if "timestamped" in kind:
            yield TimestampedKeyQuery.with_key(query["get"]), show_stored
    elif "range" in query:
        kinds = (RangeQuery, TimestampedRangeQuery) if "timestamped" in kind else (RangeQuery,)
        for each in kinds:
            ranged = each.with_range(*query["range"])
            yield ranged.with_descending_keys() if is_descending else ranged, show_pairs
    elif "fetch" in query and not is_descending:
        times = query.get("from", 0), query.get("to", 0)
        yield WindowKeyQuery.with_key_and_window_start_range(query["fetch"], *times), show_pairs
    elif "fetch_all" in query and not is_descending:
        yield WindowRangeQuery.with_window_start_range(*query["fetch_all"]), show_pairs
    elif "sessions" in query and not is_descending:
        yield WindowRangeQuery.with_key(query["sessions"]), show_pairs


def _versioned_requests(
    query: dict[str, Any], is_descending: bool
) -> Iterator[tuple[Query[Any], Any]]:
    if "versions" in query:
        many = MultiVersionedKeyQuery.with_key(query["versions"])
        many = many.from_time(query.get("from")).to_time(query.get("to"))
        many = many.with_descending_timestamps() if is_descending \
            else many.with_ascending_timestamps()
        yield many, lambda found: [show_version(each) for each in found]
    elif "as_of" in query:
        one = VersionedKeyQuery.with_key(query["get"]).as_of(query["as_of"])
        yield one, show_version
    else:
        yield VersionedKeyQuery.with_key(query["get"]), show_version


def _without_timestamps(found: Any) -> Any:
    if isinstance(found, list):
        return [[key, _without_timestamps(value)] for key, value in found]
    return {"value": found["value"]} if isinstance(found, dict) else found
