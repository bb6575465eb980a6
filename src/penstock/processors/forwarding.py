"""How a node with a store writes a result and forwards it.

With a cache, the node only writes; the flush listener registered here forwards the result when
the cache is flushed or evicts the entry. Without a cache, the node writes and forwards at once.
The choice is made when the node is attached, as is whether old values are sent.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from penstock.native import core
from penstock.processors.base import Forward
from penstock.processors.table_store import LATEST, NOT_PUT
from penstock.record import Change, Headers
from penstock.windows import Window, Windowed

#: Writes a row to the store and forwards the change: key, new, old, timestamp, headers.
WriteRow = Callable[[Any, Any, Any, int, Headers], None]

#: The same for a window: key, window, (new, old), timestamp, headers.
WriteWindow = Callable[[Any, Window, tuple[Any, Any], int, Headers], None]

# The constructor of a NamedTuple costs twice as much as creating the tuple.
#: A `Change` from (new, old, is_latest).
change_of: Callable[[tuple[Any, Any, bool]], Change] = partial(tuple.__new__, Change)
#: A `Windowed` from (key, window).
windowed_of: Callable[[tuple[Any, Window]], Windowed[Any]] = partial(tuple.__new__, Windowed)


def change_listener(forward: Forward) -> Callable[[Any, Any, Any, int, Headers], None]:
    """A flush listener that forwards each entry as a `Change`."""
    if core is not None:
        native: Callable[[Any, Any, Any, int, Headers], None]
        native = core.change_listener(forward, Change)
        return native

    def flushed(key: Any, new: Any, old: Any, timestamp: int, headers: Headers) -> None:
        forward(key, change_of((new, old, True)), timestamp, headers)

    return flushed


def row_writer(store: Any, forward: Forward, send_old: bool) -> WriteRow:
    """The writer for a table's store, timestamped or versioned."""
    caches = store.set_flush_listener(change_listener(forward), send_old)
    if store.is_versioned:
        return _version_writer(store, forward, send_old, caches)
    save = store.save

    def keep(key: Any, new: Any, old: Any, timestamp: int, headers: Headers) -> None:
        save(key, new, timestamp)

    def keep_and_send(key: Any, new: Any, old: Any, timestamp: int, headers: Headers) -> None:
        save(key, new, timestamp)
        forward(key, change_of((new, None, True)), timestamp, headers)

    def keep_and_send_old(key: Any, new: Any, old: Any, timestamp: int, headers: Headers) -> None:
        save(key, new, timestamp)
        forward(key, change_of((new, old, True)), timestamp, headers)

    if caches:
        return keep
    return keep_and_send_old if send_old else keep_and_send


def _version_writer(store: Any, forward: Forward, send_old: bool, caches: bool) -> WriteRow:
    put = store.put

    def keep_version(key: Any, new: Any, old: Any, timestamp: int, headers: Headers) -> None:
        code = put(key, new, timestamp)
        # An update that is too old for the store is not forwarded either.
        if code != NOT_PUT and not caches:
            sent_old = old if send_old else None
            forward(key, change_of((new, sent_old, code == LATEST)), timestamp, headers)

    return keep_version


def window_writer(store: Any, forward: Forward, send_old: bool, emit_final: bool) -> WriteWindow:
    """The writer for a timestamped window store; with `emit_final` it never forwards."""
    save = store.save
    caches = emit_final or store.set_flush_listener(change_listener(forward), send_old)

    def keep(
        key: Any, window: Window, values: tuple[Any, Any], timestamp: int, headers: Headers
    ) -> None:
        save(key, values[0], timestamp, window[0])

    def keep_and_send(
        key: Any, window: Window, values: tuple[Any, Any], timestamp: int, headers: Headers
    ) -> None:
        new, old = values
        save(key, new, timestamp, window[0])
        change = change_of((new, old if send_old else None, True))
        forward(windowed_of((key, window)), change, timestamp, headers)

    return keep if caches else keep_and_send
