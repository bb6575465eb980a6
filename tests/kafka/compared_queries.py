"""Queries for Kafka Streams and for penstock: the topology, its input, and the requests.

The topology is that of tests/kafka/java/KindsOfStores.java. A request is the JSON object that
tests/kafka/java/RunQueries.java reads.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from penstock import (
    AggregationWithHeaders,
    Headers,
    Materialized,
    Processor,
    Record,
    SessionWindows,
    Stores,
    StreamsBuilder,
    TimeWindows,
    Topology,
    ValueTimestampHeaders,
    Windowed,
)
from penstock.windows import Window

PARTITIONS = 2
SIZE_MS = 10_000
RETENTION_MS = 120_000
WRITTEN = (
    Stores.key_value_store_builder(Stores.persistent_key_value_store("plain"), str, str),
    Stores.key_value_store_builder(Stores.in_memory_key_value_store("memory"), str, str),
    Stores.timestamped_key_value_store_with_headers_builder(
        Stores.in_memory_key_value_store("headers"), str, str
    ),
    Stores.timestamped_key_value_store_with_headers_builder(
        Stores.persistent_timestamped_key_value_store_with_headers("persistent-headers"), str, str
    ),
    Stores.window_store_builder(
        Stores.persistent_window_store("windows", RETENTION_MS, SIZE_MS), str, str
    ),
    Stores.timestamped_window_store_with_headers_builder(
        Stores.in_memory_window_store("windows-with-headers", RETENTION_MS, SIZE_MS), str, str
    ),
    Stores.session_store_with_headers_builder(
        Stores.in_memory_session_store("sessions-with-headers", RETENTION_MS), str, str
    ),
)
TIMESTAMPED = ("counts", "headers", "persistent-headers")
KEY_VALUE = ("plain", "memory", *TIMESTAMPED)
WINDOWS = ("windows", "counts-by-window", "windows-with-headers")
SESSIONS = ("counts-by-session", "sessions-with-headers")
STORES = (*KEY_VALUE, "prices", *WINDOWS, *SESSIONS, "names")

#: All times are after this one. The changelogs of old rows would be compacted at once.
BASE_MS = int(time.time()) // 600 * 600_000 - 600_000
#: (topic, key, value, time after BASE_MS). In partition 1 the last records expire earlier ones.
INPUT: tuple[tuple[str, str, str | None, int], ...] = (
    ("words", "ann", "tea", 1_000), ("words", "bob", "milk", 1_500),
    ("words", "ann", "jam", 2_000), ("words", "eve", "tea", 4_000),
    ("words", "ann", "tea", 12_000), ("words", "dan", "rye", 12_500),
    ("words", "cid", "tea", 9_000), ("words", "bob", "milk", 23_000),
    ("words", "gus", "tea", 13_000), ("words", "é", "ü", 24_000),
    ("words", "eve", "jam", 21_000), ("words", "ann", "rye", 10_000),
    ("words", "zoe", "z", 400_000),
    ("prices", "tea", "3", 1_000), ("prices", "tea", "4", 2_000), ("prices", "milk", "1", 2_500),
    ("prices", "tea", None, 3_000), ("prices", "tea", "5", 5_000), ("prices", "rye", "7", 5_000),
    ("prices", "rye", None, 6_000), ("prices", "milk", "2", 1_500), ("prices", "jam", "9", 40_000),
    ("prices", "tea", "6", 2_500), ("prices", "oat", "8", 70_000), ("prices", "milk", "3", 71_000),
    ("names", "1", "one", 100),
)


class Writer(Processor[str, str, None, None]):
    """Writes each record to each of the stores."""

    def init(self, context: Any) -> None:
        self._stores = {each.name: context.get_state_store(each.name) for each in WRITTEN}

    def process(self, record: Record[str, str]) -> None:
        key, value, at = record.key, record.value, record.timestamp
        start = at - at % SIZE_MS
        headers = Headers([("word", value.encode())])
        with_headers = ValueTimestampHeaders(value, at, headers)
        self._stores["plain"].put(key, value)
        self._stores["memory"].put(key, value)
        self._stores["headers"].put(key, with_headers)
        self._stores["persistent-headers"].put(key, with_headers)
        self._stores["windows"].put(key, value, start)
        self._stores["windows-with-headers"].put(key, with_headers, start)
        self._stores["sessions-with-headers"].put(
            Windowed(key, Window(start, at)), AggregationWithHeaders(value, headers)
        )


def kinds_of_stores() -> Topology:
    builder = StreamsBuilder()
    for each in WRITTEN:
        builder.add_state_store(each)
    words = builder.stream("words", key=str, value=str)
    words.process(Writer, *(each.name for each in WRITTEN))
    by_key = words.group_by_key()
    by_key.count(store="counts")
    by_key.windowed_by(TimeWindows.of(SIZE_MS, grace=SIZE_MS)).count(store=Materialized(
        supplier=Stores.persistent_timestamped_window_store(
            "counts-by-window", RETENTION_MS, SIZE_MS
        ), key=str, value=int,
    ))
    by_key.windowed_by(SessionWindows.of(5_000, grace=SIZE_MS)).count(store=Materialized(
        supplier=Stores.persistent_session_store("counts-by-session", RETENTION_MS),
        key=str, value=int,
    ))
    builder.table("prices", store=Materialized(
        supplier=Stores.persistent_versioned_key_value_store("prices", 60_000), key=str, value=str
    ))
    builder.global_table("names", key=str, value=str, store="names")
    return builder.build()


# ---- requests --------------------------------------------------------------------------------

#: One call creates the query, the others change it.
Calls = tuple[tuple[Any, ...], ...]

KEYS: tuple[Calls, ...] = (
    (("withKey", "ann"),), (("withKey", "bob"),), (("withKey", "nobody"),),
    (("withKey", "ann"), ("skipCache",)), (("withKey", "bob"), ("skipCache",)),
)
RANGES: tuple[Calls, ...] = (
    (("withRange", "b", "e"),), (("withRange", "ann", "eve"),), (("withLowerBound", "bob"),),
    (("withUpperBound", "dan"),), (("withNoBounds",),), (("withNoBounds",), ("withAscendingKeys",)),
    (("withNoBounds",), ("withDescendingKeys",)), (("withRange", None, None),),
    (("withRange", "bob", "eve"), ("withDescendingKeys",)), (("withRange", "x", "a"),),
    (("withLowerBound", "bob"), ("withDescendingKeys",)), (("withRange", "m", "n"),),
)
VERSIONS: tuple[Calls, ...] = tuple(
    (("withKey", key), *rest)
    for key in ("tea", "milk", "rye", "jam", "nothing")
    for rest in (
        (), *((("asOf", at),) for at in (
            -1, 0, 1_000, 2_400, 3_500, 5_500, 11_500, 40_500, 900_000
        )),
    )
)
HISTORIES: tuple[Calls, ...] = tuple(
    (("withKey", key), *bounds, *order)
    for key in ("tea", "milk", "rye", "jam", "nothing")
    for bounds in (
        (), (("fromTime", 2_500),), (("toTime", 2_500),), (("fromTime", 1_500), ("toTime", 2_000)),
        (("fromTime", 3_000), ("toTime", 4_000)), (("fromTime", 5_000), ("toTime", 1_000)),
        (("fromTime", None), ("toTime", None)), (("fromTime", 50_000), ("toTime", 90_000)),
    )
    for order in ((), (("withAscendingTimestamps",),), (("withDescendingTimestamps",),))
)
TIMES = ((0, 500_000), (0, 0), (10_000, 20_000), (10_001, 19_999), (20_000, 0), (300_000, 500_000))
WINDOWS_OF_KEY: tuple[Calls, ...] = tuple(
    (("withKeyAndWindowStartRange", key, *times),)
    for key in ("ann", "bob", "dan", "zoe", "nobody") for times in TIMES
)
WINDOWS_OF_TIME: tuple[Calls, ...] = tuple((("withWindowStartRange", *times),) for times in TIMES)
SESSIONS_OF_KEY: tuple[Calls, ...] = tuple(
    (("withKey", key),) for key in ("ann", "bob", "eve", "gus", "zoe", "nobody")
)
#: Query and its calls -> the stores that support it. The others get the first one only.
QUERIES: tuple[tuple[str, tuple[Calls, ...], tuple[str, ...]], ...] = (
    ("KeyQuery", KEYS, KEY_VALUE), ("RangeQuery", RANGES, KEY_VALUE),
    ("TimestampedKeyQuery", KEYS, TIMESTAMPED), ("TimestampedRangeQuery", RANGES, TIMESTAMPED),
    ("VersionedKeyQuery", VERSIONS, ("prices",)),
    ("MultiVersionedKeyQuery", HISTORIES, ("prices",)),
    ("WindowKeyQuery", WINDOWS_OF_KEY, WINDOWS),
    ("WindowRangeQuery", WINDOWS_OF_TIME, WINDOWS),
    ("WindowRangeQuery", SESSIONS_OF_KEY, SESSIONS),
)
#: Requests that are not for all partitions, or have a condition.
CONDITIONS: tuple[dict[str, Any], ...] = (
    {"partitions": [1]}, {"partitions": [0, 7]}, {"partitions": []}, {"active": True},
    {"bound": ["words", 0, 0]}, {"bound": ["words", 0, 1_000]}, {"bound": ["words", 1, 1_000]},
    {"bound": ["words", 9, 1_000]}, {"bound": ["other", 0, 0]}, {"bound": ["other", 9, 0]},
    {"bound": ["words", 0, 1_000], "active": True},
    {"bound": ["words", 0, 1_000], "partitions": [0, 7]},
)


#: Queries without the key or the bound that they require.
WITHOUT_KEY: tuple[tuple[str, str, Calls], ...] = (
    ("counts", "KeyQuery", (("withKey", None),)),
    ("counts", "TimestampedKeyQuery", (("withKey", None),)),
    ("prices", "VersionedKeyQuery", (("withKey", None),)),
    ("prices", "MultiVersionedKeyQuery", (("withKey", None),)),
    ("counts-by-session", "WindowRangeQuery", (("withKey", None),)),
    ("counts", "RangeQuery", (("withLowerBound", None),)),
    ("counts", "RangeQuery", (("withUpperBound", None),)),
    ("counts", "TimestampedRangeQuery", (("withLowerBound", None),)),
    ("counts", "TimestampedRangeQuery", (("withUpperBound", None),)),
)


def requests() -> Iterator[dict[str, Any]]:
    """Yield all requests. Their names are unique."""
    for query, variants, supporting in QUERIES:
        for store in STORES:
            for calls in variants if store in supporting else variants[:1]:
                yield request(store, query, calls)
            yield request(store, query, variants[0], {"bound": ["words", 1, 500]})
            yield request(store, query, variants[0], {"bound": ["prices", 0, 500]})
    for condition in CONDITIONS:
        yield request("counts", "KeyQuery", KEYS[0], condition)
        yield request("plain", "RangeQuery", RANGES[4], condition)
        yield request("windows", "WindowKeyQuery", WINDOWS_OF_KEY[0], condition)
        yield request("counts-by-session", "WindowRangeQuery", SESSIONS_OF_KEY[0], condition)
        yield request("prices", "VersionedKeyQuery", VERSIONS[0], condition)
        yield request("names", "KeyQuery", KEYS[0], condition)
    yield request("nothing", "KeyQuery", KEYS[0])
    for store, query, calls in WITHOUT_KEY:
        yield request(store, query, calls)


def request(
    store: str, query: str, calls: Calls, condition: dict[str, Any] | None = None
) -> dict[str, Any]:
    chain = "".join(f".{name}({', '.join(map(repr, given))})" for name, *given in calls)
    absolute = [
        [BASE_MS + each if isinstance(each, int) else each for each in call] for call in calls
    ]
    return {
        "name": f"{store}: {query}{chain} {condition or ''}", "store": store, "query": query,
        "calls": absolute, **(condition or {}),
    }
