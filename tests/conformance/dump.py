"""Reads stores as JSON: all entries, or the result of a query (README.md, sections 6 and 7)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from conformance.cases import InvalidCase
from conformance.values import JsonScalar, canonical, json_of
from penstock import Serdes, Windowed
from penstock.stores.typed.key_value import (
    KeyValueStore,
    TimestampedKeyValueStore,
    TimestampedKeyValueStoreWithHeaders,
)
from penstock.stores.typed.session import SessionStore, SessionStoreWithHeaders
from penstock.stores.typed.versioned import VersionedKeyValueStore
from penstock.stores.typed.window import (
    TimestampedWindowStore,
    TimestampedWindowStoreWithHeaders,
    WindowStore,
)

_UNLISTED_PARTS = ("SUBSCRIPTION-STATE-STORE", "OUTERSHARED")
_UNLISTED_ENDS = ("-subscription-store", "-shared-join-store")
_LARGEST = 2**63 - 1

#: Subclasses before their base class.
_KINDS: tuple[tuple[type, str], ...] = (
    (VersionedKeyValueStore, "versioned"),
    (TimestampedKeyValueStoreWithHeaders, "timestamped_kv_headers"),
    (TimestampedKeyValueStore, "timestamped_kv"),
    (KeyValueStore, "kv"),
    (TimestampedWindowStoreWithHeaders, "timestamped_window_headers"),
    (TimestampedWindowStore, "timestamped_window"),
    (WindowStore, "window"),
    (SessionStoreWithHeaders, "session_headers"),
    (SessionStore, "session"),
)


def is_listed(name: str) -> bool:
    """False for the internal stores of joins, whose contents are not compared."""
    return not name.endswith(_UNLISTED_ENDS) and not any(p in name for p in _UNLISTED_PARTS)


def store_kind(store: Any) -> str | None:
    """The kind of a store as an expectation names it, or None if its entries cannot be listed."""
    return next((kind for store_type, kind in _KINDS if isinstance(store, store_type)), None)


def dump_store(store: Any, keys: list[Any], *, cached: bool, named: bool) -> Any:
    """All entries of a store, or None if they cannot be listed."""
    kind = store_kind(store)
    if kind is None:
        return None
    try:
        if kind == "versioned":
            entries = list(_latest_versions(store, keys))
        elif "kv" in kind:
            entries = [_row(key, stored) for key, stored in store.all()]
        elif cached:
            # A cache still shows rows that are past the retention of the store under it.
            return None
        elif "window" in kind:
            entries = [_window_row(key, stored) for key, stored in store.all()]
            if kind == "window" and not named:
                kind, entries = _as_join_store(entries, store.persistent)
        else:
            found = store.find_sessions(None, None, 0, _LARGEST)
            entries = [_session_row(key, stored) for key, stored in found]
    except (TypeError, ValueError):
        # Some stores cannot be listed, such as a window store of size 0.
        return None
    if not all(_is_known(entry.pop("raw", None)) for entry in entries):
        return None
    if "window" in kind or "session" in kind:
        entries.sort(key=_place)
    return {"kind": kind, "entries": entries}


def query_store(store: Any, query: dict[str, Any], kind: str | None = None) -> Any:
    """The result of one query of the case. `kind`: that of the store, if it is a view of one."""
    kind = kind or store_kind(store) or ""
    reverse = bool(query.get("reverse"))
    if kind == "versioned":
        return _query_versioned(store, query, reverse)
    if "kv" in kind:
        return _query_key_values(store, query, reverse)
    if "window" in kind:
        return _query_windows(store, query, reverse)
    if "session" in kind:
        fetch = store.backward_fetch if reverse else store.fetch
        return show_pairs(fetch(query["sessions"]))
    raise InvalidCase(f"This store cannot be queried: {query!r}.")


def _query_versioned(store: Any, query: dict[str, Any], reverse: bool) -> Any:
    if "versions" in query:
        found = store.versions(
            query["versions"], query.get("from"), query.get("to"), reverse=reverse
        )
        return [show_version(record) for record in found]
    if "as_of" in query:
        return show_version(store.get(query["get"], query["as_of"]))
    return show_version(store.get(query["get"]))


def _query_key_values(store: Any, query: dict[str, Any], reverse: bool) -> Any:
    if "get" in query:
        return show_stored(store.get(query["get"]))
    if "prefix" in query:
        return show_pairs(store.prefix_scan(query["prefix"], Serdes.string().serialize))
    scan = store.reverse_range if reverse else store.range
    return show_pairs(scan(*query["range"]))


def _query_windows(store: Any, query: dict[str, Any], reverse: bool) -> Any:
    if "fetch_at" in query:
        return show_stored(store.fetch(query["fetch_at"], query.get("at", 0)))
    if "fetch_all" in query:
        fetch_all = store.backward_fetch_all if reverse else store.fetch_all
        return show_pairs(fetch_all(*query["fetch_all"]))
    fetch = store.backward_fetch if reverse else store.fetch
    return show_pairs(fetch(query["fetch"], query.get("from", 0), query.get("to", 0)))


def show_pairs(found: Iterable[tuple[Any, Any]]) -> list[Any]:
    """The entries of a scan."""
    return [[json_of(key), show_stored(stored)] for key, stored in found]


def show_stored(stored: Any) -> Any:
    """A stored value, with its timestamp if it has one."""
    if stored is None:
        return None
    shown = _value_part(stored)
    shown.pop("raw")
    return shown


def show_version(record: Any) -> Any:
    """A version of a value."""
    if record is None:
        return None
    shown = {"value": json_of(record.value), "ts": record.timestamp}
    if record.valid_to is not None:
        shown["to"] = record.valid_to
    return shown


def _latest_versions(store: Any, keys: list[Any]) -> Iterable[dict[str, Any]]:
    seen: list[Any] = []
    for key in keys:
        if key in seen:
            continue
        seen.append(key)
        try:
            record = store.get(key)
        except Exception:  # the key belongs to another topic and has another type
            continue
        if record is not None:
            yield {"key": json_of(key), "value": json_of(record.value), "ts": record.timestamp}


def _value_part(stored: Any) -> dict[str, Any]:
    """The value and, if the store keeps one, its timestamp. `raw` is the value as stored."""
    if hasattr(stored, "timestamp"):
        return {"value": json_of(stored.value), "ts": stored.timestamp, "raw": stored.value}
    return {"value": json_of(stored), "raw": stored}


def _row(key: Any, stored: Any) -> dict[str, Any]:
    row = {"key": json_of(key), **_value_part(stored)}
    headers = getattr(stored, "headers", ())
    if headers:
        row["headers"] = [[name, value and value.decode()] for name, value in headers]
    return row


def _window_row(key: Windowed[Any], stored: Any) -> dict[str, Any]:
    if key.window.end <= key.window.start:
        raise ValueError("Kafka Streams has no empty windows.")
    return {"key": json_of(key.key), "start": key.window.start, **_value_part(stored)}


def _session_row(key: Windowed[Any], stored: Any) -> dict[str, Any]:
    aggregate = getattr(stored, "aggregation", stored)
    return {
        "key": json_of(key.key), "start": key.window.start, "end": key.window.end,
        "value": json_of(aggregate),
    }


def _as_join_store(
    entries: list[dict[str, Any]], persistent: bool
) -> tuple[str, list[dict[str, Any]]]:
    """Kafka Streams shows the plain window stores of its joins as stores with timestamps and
    headers. The timestamp is -1 on disk and the window start in memory."""
    return "timestamped_window_headers", [
        {**entry, "ts": -1 if persistent else entry["start"]} for entry in entries
    ]


def as_join_query(query: dict[str, Any], found: Any, persistent: bool) -> Any:
    """The result of a query of such a store: with timestamps."""
    def shown(start: int, stored: Any) -> Any:
        return stored and {**stored, "ts": -1 if persistent else start}

    if "fetch_at" in query:
        return shown(query.get("at", 0), found)
    return [
        [key, shown(key["start"] if isinstance(key, dict) else key, stored)]
        for key, stored in found
    ]


def _is_known(value: Any) -> bool:
    return value is None or isinstance(
        value, (str, int, float, dict, list, bytes, Windowed, JsonScalar)
    )


def _place(entry: dict[str, Any]) -> tuple[bytes, int, int]:
    # Java compares strings by UTF-16 units.
    return canonical(entry["key"]).encode("utf-16-be"), entry["start"], entry.get("end", 0)
