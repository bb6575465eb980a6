"""Measures the operations of a store, if `metrics.recording.level` is DEBUG or TRACE.

The methods of the store object are replaced by methods that measure themselves, before operators
and processors get the store. A call inside of another one is not measured: `put_all` is no `put`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from time import perf_counter_ns
from typing import Any

from penstock.clock import wall_clock_ms
from penstock.stores.api.results import StoreIterator
from penstock.stores.buffers.suppress import SuppressBuffer
from penstock.stores.typed.session import SessionStore
from penstock.stores.typed.store import LayeredStore, TypedStore
from penstock.stores.typed.window import WindowStore
from penstock.task.meters import Meter, Meters

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


#: The operations that write the result of a single record.
_WRITES = ("put", "put-if-absent")


def measure_store(store: Any, meters: Meters, age: Callable[[], int]) -> None:
    """Replace the methods of an open store. Stores of users and of joins are not measured.

    `age`: returns the time since the timestamp of the current record, in milliseconds.
    """
    if not meters.records("store-put"):
        return
    if isinstance(store, SuppressBuffer):
        _measure_buffer(store, meters)
    if not isinstance(store, TypedStore):
        return
    operations = (
        _WINDOW_OPERATIONS if isinstance(store, WindowStore | SessionStore) else _OPERATIONS
    )
    timer = _Timer(meters, (f"{store.metrics_scope}-state-id", store.name), age)
    if isinstance(store, LayeredStore) and not store.persistent:
        rows = meters.meter("num-keys", *timer.tags)
        meters.at_commit.append(lambda: rows.record(store.num_rows()))
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

    def __init__(self, meters: Meters, tags: tuple[str, str], age: Callable[[], int]) -> None:
        self._meters = meters
        self.tags = tags
        self._age = age
        self._is_running = False
        self._iterators = _OpenIterators(meters, tags)

    def timed(self, operation: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """A method that measures its calls."""
        meter = self._meters.meter(f"store-{operation}", *self.tags)
        ages: Meter | None = None
        if operation in _WRITES and self._meters.records("store-e2e-latency"):
            ages = self._meters.meter("store-e2e-latency", *self.tags)

        def measured(*arguments: Any, **options: Any) -> Any:
            if self._is_running:
                return method(*arguments, **options)
            self._is_running = True
            started = perf_counter_ns()
            try:
                result = method(*arguments, **options)
            finally:
                meter.record(perf_counter_ns() - started)
                self._is_running = False
            if ages is not None:
                ages.record(self._age())
            return self._iterators.track(result) if type(result) is StoreIterator else result

        return measured


class _OpenIterators:
    """The iterators of one store that are not closed: neither exhausted nor released either."""

    def __init__(self, meters: Meters, tags: tuple[str, str]) -> None:
        self._duration = meters.meter("iterator-duration", *tags)
        self._number = meters.meter("open-iterators", *tags)
        self._oldest = meters.meter("oldest-iterator", *tags)
        #: The time at which each was opened, in milliseconds. The first one is the oldest.
        self._open: dict[int, int] = {}
        self._opened = 0
        meters.at_commit.append(self._observe)

    def track(self, rows: StoreIterator[Any, Any]) -> StoreIterator[Any, Any]:
        """The same iterator, which is measured until it is closed."""
        self._opened += 1
        number, started = self._opened, perf_counter_ns()
        self._open[number] = wall_clock_ms()

        def ended() -> None:
            if self._open.pop(number, None) is not None:
                self._duration.record(perf_counter_ns() - started)

        return StoreIterator(_TrackedRows(rows, ended))

    def _observe(self) -> None:
        if self._opened:
            self._number.record(len(self._open))
            self._oldest.record(next(iter(self._open.values()), 0))


class _TrackedRows:
    """The source of an iterator, which notes its end."""

    def __init__(self, rows: StoreIterator[Any, Any], ended: Callable[[], None]) -> None:
        self._rows = rows
        self._ended = ended

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            return next(self._rows)
        except BaseException:
            self._ended()
            raise

    def close(self) -> None:
        """End the iteration."""
        self._ended()
        self._rows.close()

    def __del__(self) -> None:
        self._ended()


def _measure_buffer(buffer: SuppressBuffer, meters: Meters) -> None:
    """Record the size of a buffer of suppress whenever it changes, as Kafka Streams does."""
    tags = ("in-memory-suppression-id", buffer.name)
    size = meters.meter("suppression-size", *tags)
    count = meters.meter("suppression-count", *tags)

    def measured(method: Callable[..., Any]) -> Callable[..., Any]:
        def changing(*arguments: Any) -> Any:
            before = buffer.num_records
            result = method(*arguments)
            if method == put or buffer.num_records != before:
                size.record(buffer.size_bytes)
                count.record(buffer.num_records)
            return result

        return changing

    put = buffer.put
    for name in ("put", "evict_until", "evict_over"):
        setattr(buffer, name, measured(getattr(buffer, name)))


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
