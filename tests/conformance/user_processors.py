"""The processors of the cases (README.md, section 5); `store_commands.py` has those for stores.

A processor is a class with `init` and `process`; its supplier creates a new instance for each call.
Simple processors are functions of (context, record), for `process` and `process_values`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from conformance.cases import InvalidCase
from conformance.combiners import joiner
from conformance.functions import (
    Boom,
    Spec,
    arguments,
    long_argument,
    name_of,
    predicate,
    scalar,
    string_argument,
)
from conformance.store_commands import COMMANDS
from conformance.values import equal, text, wrap_long
from penstock import PunctuationType, Record, ValueAndTimestamp
from penstock.stores.typed.key_value import TimestampedKeyValueStore

Process = Callable[[Any, Any], None]


class Supplier:
    """Creates one processor for each call, and names the stores that it connects."""

    def __init__(self, make: Callable[[], Any], own_stores: Iterable[Any]) -> None:
        make()
        self._make = make
        self.stores = tuple(own_stores)

    def __call__(self) -> Any:
        return self._make()


def processor_supplier(spec: Spec, own_stores: Iterable[Any] = ()) -> Supplier:
    """For `process` and for the processor API."""
    return Supplier(lambda: _processor(spec), own_stores)


def fixed_key_supplier(spec: Spec, own_stores: Iterable[Any] = ()) -> Supplier:
    """For `process_values`."""
    if name_of(spec) not in _FIXED_KEY:
        raise InvalidCase(f"Unknown fixed-key processor {name_of(spec)!r}.")
    return Supplier(lambda: _processor(spec, fixed_key=True), own_stores)


def transformer_supplier(spec: Spec, own_stores: Iterable[Any] = ()) -> Supplier:
    """For `transform_values`."""
    return Supplier(lambda: Transformer(spec), own_stores)


def put_into(store: str) -> Callable[[], Any]:
    """The processor of a global store: puts each record into it."""
    return lambda: PutInto(store)


def _processor(spec: Spec, fixed_key: bool = False) -> Any:
    name, given = name_of(spec), arguments(spec)
    if name in _STATEFUL and not fixed_key:
        return _STATEFUL[name](given)
    if name in COMMANDS:
        return StoreProcessor(given, COMMANDS[name])
    if name == "map" and fixed_key:
        return Simple(_map_value(given))
    if name in _SIMPLE:
        return Simple(_SIMPLE[name](given))
    raise InvalidCase(f"Unknown processor {name!r}.")


class Simple:
    """A processor that is one function of (context, record)."""

    def __init__(self, function: Process) -> None:
        self.function = function

    def init(self, context: Any) -> None:
        self.context = context

    def process(self, record: Any) -> None:
        self.function(self.context, record)

    def close(self) -> None:
        pass


class Stateful:
    """A processor with arguments, a context and a store."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec

    def init(self, context: Any) -> None:
        self.context = context
        self.open()

    def open(self) -> None:
        """Called once, after the context is set."""

    def store(self) -> Any:
        return self.context.get_state_store(string_argument(self.spec, "store"))

    def schedule(self, punctuate: Callable[[int], None]) -> Any:
        wall = self.spec.get("clock") == "wall"
        clock = PunctuationType.WALL_CLOCK_TIME if wall else PunctuationType.STREAM_TIME
        every = long_argument(self.spec, "every")
        if "start" in self.spec:
            return self.context.schedule(every, clock, punctuate, start=self.spec["start"])
        return self.context.schedule(every, clock, punctuate)

    def close(self) -> None:
        pass


# ---- simple processors ----


def _forward(spec: dict[str, Any]) -> Process:
    return lambda c, r: c.forward(r)


def _drop(spec: dict[str, Any]) -> Process:
    return lambda c, r: None


def _map(spec: dict[str, Any]) -> Process:
    key_fn = scalar(spec.get("key_fn", "key"))
    value_fn = scalar(spec.get("value_fn", "identity"))
    return lambda c, r: c.forward(
        r.with_key(key_fn(r.key, r.value)).with_value(value_fn(r.key, r.value))
    )


def _map_value(spec: dict[str, Any]) -> Process:
    value_fn = scalar(spec.get("value_fn"))
    return lambda c, r: c.forward(r.with_value(value_fn(r.key, r.value)))


def _filter(spec: dict[str, Any]) -> Process:
    accepts = predicate(spec.get("fn"))

    def process(c: Any, r: Any) -> None:
        if accepts(r.key, r.value):
            c.forward(r)

    return process


