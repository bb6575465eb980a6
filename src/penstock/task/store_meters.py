"""Measures the operations of a store, if `metrics.recording.level` is DEBUG or TRACE.

The methods of the store object are replaced by methods that measure themselves, before operators
and processors get the store. A call inside of another one is not measured: `put_all` is no `put`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import perf_counter_ns
from typing import Any

from penstock.stores.typed.session import SessionStore
from penstock.stores.typed.store import LayeredStore, TypedStore
from penstock.stores.typed.window import WindowStore
from penstock.task.meters import Meters

#: Method -> the operation that it counts as in Kafka Streams. `load` and `save` are those of
#: operators.
_OPERATIONS = {
    "get": "get", "load": "get", "put": "put", "save": "put", "put_if_absent": "put-if-absent",
    "put_all": "put-all", "delete": "delete", "remove": "remove", "range": "range",
    "reverse_range": "range", "all": "all", "reverse_all": "all", "prefix_scan": "prefix-scan",
    "commit": "flush",
}
_WINDOW_OPERATIONS = {
    **_OPERATIONS, "load": "fetch", "fetch": "fetch", "backward_fetch": "fetch",
    "fetch_all": "fetch", "backward_fetch_all": "fetch", "all": "fetch", "backward_all": "fetch",
    "fetch_session": "fetch", "find_sessions": "fetch", "backward_find_sessions": "fetch",
    "put_join_record": "put", "fetch_join_records": "fetch",
}


def measure_store(store: Any, meters: Meters) -> None:
    """Replace the methods of an open store. Stores of users and buffers are not measured."""
    if not isinstance(store, TypedStore) or not meters.records("store-put"):
        return
    operations = (
        _WINDOW_OPERATIONS if isinstance(store, WindowStore | SessionStore) else _OPERATIONS
    )
    timer = _Timer(meters, (f"{store.metrics_scope}-state-id", store.name))
    views = (store,) if store.plain is store else (store, store.plain)
    if isinstance(store, LayeredStore) and store.is_caching:
        count_reads = _cache_counter(store, meters)
        for view in views:
            _count_cache_reads(view, count_reads)
    for view in views:
        for name, operation in operations.items():
            method = getattr(view, name, None)
            if method is not None and (name != "commit" or view is store):
                setattr(view, name, timer.timed(operation, method))
        if hasattr(view, "fold_row"):
            view.fold_row = _measured_fold(view, timer, operations["load"])


class _Timer:
    """Measures the calls of one store in nanoseconds."""

    def __init__(self, meters: Meters, tags: tuple[str, str]) -> None:
        self._meters = meters
        self._tags = tags
        self._is_running = False

    def timed(self, operation: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """A method that measures its calls."""
        meter = self._meters.meter(f"store-{operation}", *self._tags)

        def measured(*arguments: Any, **options: Any) -> Any:
            if self._is_running:
                return method(*arguments, **options)
            self._is_running = True
            started = perf_counter_ns()
            try:
                return method(*arguments, **options)
            finally:
                meter.record(perf_counter_ns() - started)
                self._is_running = False

        return measured


def cached_bytes(stores: Iterable[Any]) -> int:
    """Return the size of the record cache that the stores of a task use."""
    layers = (getattr(store, "cache_layer", None) for store in stores)
    return sum(layer.cache.size for layer in layers if layer is not None)


def _measured_fold(store: Any, timer: _Timer, reads_as: str) -> Callable[..., Any]:
    """`fold_row` as a read and a write, which the native one combines."""
    load_row = timer.timed(reads_as, store.load_row)
    save_row = timer.timed("put", store.save_row)

    def fold_row(
        initializer: Callable[[], Any], aggregator: Callable[[Any, Any, Any], Any]
    ) -> Callable[[bytes, Any, Any, int], None]:
        def fold(row_key: bytes, key: Any, value: Any, timestamp: int) -> None:
            old, time = load_row(row_key) or (None, timestamp)
            # The old value of a row that does not exist is the initial value.
            new = aggregator(key, value, initializer() if old is None else old)
            save_row(row_key, key, new, timestamp if timestamp > time else time)

        return fold

    return fold_row


def _cache_counter(store: LayeredStore, meters: Meters) -> Callable[[bytes], None]:
    """A function that notes whether a row is in the cache."""
    layer = store.cache_layer
    assert layer is not None
    find, ratio = layer.cache.find, meters.meter("hit-ratio", store.name)
    reads = hits = 0

    def count(row_key: bytes) -> None:
        nonlocal reads, hits
        reads += 1
        hits += find(row_key) is not None
        # As in Kafka Streams: the ratio of all reads so far, at every read.
        ratio.record(hits / reads)

    get = layer.get

    def counted_get(row_key: bytes) -> bytes | None:
        count(row_key)
        return get(row_key)

    layer.get = counted_get
    return count


def _count_cache_reads(view: Any, count: Callable[[bytes], None]) -> None:
    """Count the reads of operators, which do not use the layer itself."""
    load_row = getattr(view, "load_row", None)
    if load_row is None:
        return
    row_of = view.row_of

    def counted_load_row(row_key: bytes) -> Any:
        count(row_key)
        return load_row(row_key)

    view.load_row = counted_load_row
    view.load = lambda *key: counted_load_row(row_of(*key))
