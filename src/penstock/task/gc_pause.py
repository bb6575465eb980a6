"""Python's search for garbage, kept out of batches."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Counting references is enough inside a batch, which is bounded.

    A batch makes many objects that live until its end; looking through them again and again for
    cycles costs more than the work itself. Behind the batch they count as old (which is what
    freezing and unfreezing does), so that not all of them are looked through at once.
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
