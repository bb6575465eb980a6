"""Store commands and the results of Kafka Streams 4.3.0, taken from the conformance cases."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from penstock.serdes.builtin import Serdes
from penstock.stores import Stores, VersionedRecord
from penstock.windows import Window, Windowed
from unit.stores.fakes import FakeContext

CASES = [
    json.loads(line)
    for line in (Path(__file__).parent / "store_commands.jsonl").read_text().splitlines()
]
S = Serdes.string()


def builder_of(store: dict[str, Any]) -> Any:
    kind, name = store["supplier"], store["name"]
    supplier = {
        "persistent_kv": lambda: Stores.persistent_key_value_store(name),
        "in_memory_kv": lambda: Stores.in_memory_key_value_store(name),
        "lru_kv": lambda: Stores.lru_map(name, store["max_entries"]),
        "versioned": lambda: Stores.persistent_versioned_key_value_store(
            name, store["history_ms"], store.get("segment_ms")
        ),
        "persistent_window": lambda: Stores.persistent_window_store(
            name, store["retention_ms"], store["size_ms"], store.get("retain_duplicates", False)
        ),
        "in_memory_window": lambda: Stores.in_memory_window_store(
            name, store["retention_ms"], store["size_ms"], store.get("retain_duplicates", False)
        ),
        "persistent_session": lambda: Stores.persistent_session_store(
            name, store["retention_ms"]
        ),
        "in_memory_session": lambda: Stores.in_memory_session_store(name, store["retention_ms"]),
    }[kind]()
    builders = {
        "kv": Stores.key_value_store_builder,
        "versioned": Stores.versioned_key_value_store_builder,
        "window": Stores.window_store_builder,
        "session": Stores.session_store_builder,
    }
    chosen = builders[store["builder"]](supplier, S, S)
    return chosen.with_caching_enabled() if store.get("caching") else chosen


def text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, Windowed):
        return f"[{value.key}@{value.window.start}/{value.window.end}]"
    return str(value)


def joined(rows: Iterable[tuple[Any, Any]]) -> str:
    return ",".join(f"{text(key)}={text(value)}" for key, value in rows)


def bound(part: str) -> str | None:
    return None if part == "-" else part


def kv(store: Any, key: str, parts: list[str]) -> str | None:
    match parts:
        case ["put", value]:
            store.put(key, value)
        case ["put_null"]:
            store.put(key, None)
        case ["put_all", pairs]:
            store.put_all([tuple(pair.split("=")) for pair in pairs.split(",")])
        case ["put_if_absent", value]:
            return text(store.put_if_absent(key, value))
        case ["delete" | "get" as call]:
            return text(getattr(store, call)(key))
        case ["all" | "reverse_all" as call]:
            return joined(getattr(store, call)())
        case ["range" | "reverse_range" as call, low, high]:
            return joined(getattr(store, call)(bound(low), bound(high)))
        case ["prefix", prefix]:
            return joined(store.prefix_scan(prefix, S))
        case _:
            raise AssertionError(parts)
    return None


def window(store: Any, key: str, parts: list[str]) -> str | None:
    match parts:
        case ["put", value, ts]:
            store.put(key, value, int(ts))
        case ["put_null", ts]:
            store.put(key, None, int(ts))
        case ["fetch_at", ts]:
            return text(store.fetch(key, int(ts)))
        case ["fetch" | "backward_fetch" as call, low, high]:
            return joined(getattr(store, call)(key, int(low), int(high)))
        case ["all" | "backward_all" as call]:
            return joined(getattr(store, call)())
        case ["fetch_all", low, high]:
            return joined(store.fetch_all(int(low), int(high)))
        case ["fetch_keys", first, last, low, high]:
            return joined(store.fetch(bound(first), bound(last), int(low), int(high)))
        case _:
            raise AssertionError(parts)
    return None


def session(store: Any, key: str, parts: list[str]) -> str | None:
    match parts:
        case ["put", start, end, value]:
            store.put(Windowed(key, Window(int(start), int(end))), value)
        case ["remove", start, end]:
            store.remove(Windowed(key, Window(int(start), int(end))))
        case ["fetch" | "backward_fetch" as call]:
            return joined(getattr(store, call)(key))
        case ["fetch_keys", first, last]:
            return joined(store.fetch(first, last))
        case ["fetch_session", start, end]:
            return text(store.fetch_session(key, int(start), int(end)))
        case ["find", end, start]:
            return joined(store.find_sessions(key, int(end), int(start)))
        case ["backward_find", end, start]:
            return joined(store.backward_find_sessions(key, int(end), int(start)))
        case _:
            raise AssertionError(parts)
    return None


def versioned(store: Any, key: str, parts: list[str]) -> str | None:
    def shown(record: VersionedRecord[str] | None) -> str:
        return "null" if record is None else f"{record.value}@{record.timestamp}.."

    match parts:
        case ["put", value, ts]:
            return str(store.put(key, value, int(ts)))
        case ["put_null", ts]:
            return str(store.put(key, None, int(ts)))
        case ["delete", ts]:
            return shown(store.delete(key, int(ts)))
        case ["get"]:
            return shown(store.get(key))
        case ["get_at", ts]:
            return shown(store.get(key, int(ts)))
        case _:
            raise AssertionError(parts)


RUN = {"kv_ops": kv, "window_ops": window, "session_ops": session, "versioned_ops": versioned}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
@pytest.mark.parametrize("advancing", [True, False], ids=["advancing", "one batch"])
def test_store_returns_what_kafka_streams_returned(case: dict[str, Any], advancing: bool) -> None:
    config = case.get("config", {})
    context = FakeContext(max_bytes=int(config.get("statestore.cache.max.bytes", 0)))
    store = builder_of(case["topology"][0]["store"]).build()
    store.init(context)
    command = RUN[case["topology"][2]["processor"]["f"]]
    results = []
    for at, event in enumerate(case["input"]):
        context.at(event["ts"], at)
        result = command(store, event["key"], event["value"].split(" "))
        if result is not None:
            results.append((at, result))
        store.commit()
        if advancing:
            store.advance()
    expect = case["expect"]
    assert results == [(row["at"], row["value"]) for row in expect["output"]["out"]]
    assert len(context.dropped) == expect.get("dropped", 0)
    for topic, count in expect.get("internal_topics", {}).items():
        assert len(context.logged) == count, topic
