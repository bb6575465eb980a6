"""The commands of records to stores (README.md, section 5): functions of (store, key, words) that
return a string, or None if the command has no result."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from conformance.cases import InvalidCase
from conformance.values import text
from penstock import Serdes, Window, Windowed

Command = Callable[[Any, Any, list[str]], "str | None"]


def _kv(store: Any, key: Any, words: list[str]) -> str | None:
    match words[0]:
        case "put":
            store.put(key, words[1])
        case "put_null":
            store.put(key, None)
        case "put_if_absent":
            return _plain(store.put_if_absent(key, words[1]))
        case "put_all":
            store.put_all([_pair(entry) for entry in words[1].split(",")])
        case "delete":
            return _plain(store.delete(key))
        case "get":
            return _plain(store.get(key))
        case "all":
            return _entries(store.all())
        case "reverse_all":
            return _entries(store.reverse_all())
        case "range":
            return _entries(store.range(_bound(words[1]), _bound(words[2])))
        case "reverse_range":
            return _entries(store.reverse_range(_bound(words[1]), _bound(words[2])))
        case "prefix":
            return _entries(store.prefix_scan(words[1], Serdes.string().serialize))
        case _:
            raise InvalidCase(f"kv_ops: {words[0]}")
    return None


def _window(store: Any, key: Any, words: list[str]) -> str | None:
    match words[0]:
        case "put":
            store.put(key, words[1], int(words[2]))
        case "put_null":
            store.put(key, None, int(words[1]))
        case "fetch_at":
            return _plain(store.fetch(key, int(words[1])))
        case "fetch":
            return _entries(store.fetch(key, int(words[1]), int(words[2])))
        case "backward_fetch":
            return _entries(store.backward_fetch(key, int(words[1]), int(words[2])))
        case "all":
            return _entries(store.all())
        case "backward_all":
            return _entries(store.backward_all())
        case "fetch_all":
            return _entries(store.fetch_all(int(words[1]), int(words[2])))
        case "fetch_keys":
            keys = _bound(words[1]), _bound(words[2])
            return _entries(store.fetch(*keys, int(words[3]), int(words[4])))
        case _:
            raise InvalidCase(f"window_ops: {words[0]}")
    return None


def _session(store: Any, key: Any, words: list[str]) -> str | None:
    match words[0]:
        case "put":
            store.put(Windowed(key, Window(int(words[1]), int(words[2]))), words[3])
        case "remove":
            store.remove(Windowed(key, Window(int(words[1]), int(words[2]))))
        case "fetch":
            return _entries(store.fetch(key))
        case "backward_fetch":
            return _entries(store.backward_fetch(key))
        case "fetch_keys":
            return _entries(_fetch_keys(store, _bound(words[1]), _bound(words[2])))
        case "fetch_session":
            return _plain(store.fetch_session(key, int(words[1]), int(words[2])))
        case "find":
            return _entries(store.find_sessions(key, int(words[1]), int(words[2])))
        case "backward_find":
            return _entries(store.backward_find_sessions(key, int(words[1]), int(words[2])))
        case _:
            raise InvalidCase(f"session_ops: {words[0]}")
    return None


def _versioned(store: Any, key: Any, words: list[str]) -> str | None:
    match words[0]:
        case "put":
            return str(store.put(key, words[1], int(words[2])))
        case "put_null":
            return str(store.put(key, None, int(words[1])))
        case "delete":
            return _version(store.delete(key, int(words[1])))
        case "get":
            return _version(store.get(key))
        case "get_at":
            return _version(store.get(key, int(words[1])))
        case _:
            raise InvalidCase(f"versioned_ops: {words[0]}")


def _bound(word: str) -> str | None:
    return None if word == "-" else word


def _fetch_keys(store: Any, first: str | None, last: str | None) -> Any:
    # penstock has one `fetch` for one key and for a range: an open range needs both arguments.
    return store.fetch(first, last) if last is not None else store.find_sessions(
        first, None, 0, 2**63 - 1
    )


def _pair(entry: str) -> tuple[str, str]:
    key, value = entry.split("=")[:2]
    return key, value


def _plain(stored: Any) -> str:
    return text(stored.value if hasattr(stored, "timestamp") else stored)


def _entries(entries: Iterable[tuple[Any, Any]]) -> str:
    return ",".join(f"{text(key)}={_plain(value)}" for key, value in entries)


def _version(record: Any) -> str:
    if record is None:
        return "null"
    until = "" if record.valid_to is None else record.valid_to
    return f"{text(record.value)}@{record.timestamp}..{until}"


COMMANDS: dict[str, Command] = {
    "kv_ops": _kv,
    "window_ops": _window,
    "session_ops": _session,
    "versioned_ops": _versioned,
}
