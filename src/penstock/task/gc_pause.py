"""Pauses the cyclic garbage collector during a batch."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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
        if not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()
        gc.enable()