def _stamp(spec: dict[str, Any]) -> Process:
    return lambda c, r: c.forward(
        r.with_value(f"{text(r.value)}@{r.timestamp}|{c.current_stream_time_ms}")
    )


def _system_time(spec: dict[str, Any]) -> Process:
    return lambda c, r: c.forward(r.with_value(f"{text(r.value)}#{c.current_system_time_ms}"))


def _meta(spec: dict[str, Any]) -> Process:
    def process(c: Any, r: Any) -> None:
        m = c.record_metadata
        shown = "none" if m is None else f"{text(m.topic)}/{m.partition}/{m.offset}"
        c.forward(r.with_value(shown))

    return process


def _header_set(spec: dict[str, Any]) -> Process:
    name, value = string_argument(spec, "name"), spec.get("v", "")
    data = None if value is None else text(value).encode()
    return lambda c, r: c.forward(r.with_headers(r.headers.add(name, data)))


def _header_remove(spec: dict[str, Any]) -> Process:
    name = string_argument(spec, "name")
    return lambda c, r: c.forward(r.with_headers(r.headers.remove(name)))


def _header_value(spec: dict[str, Any]) -> Process:
    name = string_argument(spec, "name")

    def process(c: Any, r: Any) -> None:
        data = r.headers.last(name)
        c.forward(r.with_value(None if data is None else bytes(data).decode(errors="replace")))

    return process


def _shift_ts(spec: dict[str, Any]) -> Process:
    ms = long_argument(spec, "ms")
    return lambda c, r: c.forward(r.with_timestamp(wrap_long(r.timestamp + ms)))


def _fan_out(spec: dict[str, Any]) -> Process:
    n, step = long_argument(spec, "n"), long_argument(spec, "step")

    def process(c: Any, r: Any) -> None:
        for i in range(n):
            c.forward(r.with_timestamp(wrap_long(r.timestamp + i * step)))

    return process


def _swap(spec: dict[str, Any]) -> Process:
    return lambda c, r: c.forward(r.with_key(r.value).with_value(r.key))


def _route(spec: dict[str, Any]) -> Process:
    accepts = predicate(spec.get("fn"))
    yes, no = string_argument(spec, "yes"), string_argument(spec, "no")
    return lambda c, r: c.forward(r, yes if accepts(r.key, r.value) else no)


def _throw_if(spec: dict[str, Any]) -> Process:
    value = spec.get("v")

    def process(c: Any, r: Any) -> None:
        if equal(r.value, value):
            raise Boom
        c.forward(r)

    return process


def _dedup(spec: dict[str, Any]) -> Process:
    name = string_argument(spec, "store")

    def process(c: Any, r: Any) -> None:
        store = c.get_state_store(name)
        if r.key is not None and store.get(r.key) is None:
            store.put(r.key, r.value)
            c.forward(r)

    return process


def _count(spec: dict[str, Any]) -> Process:
    name = string_argument(spec, "store")
    return lambda c, r: c.forward(r.with_value(count_up(c.get_state_store(name), r.key)))


def _lookup(spec: dict[str, Any]) -> Process:
    name, join = string_argument(spec, "store"), joiner(spec.get("fn"))
    key_fn = scalar(spec.get("key_fn", "key"))

    def process(c: Any, r: Any) -> None:
        store = c.get_state_store(name)
        found = stored_value(store, key_fn(r.key, r.value))
        c.forward(r.with_value(join(r.key, r.value, found)))

    return process


def count_up(store: Any, key: Any) -> int:
    """Increment the stored long and return it."""
    n = wrap_long((store.get(key) or 0) + 1)
    store.put(key, n)
    return n


def stored_value(store: Any, key: Any) -> Any:
    """The plain value of a key in a plain, timestamped or versioned store."""
    stored: Any = None if key is None else store.get(key)
    return stored.value if hasattr(stored, "timestamp") else stored


# ---- stateful processors; they get their store in `init` ----


class Dedup(Stateful):
    def open(self) -> None:
        self.seen = self.store()

    def process(self, r: Any) -> None:
        if r.key is not None and self.seen.get(r.key) is None:
            self.seen.put(r.key, r.value)
            self.context.forward(r)


class Count(Stateful):
    def open(self) -> None:
        self.counts = self.store()

    def process(self, r: Any) -> None:
        self.context.forward(r.with_value(count_up(self.counts, r.key)))


class DedupWindow(Stateful):
    def open(self) -> None:
        self.ms = long_argument(self.spec, "ms")
        self.seen = self.store()

    def process(self, r: Any) -> None:
        found = self.seen.fetch(r.key, max(0, r.timestamp - self.ms), r.timestamp + self.ms)
        if next(iter(found), None) is None:
            self.seen.put(r.key, r.value, r.timestamp)
            self.context.forward(r)


