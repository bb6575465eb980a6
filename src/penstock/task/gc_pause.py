"""Pauses the cyclic garbage collector during a batch."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager


class _Heap:
    """Whether this process keeps frozen objects, which must not be unfrozen.

    Counting them takes time for each of them, so that is done once. A forked child counts again:
    libraries freeze the objects that they inherit.
    """

    def __init__(self) -> None:
        self._is_frozen: bool | None = None

    def freeze(self) -> None:
        gc.freeze()
        self._is_frozen = True

    def is_frozen(self) -> bool:
        if self._is_frozen is None:
            self._is_frozen = gc.get_freeze_count() > 0
        return self._is_frozen

    def forget(self) -> None:
        self._is_frozen = None


_HEAP = _Heap()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_HEAP.forget)


def freeze_heap() -> None:
    """Exempt all objects that exist now from collections, for the life of the process."""
    gc.collect()
    _HEAP.freeze()


@contextmanager
def gc_paused() -> Iterator[None]:
    """Disable the cyclic garbage collector within the block.

    A batch creates many objects that live until its end. Scanning them repeatedly for cycles costs
    more than the work itself, and reference counting is enough for a bounded batch. Freezing and
    unfreezing moves the objects to the oldest generation, which avoids a full scan afterwards.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if not _HEAP.is_frozen():
            gc.freeze()
            gc.unfreeze()
        gc.enable()