class Punctuate(Stateful):
    def open(self) -> None:
        self.held = self.store()
        self.schedule(self.punctuate)

    def punctuate(self, now: int) -> None:
        for key, value in list(self.held.all()):
            self.context.forward(Record(key, value, now))
            if self.spec.get("clear"):
                self.held.delete(key)

    def process(self, r: Any) -> None:
        self.held.put(r.key, r.value)


class Tick(Stateful):
    def open(self) -> None:
        self.left = long_argument(self.spec, "limit", 2**63 - 1)
        self.handle = self.schedule(self.punctuate)

    def punctuate(self, now: int) -> None:
        if now == long_argument(self.spec, "throw_at", -1):
            raise Boom
        self.context.forward(Record("tick", str(now), now))
        self.left -= 1
        if self.left == 0:
            self.handle.cancel()

    def process(self, r: Any) -> None:
        if self.spec.get("pass"):
            self.context.forward(r)


class Ttl(Stateful):
    def open(self) -> None:
        self.ttl = long_argument(self.spec, "ttl")
        self.rows = self.store()
        self.schedule(self.punctuate)

    def punctuate(self, now: int) -> None:
        dead = [key for key, row in self.rows.all() if now - row.timestamp > self.ttl]
        for key in dead:
            self.rows.delete(key)
            self.context.forward(Record(key, None, now))

    def process(self, r: Any) -> None:
        if r.value is None:
            self.rows.delete(r.key)
        else:
            self.rows.put(r.key, ValueAndTimestamp(r.value, r.timestamp))
        self.context.forward(r)


class StoreProcessor(Stateful):
    """The record's value is a command for the store; its result, if any, is forwarded."""

    def __init__(self, spec: dict[str, Any], run: Callable[[Any, Any, list[str]], Any]) -> None:
        super().__init__(spec)
        self.run = run

    def process(self, r: Any) -> None:
        words = text(r.value).split(" ")
        while len(words) > 1 and not words[-1]:
            words.pop()
        result = self.run(self.store(), r.key, words)
        if result is not None:
            self.context.forward(r.with_value(result))


class PutInto(Stateful):
    def __init__(self, store: str) -> None:
        super().__init__({"store": store})

    def open(self) -> None:
        self.rows = self.store()

    def process(self, r: Any) -> None:
        if isinstance(self.rows, TimestampedKeyValueStore):
            row = None if r.value is None else ValueAndTimestamp(r.value, r.timestamp)
            self.rows.put(r.key, row)
        else:
            self.rows.put(r.key, r.value)


class Transformer:
    """A transformer for `KTable.transform_values`."""

    def __init__(self, spec: Spec) -> None:
        self.kind = name_of(spec)
        given = arguments(spec)
        self.store_name = string_argument(given, "store")
        if self.kind == "map":
            self.value = scalar(given.get("value_fn"))
        elif self.kind == "lookup":
            self.join = joiner(given.get("fn"))
        elif self.kind != "count":
            raise InvalidCase(f"Unknown transformer {self.kind!r}.")

    def init(self, context: Any) -> None:
        self.context = context

    def transform(self, key: Any, value: Any) -> Any:
        if self.kind == "map":
            return self.value(key, value)
        store = self.context.get_state_store(self.store_name)
        if self.kind == "lookup":
            return self.join(key, value, stored_value(store, key))
        return f"{text(value)}#{count_up(store, key)}"

    def close(self) -> None:
        pass


_SIMPLE: dict[str, Callable[[dict[str, Any]], Process]] = {
    "forward": _forward,
    "drop": _drop,
    "map": _map,
    "filter": _filter,
    "stamp": _stamp,
    "system_time": _system_time,
    "meta": _meta,
    "header_set": _header_set,
    "header_remove": _header_remove,
    "header_value": _header_value,
    "shift_ts": _shift_ts,
    "fan_out": _fan_out,
    "swap": _swap,
    "route": _route,
    "throw_if": _throw_if,
    "dedup": _dedup,
    "count": _count,
    "lookup": _lookup,
}

_STATEFUL: dict[str, Callable[[dict[str, Any]], Any]] = {
    "dedup": Dedup,
    "dedup_window": DedupWindow,
    "count": Count,
    "punctuate": Punctuate,
    "tick": Tick,
    "ttl": Ttl,
}

_FIXED_KEY = frozenset(_SIMPLE) - {"swap", "route"}
